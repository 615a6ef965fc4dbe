"""What the API server can answer instead of an object, as exceptions.

The classes follow `reason` of a Status object where there is one (AlreadyExists and Conflict share 409), and the
HTTP code otherwise, so that callers catch what they mean and never compare numbers.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from homelab_api.meta import JsonObject


class ApiError(Exception):
    """An answer that is not what was asked for.

    Attributes:
        status: HTTP code; 0 when there was no answer (TransportError).
        reason: the machine-readable word of the Status, or the class's own.
        message: the server's sentence for people.
        details: the Status' details (name, kind, causes…), {} if there were none.
        retry_after: seconds the server asked to wait, None if it did not.
    """

    default_reason: ClassVar[str] = "Unknown"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: JsonObject | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason or self.default_reason
        self.message = message
        self.details: JsonObject = details or {}
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message} ({self.reason}, {self.status})" if self.status else self.message

    def causes(self) -> list[tuple[str, str, str]]:
        """(reason, field, message) of every cause in the details."""
        causes = self.details.get("causes") or []
        return [(c.get("reason", ""), c.get("field", ""), c.get("message", "")) for c in causes if isinstance(c, dict)]


class BadRequestError(ApiError):
    """400: the request itself is malformed."""

    default_reason = "BadRequest"


class UnauthorizedError(ApiError):
    """401: the server does not know who we are."""

    default_reason = "Unauthorized"


class ForbiddenError(ApiError):
    """403: RBAC, a quota or an admission plugin says no."""

    default_reason = "Forbidden"


class NotFoundError(ApiError):
    """404: no such object, or no such kind."""

    default_reason = "NotFound"


class AlreadyExistsError(ApiError):
    """409 on create: an object of that name is there."""

    default_reason = "AlreadyExists"


class ConflictError(ApiError):
    """409: the object changed since it was read, or a precondition (uid, resourceVersion) does not hold."""

    default_reason = "Conflict"


class GoneError(ApiError):
    """410: the resourceVersion or continue token is older than the server remembers (Expired, Gone)."""

    default_reason = "Expired"


class InvalidError(ApiError):
    """422: the object breaks its schema or a validation rule; `causes` name the fields."""

    default_reason = "Invalid"


class TooManyRequestsError(ApiError):
    """429: the server sheds load, or a disruption budget blocks an eviction."""

    default_reason = "TooManyRequests"

    @property
    def disruption_budget(self) -> bool:
        """True when a PodDisruptionBudget, not load, is the cause."""
        return any(reason == "DisruptionBudget" for reason, _, _ in self.causes())


class InternalServerError(ApiError):
    """500, and any 5xx without a class of its own. A write may have been committed."""

    default_reason = "InternalError"


class UnavailableError(ApiError):
    """502 or 503: nobody behind the address can serve now."""

    default_reason = "ServiceUnavailable"


class ServerTimeoutError(ApiError):
    """504 or reason ServerTimeout/Timeout: the server gave up waiting. A write may have been committed."""

    default_reason = "Timeout"


class TransportError(ApiError):
    """No answer: refused, reset, timed out, or cut off. What happened to a write is unknown: read back.

    Attributes:
        sent: False when no connection was made, so that the server cannot have seen the request.
    """

    default_reason = "Transport"

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class StallError(TransportError):
    """A stream was silent for longer than its inactivity limit."""


class DeadlineExceededError(ApiError):
    """The reconcile's time was over before this request was sent (see `deadline`). Nothing was sent."""

    default_reason = "DeadlineExceeded"


_BY_REASON: Mapping[str, type[ApiError]] = {
    "BadRequest": BadRequestError,
    "Unauthorized": UnauthorizedError,
    "Forbidden": ForbiddenError,
    "NotFound": NotFoundError,
    "AlreadyExists": AlreadyExistsError,
    "Conflict": ConflictError,
    "Gone": GoneError,
    "Expired": GoneError,
    "Invalid": InvalidError,
    "TooManyRequests": TooManyRequestsError,
    "InternalError": InternalServerError,
    "ServiceUnavailable": UnavailableError,
    "ServerTimeout": ServerTimeoutError,
    "Timeout": ServerTimeoutError,
}
_BY_CODE: Mapping[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
    500: InternalServerError,
    502: UnavailableError,
    503: UnavailableError,
    504: ServerTimeoutError,
}


def from_status(status: JsonObject, code: int | None = None, retry_after: float | None = None) -> ApiError:
    """The exception for a Status object, be it a reply's body or an ERROR item of a watch."""
    number = code if code is not None else int(status.get("code") or 0)
    reason = str(status.get("reason") or "")
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    fallback = InternalServerError if number >= 500 else ApiError
    kind = _BY_REASON.get(reason) or _BY_CODE.get(number, fallback)
    message = str(status.get("message") or "") or f"the server answered {number}"
    return kind(message, status=number, reason=reason, details=details, retry_after=retry_after)


def from_reply(code: int, body: bytes, headers: Mapping[str, str], now: datetime) -> ApiError:
    """The exception for an HTTP reply of 400 or more; a body that is no Status becomes the message.

    `headers` are by lower-case name.
    """
    retry_after = parse_retry_after(headers.get("retry-after"), now)
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:300].decode("utf-8", "replace").strip()
        status = {"message": text or f"the server answered {code} without a body"}
    return from_status(status, code, retry_after)


def parse_retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds meant by a Retry-After header (a number, or an HTTP date compared with `now`); None if unreadable."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        instant = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (instant - now).total_seconds())


def is_too_large_resource_version(error: ApiError) -> bool:
    """The server has not yet seen the version that was asked for (a restored or lagging server)."""
    if any(reason == "ResourceVersionTooLarge" for reason, _, _ in error.causes()):
        return True
    return isinstance(error, ServerTimeoutError) and "too large resource version" in error.message.lower()
