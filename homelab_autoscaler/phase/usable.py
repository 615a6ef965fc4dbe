"""What a node says about its machine: is it on, and can it take the pool's work.

One predicate for the readiness gate, the claim and the report (state management, "Ready means the machine can take
the pool's work"), so that the three cannot drift apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.conditions import readable
from homelab_api.v2alpha1 import PowerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.core import CoreNode, Taint


def power(node: CoreNode | None) -> PowerState:
    """Observed power: on iff the node's Ready condition is True. A node that is not there is off."""
    ready = node.condition("Ready") if node else None
    return PowerState.ON if ready and ready.status == "True" else PowerState.OFF


def cordon_is_ours(node: CoreNode) -> bool:
    """Whether the node is cordoned and the cordon carries our mark; only then may we uncordon."""
    return node.spec.unschedulable and names.ANNOTATION_CORDONED_BY in node.metadata.annotations


def unusable(
    node: CoreNode | None, readiness_taints: Sequence[Taint], *, ignore_own_cordon: bool = False
) -> str | None:
    """Why the node cannot take the pool's work.

    Args:
        node: the machine's node, None if it is not registered.
        readiness_taints: the group's `nodeReadinessTaints`. Compared by key and effect, as Kubernetes does.
        ignore_own_cordon: for the readiness gate, which lifts our own cordon itself and then asks again. A cordon
            that is not ours keeps the node unusable all the same.

    Returns:
        None if it is usable, else the reason in words, for conditions, events and `explain`.
    """
    if node is None:
        return "the node is not registered"
    ready = node.condition("Ready")
    if ready is None or ready.status != "True":
        said = f"Ready is {ready.status}" if ready else "it reports no Ready condition"
        why = readable(ready.reason, 128) if ready else ""
        return f"node {node.name} is not ready: {said}{f' ({why})' if why else ''}"
    waits_for = {(taint.key, taint.effect) for taint in readiness_taints}
    carried = [f"{taint.key}:{taint.effect}" for taint in node.spec.taints if (taint.key, taint.effect) in waits_for]
    if carried:
        return f"node {node.name} still carries the readiness taint {', '.join(carried)}"
    if node.spec.unschedulable and not (ignore_own_cordon and cordon_is_ours(node)):
        whose = "by this operator" if cordon_is_ours(node) else "by someone else"
        return f"node {node.name} is cordoned {whose}"
    return None


def usable(node: CoreNode | None, readiness_taints: Sequence[Taint]) -> bool:
    """Whether the node exists, is Ready, carries none of the readiness taints, and is not cordoned."""
    return unusable(node, readiness_taints) is None
