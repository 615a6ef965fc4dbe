"""Rules of Nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import choice_problems, key_problems, value_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, forbidden_field

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _prepare(body: JsonObject) -> None:
    """Admission taints every new Node, so that nothing is scheduled to it before somebody has looked at it."""
    taints = body.setdefault("spec", {}).setdefault("taints", [])
    if not any(item.get("key") == NOT_READY["key"] and item.get("effect") == "NoSchedule" for item in taints):
        taints.append(dict(NOT_READY))


def _default(body: JsonObject) -> None:
    status = body.setdefault("status", {})
    # A node that tells its capacity only can give all of it.
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _problems(body: JsonObject) -> list[Cause]:
    problems = []
    seen = []
    for index, taint in enumerate((body.get("spec") or {}).get("taints") or []):
        # A real server says metadata.taints, and says it twice.
        where = f"metadata.taints[{index}]"
        found = key_problems(f"{where}.key", taint.get("key", ""))
        found += value_problems(f"{where}.value", taint.get("value", ""))
        found += choice_problems(f"{where}.effect", taint.get("effect"), _EFFECTS)
        problems += [*found, *found]
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            shown = (
                f'{{"Key":"{taint.get("key", "")}","Value":"{taint.get("value", "")}",'
                f'"Effect":"{taint.get("effect", "")}","TimeAdded":null}}'
            )
            text = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            problems += [Cause("FieldValueDuplicate", text, where)] * 2
        seen.append(identity)
    return problems


def _update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    before = (old.get("spec") or {}).get("providerID")
    if before and (body.get("spec") or {}).get("providerID") != before:
        return [forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')]
    return []


NODE = Rules(
    keeps_status_on_create=True,
    default=_default,
    prepare_create=_prepare,
    validate=_problems,
    validate_update=_update_problems,
)
