"""Events: one stored object, two faces.

Stored in the core form. `events.k8s.io` shows the same fields under newer names and is stricter about new events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics import names
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, invalid_value, required

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

# core name, events.k8s.io name
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_FROZEN = (
    "regarding",
    "note",
    "reason",
    "type",
    "action",
    "eventTime",
    "reportingController",
    "reportingInstance",
    "related",
)
_FIXED = "field is immutable"
_BACK = {new: old for old, new in _RENAMED.items()}
_ALWAYS: JsonObject = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
    "involvedObject": {},
}


def to_core(body: JsonObject) -> JsonObject:
    """The stored form of an events.k8s.io Event."""
    found = {_BACK.get(key, key): value for key, value in body.items()}
    found.pop("kind", None)
    found.pop("apiVersion", None)
    found = {"kind": "Event", "apiVersion": "v1", "metadata": found.pop("metadata"), **found}
    for key, value in _ALWAYS.items():
        found.setdefault(key, {} if value == {} else value)
    return found


def from_core(body: JsonObject) -> JsonObject:
    """The events.k8s.io form of a stored Event."""
    found = {_RENAMED.get(key, key): value for key, value in body.items()}
    found["apiVersion"] = "events.k8s.io/v1"
    for key in ("reportingController", "reportingInstance"):
        if not found.get(key):
            found.pop(key, None)
    if body.get("firstTimestamp") and body.get("count"):
        found["deprecatedFirstTimestamp"] = body["firstTimestamp"]
    return found


def _namespace_problems(reference: JsonObject, namespace: str) -> list[Cause]:
    """An Event lies beside its object; those of cluster-scoped objects lie in `default`."""
    about = reference.get("namespace", "")
    if about:
        if about != namespace:
            return [invalid_value("involvedObject.namespace", about, "does not match event.namespace")]
    elif namespace not in {"default", "kube-system"}:
        return [invalid_value("involvedObject.namespace", "", "does not match event.namespace")]
    return []


def _core_problems(body: JsonObject) -> list[Cause]:
    return _namespace_problems(body.get("involvedObject") or {}, body["metadata"].get("namespace", ""))


CORE = Rules(metadata_last=True, collected=False, name_rule="path", create_on_update=True, validate=_core_problems)


def _old_style(body: JsonObject) -> bool:
    """An Event that came in through core: the strict rules do not hold for it."""
    return not body.get("eventTime") and bool(body.get("deprecatedFirstTimestamp") or body.get("deprecatedCount"))


def _new_problems(body: JsonObject) -> list[Cause]:
    if _old_style(body):
        return _namespace_problems(body.get("regarding") or {}, body["metadata"].get("namespace", ""))
    problems = []
    if not body.get("eventTime"):
        problems.append(required("eventTime"))
    controller: Any = body.get("reportingController", "")
    if not controller:
        problems.append(required("reportingController"))
    problems += [
        invalid_value("reportingController", controller, why) for why in names.qualified_name_problems(controller)
    ]
    problems += [required(field) for field in ("reportingInstance", "action", "reason") if not body.get(field)]
    kind = body.get("type", "")
    if kind not in {"Normal", "Warning"}:
        problems.append(invalid_value("type", kind, f"has invalid value: {kind}"))
    return problems


def _new_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    """Only the series of an Event can change."""
    if _old_style(old):
        return []
    return [
        # Errors name the stored form's fields, but for one.
        invalid_value(_BACK.get(field, field) if field != "reportingController" else field, body.get(field), _FIXED)
        for field in _FROZEN
        if body.get(field) != old.get(field)
    ]


def _new_defaults(body: JsonObject) -> None:
    body.setdefault("deprecatedSource", {})
    for key in ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"):
        body.setdefault(key, None)


NEW = Rules(
    collected=False,
    create_on_update=True,
    default=_new_defaults,
    validate=_new_problems,
    validate_update=_new_update_problems,
)
