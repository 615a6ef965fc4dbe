"""Parameters of requests: parsing, and the errors for those that make no sense."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from homelab_autoscaler.sandbox.apiserver.builtin.types import DELETE_OPTIONS
from homelab_autoscaler.sandbox.apiserver.semantics.decode import DecodeError, decode
from homelab_autoscaler.sandbox.status import (
    Cause,
    bad_request,
    failure,
    forbidden_field,
    invalid,
    invalid_value,
    required,
    unsupported_value,
)

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.request import ApiRequest

_META_GROUP = "meta.k8s.io"
_FIELD_VALIDATION = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Of create, update and patch.

    Attributes:
        kind: CreateOptions, UpdateOptions or PatchOptions, as errors and admission reviews call them.
        dry_run: run everything, store nothing.
        field_manager: as given; may be empty.
        field_validation: Ignore, Warn or Strict.
        force: take over fields in server-side apply.
    """

    kind: str
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False

    def to_json(self) -> JsonObject:
        """As admission reviews show them. A patch is an update there."""
        shown: JsonObject = {"kind": self.kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            shown["dryRun"] = ["All"]
        if self.field_manager:
            shown["fieldManager"] = self.field_manager
        return shown


def write_options(request: ApiRequest, kind: str, *, apply: bool = False) -> WriteOptions:
    """Read the parameters of a write.

    Raises:
        ApiStatusError: 422 for values that are not allowed.
    """
    problems: list[Cause] = []
    dry_run = request.query.get("dryRun", [])
    if any(value != "All" for value in dry_run):
        problems.append(unsupported_value("dryRun", dry_run, ["All"]))
    validation = request.parameter("fieldValidation")
    manager = request.parameter("fieldManager")
    force = truth(request, "force")
    if kind == "PatchOptions":
        if apply and not manager:
            problems.append(required("fieldManager", "is required for apply patch"))
        if not apply and "force" in request.query:
            problems.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager) > 128:
        problems.append(Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"))
    if not manager.isprintable():
        problems.append(invalid_value("fieldManager", manager, "should only contain printable characters"))
    if validation not in _FIELD_VALIDATION:
        problems.append(unsupported_value("fieldValidation", validation, _FIELD_VALIDATION))
    if problems:
        raise invalid(kind, _META_GROUP, "", problems)
    return WriteOptions(kind, bool(dry_run), manager, validation or "Warn", force)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Of delete and deletecollection; absent values are None or empty."""

    dry_run: bool = False
    propagation: str = ""
    orphan: bool | None = None
    grace_period: int | None = None
    uid: str = ""
    resource_version: str = ""
    raw: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As admission reviews show them."""
        return {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **self.raw}


def delete_options(request: ApiRequest, body: JsonObject | None) -> DeleteOptions:
    """Read the options of a deletion, from the body or, without one, from the query: an empty body hides a dry run.

    Raises:
        ApiStatusError: 400 for what cannot be read, 422 for values that are not allowed.
    """
    raw: JsonObject = {}
    if body is not None:
        raw = {key: value for key, value in body.items() if key not in {"kind", "apiVersion"}}
        try:
            raw = decode(raw, DELETE_OPTIONS, "", [])
        except DecodeError as error:
            raise bad_request(f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {error}') from None
    else:
        if policy := request.parameter("propagationPolicy"):
            raw["propagationPolicy"] = policy
        if grace := request.parameter("gracePeriodSeconds"):
            raw["gracePeriodSeconds"] = integer(grace)
        if "orphanDependents" in request.query:
            raw["orphanDependents"] = truth(request, "orphanDependents")
        if "dryRun" in request.query:
            raw["dryRun"] = request.query["dryRun"]
    return checked_delete_options(raw)


def checked_delete_options(raw: JsonObject) -> DeleteOptions:
    """Validate decoded options.

    Raises:
        ApiStatusError: 422 for values that are not allowed.
    """
    problems: list[Cause] = []
    policy = raw.get("propagationPolicy", "")
    if policy and policy not in {"Foreground", "Background", "Orphan"}:
        problems.append(unsupported_value("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]))
    if policy and "orphanDependents" in raw:
        problems.append(
            invalid_value("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    grace = raw.get("gracePeriodSeconds")
    if grace is not None and grace < 0:
        # A negative period means one second, which is how old clients say "at once, but gracefully".
        grace = 1
    dry_run = raw.get("dryRun") or []
    if any(value != "All" for value in dry_run):
        problems.append(unsupported_value("dryRun", dry_run, ["All"]))
    if problems:
        raise invalid("DeleteOptions", _META_GROUP, "", problems)
    preconditions = raw.get("preconditions") or {}
    return DeleteOptions(
        bool(dry_run),
        policy,
        raw.get("orphanDependents"),
        grace,
        preconditions.get("uid", ""),
        preconditions.get("resourceVersion", ""),
        raw,
    )


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Of list and watch, as text where the text still matters."""

    labels: str
    fields: str
    limit: int
    token: str
    resource_version: str
    match: str
    watch: bool
    bookmarks: bool
    timeout: float | None
    initial_events: bool | None


def list_options(request: ApiRequest) -> ListOptions:
    """Read the parameters of a list or watch.

    Raises:
        ApiStatusError: 400 for numbers that are none, 422 for combinations that are not allowed.
    """
    limit = integer(request.parameter("limit", "0"))
    timeout = request.parameter("timeoutSeconds", "0")
    options = ListOptions(
        request.parameter("labelSelector"),
        request.parameter("fieldSelector"),
        max(0, limit),
        request.parameter("continue"),
        request.parameter("resourceVersion"),
        request.parameter("resourceVersionMatch"),
        truth(request, "watch"),
        truth(request, "allowWatchBookmarks"),
        float(integer(timeout)) or None,
        truth(request, "sendInitialEvents") if "sendInitialEvents" in request.query else None,
    )
    _check_match(options)
    return options


def _check_match(options: ListOptions) -> None:
    problems: list[Cause] = []
    match = options.match
    if options.watch:
        if options.initial_events is not None:
            if match != "NotOlderThan":
                problems.append(
                    forbidden_field(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    )
                )
        elif match:
            problems.append(
                forbidden_field(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
    else:
        if match:
            if not options.resource_version:
                problems.append(
                    forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                    )
                )
            if options.token:
                problems.append(
                    forbidden_field(
                        "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                    )
                )
            if match not in {"Exact", "NotOlderThan"}:
                problems.append(unsupported_value("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
            elif match == "Exact" and options.resource_version == "0":
                problems.append(
                    forbidden_field(
                        "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                    )
                )
        if options.initial_events is not None:
            problems.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if problems:
        raise invalid("ListOptions", _META_GROUP, "", problems)


def truth(request: ApiRequest, name: str) -> bool:
    """Whether a parameter is there and says anything but no."""
    return name in request.query and request.parameter(name).lower() not in {"false", "0"}


def integer(text: str) -> int:
    """A decimal parameter.

    Raises:
        ApiStatusError: 400 in Go's words.
    """
    try:
        value = int(text) if text.isascii() else None
    except ValueError:
        value = None
    if value is None:
        raise bad_request(f"strconv.ParseInt: parsing {orjson.dumps(text).decode()}: invalid syntax")
    return value


def revision(text: str, *, watching: bool = False) -> int:
    """A resourceVersion parameter.

    Raises:
        ApiStatusError: 400 for a list; a watch gets 500 without a reason, as on a real server.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    shown = orjson.dumps(text).decode()
    problem = f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax"
    if watching:
        raise failure(500, "", problem)
    raise bad_request(f"invalid resource version: {problem}")
