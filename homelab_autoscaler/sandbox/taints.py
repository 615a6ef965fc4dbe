"""Taints and tolerations as the scheduler and the eviction of NoExecute read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
PRESSURES: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}


def taints_of(node: JsonObject) -> list[JsonObject]:
    """spec.taints of a node."""
    found: list[JsonObject] = objects.spec(node).get("taints") or []
    return found


def tolerations_of(pod: JsonObject) -> list[JsonObject]:
    """spec.tolerations of a pod."""
    found: list[JsonObject] = objects.spec(pod).get("tolerations") or []
    return found


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Whether one toleration covers one taint: an empty key with Exists covers all, an empty effect each effect."""
    effect = toleration.get("effect")
    if effect and effect != taint.get("effect"):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")
        case _:
            return False


def untolerated(taints: Iterable[JsonObject], tolerations: list[JsonObject], effects: set[str]) -> JsonObject | None:
    """The first taint with one of these effects that no toleration covers."""
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(item, taint) for item in tolerations):
            return taint
    return None


def allowed_seconds(taints: list[JsonObject], tolerations: list[JsonObject]) -> float | None:
    """How long a pod may stay on a node with these NoExecute taints.

    Returns:
        None for as long as it likes, 0 if some taint is not tolerated at all, else the shortest tolerationSeconds of
        the tolerations that are used.
    """
    shortest: float | None = None
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        covering = [item for item in tolerations if tolerates(item, taint)]
        if not covering:
            return 0.0
        for item in covering:
            seconds = item.get("tolerationSeconds")
            if seconds is not None:
                bounded = max(float(seconds), 0.0)
                shortest = bounded if shortest is None else min(shortest, bounded)
    return shortest
