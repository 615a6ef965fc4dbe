"""What makes a slot unfit for lifecycle operations, and what its conditions say about it.

The same rules stand in admission; here they hold when admission could not see (a webhook that was down, objects
applied in another order). Source: model section 3 ("No lifecycle operation for a slot …"), 13.17.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.conditions import condition
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import PowerState, SlotCondition
from homelab_autoscaler.claim.attempts import exhausted, exhausted_until
from homelab_autoscaler.claim.debt import job_type
from homelab_autoscaler.lifecycle.scope import ended_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import Condition
    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.pod_policy import PodPolicy
    from homelab_autoscaler.settings import Settings

_NEVER_STORED: Final = datetime.min.replace(tzinfo=UTC)


def problem(scope: SlotScope, namesakes: Iterable[Node], policy: PodPolicy) -> Condition | None:
    """Why no lifecycle operation may run for the slot; None if all is well.

    Args:
        scope: the slot.
        namesakes: all slots that name the same Kubernetes node.
        policy: what pods of slots may name.
    """
    slot = scope.slot
    if not slot.group:
        return condition(
            SlotCondition.UNKNOWN_GROUP,
            True,
            "NoGroupLabel",
            'label "infra.homecluster.dev/group" is not set: set it to the name of a Group in this namespace',
        )
    if scope.group is None:
        return condition(
            SlotCondition.UNKNOWN_GROUP,
            True,
            "GroupNotFound",
            f'label "infra.homecluster.dev/group" names "{slot.group}", and namespace "{slot.namespace}" has no such '
            "Group: create it, or correct the label",
        )
    first = rightful(slot, namesakes)
    if first is not None:
        return condition(
            SlotCondition.INVALID_SLOT,
            True,
            "NodeNameTaken",
            f'spec.kubernetesNodeName: "{slot.spec.kubernetes_node_name}" belongs to slot '
            f"{first.namespace}/{first.name}, which is older: one slot per node, change one of the two",
        )
    violation = next(policy.violations(slot), None)
    if violation is not None:
        return condition(SlotCondition.INVALID_SLOT, True, "PodNotAllowed", f"{violation[0]}: {violation[1]}")
    return None


def rightful(slot: Node, namesakes: Iterable[Node]) -> Node | None:
    """The older slot that names the same Kubernetes node, to which its machine belongs; None if it is this one's."""
    older = [other for other in namesakes if other.uid != slot.uid and _seniority(other) < _seniority(slot)]
    return min(older, key=_seniority, default=None)


def _seniority(slot: Node) -> tuple[datetime, str]:
    return (slot.metadata.creation_timestamp or _NEVER_STORED, slot.uid)


def autoscaler_marker(scope: SlotScope) -> Condition:
    """Whether the autoscaler counts the machine: SM's marker condition."""
    owner = scope.owner
    if owner is not None and owner.wants_machine:
        return condition(SlotCondition.AUTOSCALER, True, "InTarget", f"claim {owner.name} counts in the target")
    if owner is not None and owner.live:
        return condition(SlotCondition.AUTOSCALER, False, "Deleting", f"claim {owner.name} is being reversed")
    return condition(SlotCondition.AUTOSCALER, False, "NotInTarget", "no live claim names the slot")


def exhaustion(scope: SlotScope, settings: Settings) -> Condition | None:
    """Whether the slot's boots failed so often in a row that it is not offered."""
    last = scope.slot.status.last_claim
    if last is None or not exhausted(last, scope.now, settings):
        return None
    until = exhausted_until(last, settings)
    when = f"offered again at {format_time(until)}, or " if until else ""
    return condition(
        SlotCondition.EXHAUSTED,
        True,
        "BootsFailed",
        f"{last.attempt} boots failed in a row, the last with {last.reason}: {when}claim it by hand to try at once",
    )


def observation(scope: SlotScope) -> list[Condition]:
    """What the node says: Observed and Usable.

    Neither repeats why a node is not Ready: the node tells that itself, and each change of its mind is a write.
    """
    if scope.node is None:
        observed = condition(SlotCondition.OBSERVED, False, "NodeNotFound", f"no node {scope.node_name} is registered")
    else:
        observed = condition(SlotCondition.OBSERVED, True, "NodeFound", f"node {scope.node_name} is registered")
    if scope.unusable is None:
        usable = condition(SlotCondition.USABLE, True, "NodeUsable", "")
    elif scope.power is PowerState.OFF:
        usable = condition(SlotCondition.USABLE, False, "MachineOff", f"no node {scope.node_name} that is Ready")
    else:
        usable = condition(SlotCondition.USABLE, False, "NodeUnusable", scope.unusable)
    return [observed, usable]


def kubelet_alive(scope: SlotScope) -> Condition | None:
    """A machine that looks off while its kubelet renews its Lease: it is not off."""
    if not scope.law_input().kubelet_alive:
        return None
    return condition(
        SlotCondition.KUBELET_ALIVE,
        True,
        "LeaseRenewed",
        f"node {scope.node_name} is not Ready, but its kubelet renews its Lease: the machine is on",
    )


def abandoned(slot: Node) -> bool:
    """Whether its owner gave the slot's machine up: the annotation carries the slot's own uid."""
    return slot.metadata.annotations.get(names.ANNOTATION_ABANDON) == slot.uid


def in_doubt(slot: Node) -> datetime | None:
    """Since when it is not known whether the machine is on; None if that is known."""
    found = next((entry for entry in slot.status.conditions if entry.type == SlotCondition.POWER_UNKNOWN), None)
    return found.last_transition_time if found and found.status == "True" else None


def power_known(scope: SlotScope) -> Condition | None:
    """What ends a doubt about power without the machine being seen on: a shutdown that worked, or its owner."""
    since = in_doubt(scope.slot)
    if since is None:
        return None
    if abandoned(scope.slot):
        return condition(SlotCondition.POWER_UNKNOWN, False, "Abandoned", "its owner gave up knowing")
    ends = [
        end
        for job in scope.jobs
        if job_type(job) == names.JOB_TYPE_SHUTDOWN and job.succeeded and (end := ended_at(job)) is not None
    ]
    if any(end >= since for end in ends):
        return condition(SlotCondition.POWER_UNKNOWN, False, "ShutdownSucceeded", "a shutdown Job succeeded since")
    return None
