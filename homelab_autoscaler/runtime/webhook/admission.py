"""Admission: what the API server asks, and what a handler may answer."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

import orjson
from pydantic import ValidationError

from homelab_api.meta import JsonObject, KubeObject

T = TypeVar("T", bound=KubeObject)
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
API_VERSION = "admission.k8s.io/v1"
_REASONS = {403: "Forbidden", 422: "Invalid", 500: "InternalError"}


@dataclass(frozen=True, slots=True)
class FieldCause:
    """One thing that is wrong with one field.

    Attributes:
        path: such as `spec.group` or `spec.volumes[0].name`.
        message: what is wrong and what would be right.
        reason: FieldValueInvalid, FieldValueRequired, FieldValueForbidden, FieldValueDuplicate…
    """

    path: str
    message: str
    reason: str = "FieldValueInvalid"


@dataclass(frozen=True, slots=True)
class Decision:
    """A handler's answer.

    Attributes:
        allowed: whether the request goes on.
        message: why not.
        causes: fields that are to blame; their texts become part of the message that people see.
        warnings: shown to people by kubectl even if it is allowed; short ones.
        patch: RFC 6902 operations of a mutating handler.
        code: HTTP status of a denial; by default 422 with causes, 403 without.
        reason: machine-readable reason of a denial; by default that of the code. "" leaves it out: then kubectl shows
            the message as it is, also if there are causes.
    """

    allowed: bool
    message: str = ""
    causes: Sequence[FieldCause] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[JsonObject] = ()
    code: int | None = None
    reason: str | None = None


def allow(*warnings: str) -> Decision:
    """Let it pass, with warnings if there are any."""
    return Decision(allowed=True, warnings=warnings)


def deny(message: str, *causes: FieldCause, warnings: Sequence[str] = ()) -> Decision:
    """Refuse it. With causes it looks like a failed schema validation (Invalid, 422), else like Forbidden (403)."""
    return Decision(allowed=False, message=message, causes=causes, warnings=warnings)


def mutate(patch: Sequence[JsonObject], *warnings: str) -> Decision:
    """Let it pass, changed."""
    return Decision(allowed=True, patch=patch, warnings=warnings)


class NotReadyError(Exception):
    """The handler cannot judge yet. The server answers 503, so that the configuration's failurePolicy decides."""


class MalformedReviewError(ValueError):
    """The request is no AdmissionReview; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The question.

    Attributes:
        uid: of the question; the answer carries it.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        kind: of the object, as `group/version.Kind` parts.
        resource: plural that was asked for.
        subresource: such as `status`, "" for the object itself.
        name: of the object; "" on a create with generateName.
        namespace: "" for cluster-scoped objects.
        user: name of who asks.
        groups: of who asks.
        dry_run: nothing will be stored: side effects are not allowed.
        object: new state, None on DELETE.
        old_object: old state, None on CREATE.
        options: the operation's options.
    """

    uid: str
    operation: str
    kind: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    object: JsonObject | None = None
    old_object: JsonObject | None = None
    options: JsonObject = field(default_factory=dict)

    def decode(self, kind: type[T]) -> T:
        """The new state as a model.

        Raises:
            UnreadableObjectError: it is absent or a field has another type; its causes name the fields.
        """
        return _decode(self.object, kind, "object")

    def decode_old(self, kind: type[T]) -> T:
        """The old state as a model. Raises as `decode`."""
        return _decode(self.old_object, kind, "oldObject")


class UnreadableObjectError(Exception):
    """An object does not fit its model. The server turns it into a denial with field paths."""

    def __init__(self, message: str, causes: Sequence[FieldCause] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


AdmissionHandler: TypeAlias = Callable[[AdmissionRequest], Decision]


def _decode(body: JsonObject | None, kind: type[T], what: str) -> T:
    if body is None:
        raise UnreadableObjectError(f"the review has no {what}")
    try:
        return kind.from_json(body)
    except ValidationError as error:
        causes = [FieldCause(field_path(entry["loc"]), entry["msg"]) for entry in error.errors()]
        raise UnreadableObjectError(f"{kind.resource.kind} cannot be read", causes) from error


def field_path(location: Sequence[str | int]) -> str:
    """`spec.volumes[0].name` for ("spec", "volumes", 0, "name")."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def read_review(body: bytes) -> AdmissionRequest:
    """Decode an AdmissionReview v1.

    Raises:
        MalformedReviewError: it is none.
    """
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedReviewError(f"the body is not JSON: {error}") from error
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise MalformedReviewError("the body is no AdmissionReview")
    if review.get("apiVersion") != API_VERSION:
        raise MalformedReviewError(f'apiVersion "{review.get("apiVersion")}" is not understood: use {API_VERSION}')
    request = review.get("request")
    if not isinstance(request, dict) or not request.get("uid"):
        raise MalformedReviewError("the review has no request with a uid")
    kind, resource, user = (request.get(key) or {} for key in ("kind", "resource", "userInfo"))
    return AdmissionRequest(
        uid=request["uid"],
        operation=request.get("operation", ""),
        kind=kind.get("kind", ""),
        resource=resource.get("resource", ""),
        subresource=request.get("subResource") or "",
        name=request.get("name") or "",
        namespace=request.get("namespace") or "",
        user=user.get("username", ""),
        groups=tuple(user.get("groups") or ()),
        dry_run=bool(request.get("dryRun")),
        object=request.get("object"),
        old_object=request.get("oldObject"),
        options=request.get("options") or {},
    )


def write_review(uid: str, decision: Decision) -> bytes:
    """Encode the answer."""
    response: JsonObject = {"uid": uid, "allowed": decision.allowed}
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(decision.patch))).decode()
    if not decision.allowed:
        response["status"] = _status(decision)
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _status(decision: Decision) -> JsonObject:
    code = decision.code or (422 if decision.causes else 403)
    texts = [f"{cause.path}: {cause.message}" for cause in decision.causes]
    message = ": ".join(part for part in (decision.message, "; ".join(texts)) if part)
    status: JsonObject = {
        "status": "Failure",
        "code": code,
        "message": message,
    }
    reason = decision.reason if decision.reason is not None else _REASONS.get(code, "BadRequest")
    if reason:
        status["reason"] = reason
    if decision.causes:
        causes = [{"reason": c.reason, "field": c.path, "message": c.message} for c in decision.causes]
        status["details"] = {"causes": causes}
    return status
