"""Errors as Kubernetes words them: `Status` objects with a reason, details and causes that clients act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject


class Cause(NamedTuple):
    """One field's problem.

    Attributes:
        reason: FieldValueRequired, FieldValueInvalid and so on.
        message: what is wrong, without the field.
        field: the path, for example `spec.parts[0].name`.
    """

    reason: str
    message: str
    field: str

    def text(self) -> str:
        """Field and message as they stand in the error's own message."""
        return f"{self.field}: {self.message}"

    def to_json(self) -> JsonObject:
        """As an item of details.causes."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiStatusError(Exception):
    """A request that ends in a failure Status.

    Attributes:
        status: the whole Status object as it travels.
        code: the HTTP status.
        warnings: texts for Warning headers that come with the error.
    """

    def __init__(self, status: JsonObject) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.code: int = status["code"]
        self.warnings: list[str] = []

    @property
    def reason(self) -> str:
        """The machine-readable reason; empty when there is none."""
        return str(self.status.get("reason", ""))


def failure(
    code: int, reason: str, message: str, details: JsonObject | None = None, metadata: JsonObject | None = None
) -> ApiStatusError:
    """Any failure. An empty reason and absent details are left out, as a real server leaves them out."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata or {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = details
    status["code"] = code
    return ApiStatusError(status)


def success(code: int | None = None, details: JsonObject | None = None) -> JsonObject:
    """A Success Status; only some calls name a code in it."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return status


def qualified(plural: str, group: str) -> str:
    """`widgets.example.com`, or the bare name for the core group. Also used with kinds."""
    return f"{plural}.{group}" if group else plural


def details_of(kind: str, group: str, name: str = "") -> JsonObject:
    """Details with what is known: name and group are left out when empty."""
    details: JsonObject = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(plural: str, group: str, name: str) -> ApiStatusError:
    """404 for a missing object."""
    return failure(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details_of(plural, group, name))


def already_exists(plural: str, group: str, name: str, *, deleting: bool = False) -> ApiStatusError:
    """409 for a name that is taken, also by an object that is on its way out."""
    prefix = "object is being deleted: " if deleting else ""
    message = f'{prefix}{qualified(plural, group)} "{name}" already exists'
    return failure(409, "AlreadyExists", message, details_of(plural, group, name))


def conflict(kind: str, group: str, name: str, why: str) -> ApiStatusError:
    """409 for a write that was made from something else than the present state."""
    message = f'Operation cannot be fulfilled on {qualified(kind, group)} "{name}": {why}'
    return failure(409, "Conflict", message, details_of(kind, group, name))


def stale(plural: str, group: str, name: str) -> ApiStatusError:
    """409 for an old resourceVersion."""
    return conflict(
        plural,
        group,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def bad_request(message: str) -> ApiStatusError:
    """400 for what cannot be understood."""
    return failure(400, "BadRequest", message)


def internal(message: str, *, cause: str | None = None) -> ApiStatusError:
    """500 with reason InternalError."""
    return failure(
        500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": cause or message}]}
    )


def forbidden(plural: str, group: str, name: str, why: str, causes: Iterable[Cause] = ()) -> ApiStatusError:
    """403 for a resource."""
    subject = qualified(plural, group) + (f' "{name}"' if name else "")
    details = details_of(plural, group, name)
    listed = [cause.to_json() for cause in causes]
    if listed:
        details["causes"] = listed
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def method_not_allowed() -> ApiStatusError:
    """405 for a method that a path does not have."""
    return failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Iterable[str]) -> ApiStatusError:
    """415 for a body that cannot be read."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return failure(415, "UnsupportedMediaType", message)


def not_acceptable() -> ApiStatusError:
    """406 for an Accept header that nothing can satisfy."""
    types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    return failure(406, "NotAcceptable", f"only the following media types are accepted: {types}")


def invalid(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiStatusError:
    """422: one cause per problem; a problem that is listed twice is told once in the message."""
    listed = list(causes)
    texts = list(dict.fromkeys(cause.text() for cause in listed))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = details_of(kind, group, name)
    details["causes"] = [cause.to_json() for cause in listed]
    return failure(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {text}', details)


def go_value(value: Any) -> str:
    """A value as field errors show it: strings quoted, the rest as JSON."""
    return orjson.dumps(value, default=str).decode()


def required(field: str, message: str = "") -> Cause:
    """A field that must be there."""
    return Cause("FieldValueRequired", "Required value" + (f": {message}" if message else ""), field)


def invalid_value(field: str, value: Any, message: str) -> Cause:
    """A field whose value will not do."""
    return Cause("FieldValueInvalid", f"Invalid value: {go_value(value)}: {message}", field)


def forbidden_field(field: str, message: str) -> Cause:
    """A field that may not be set, or not be changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {message}", field)


def unsupported_value(field: str, value: Any, supported: Iterable[Any]) -> Cause:
    """A field whose value is not one of a list."""
    allowed = ", ".join(go_value(item) for item in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {go_value(value)}: supported values: {allowed}", field)


def duplicate(field: str, value: Any) -> Cause:
    """A list item that is there already."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {go_value(value)}", field)
