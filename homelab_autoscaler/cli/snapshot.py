"""One look at a pool: the objects that a person wants to see together, and what they say about each slot.

Everything here is for people. Texts are made from reports (status, conditions, Jobs, pods) and nothing acts on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from homelab_api import names
from homelab_api.core import CoreNode, Job, Pod
from homelab_api.meta import KubeObject
from homelab_api.v2alpha1 import Call, ClaimPhase, Group, Node, NodeClaim, SlotPhase
from homelab_autoscaler.phase import owning_claim, unusable
from homelab_autoscaler.runtime import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from homelab_autoscaler.runtime import Client

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Objects as of about one moment; the lists are not from one resourceVersion, so that they may disagree a little.

    Attributes:
        pods: of every namespace, since any may run on a machine.
    """

    groups: tuple[Group, ...] = ()
    slots: tuple[Node, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    nodes: tuple[CoreNode, ...] = ()
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotView:
    """A row of the table.

    Attributes:
        claim: name of the live claim that owns the slot, "" if there is none.
        since: when the phase last changed, None if never reported.
        why: the reason for the present phase, or what it waits for, in words.
    """

    slot: str
    group: str
    phase: str
    power: str
    claim: str
    since: datetime | None
    why: str


def take(client: Client, namespace: str | None) -> Snapshot:
    """Read everything now, uncached.

    Args:
        client: to read with.
        namespace: the pools'; None for all.

    Raises:
        ApiError: the server refused or did not answer.
    """
    return Snapshot(
        groups=tuple(client.list(Group, namespace).items),
        slots=tuple(client.list(Node, namespace).items),
        claims=tuple(client.list(NodeClaim, namespace).items),
        nodes=tuple(client.list(CoreNode).items),
        jobs=tuple(client.list(Job, namespace).items),
        pods=tuple(client.list(Pod).items),
    )


def take_what_is_left(client: Client, namespace: str | None) -> Snapshot:
    """What can still be read of a pool that is being taken away: a kind that the server does not know is empty.

    Pods are not read.

    Raises:
        ApiError: the server refused or did not answer.
    """

    def left(kind: type[T]) -> tuple[T, ...]:
        try:
            return tuple(client.list(kind, namespace).items)
        except NotFoundError:
            return ()

    return Snapshot(
        groups=left(Group),
        slots=left(Node),
        claims=left(NodeClaim),
        nodes=tuple(client.list(CoreNode).items),
        jobs=left(Job),
    )


def slot_views(snapshot: Snapshot) -> list[SlotView]:
    """One row per slot, by group and name."""
    ordered = sorted(snapshot.slots, key=lambda slot: (slot.namespace, slot.group, slot.name))
    return [_view(slot, snapshot) for slot in ordered]


def live_claim(slot: Node, claims: Iterable[NodeClaim]) -> NodeClaim | None:
    """The live claim that owns the slot, or None."""
    own = [claim for claim in claims if claim.slot_name == slot.name and claim.namespace == slot.namespace]
    owner = owning_claim(own)
    return owner if owner is not None and owner.live else None


def _view(slot: Node, snapshot: Snapshot) -> SlotView:
    claim = live_claim(slot, snapshot.claims)
    status = slot.status
    return SlotView(
        slot=slot.name,
        group=slot.group,
        phase=status.phase or "",
        power=status.power_state or "",
        claim=claim.name if claim else "",
        since=status.last_transition_time,
        why=_why(slot, claim, snapshot),
    )


def _why(slot: Node, claim: NodeClaim | None, snapshot: Snapshot) -> str:  # noqa: PLR0911 - one per phase
    trouble = _trouble(slot, claim)
    if trouble:
        return trouble
    node = next((node for node in snapshot.nodes if node.name == _node_name(slot, claim)), None)
    jobs = [job for job in snapshot.jobs if _is_of(job, slot) and not job.finished]
    match slot.status.phase:
        case None:
            return "not looked at yet: does a manager run?"
        case SlotPhase.OFF:
            return _why_off(slot)
        case SlotPhase.PENDING:
            return f"asked for by {_asker(claim)}"
        case SlotPhase.BOOTING:
            return _why_booting(slot, node, jobs, snapshot)
        case SlotPhase.READY:
            return f"asked for by {_asker(claim)}, {_count(_guests(node, snapshot), 'pod')}"
        case SlotPhase.DRAINING:
            return _why_draining(node, jobs, snapshot)
        case SlotPhase.RECLAIMED:
            return "in its owner's hands"


_SERIOUS = ("UnknownGroup", "InvalidSlot", "NeedsHuman", "PowerUnknown", "PowerFlapping", "Exhausted", "Protected")


def _trouble(slot: Node, claim: NodeClaim | None) -> str:
    conditions = [*slot.status.conditions, *(claim.status.conditions if claim else ())]
    for kind in _SERIOUS:
        found = next((entry for entry in conditions if entry.type == kind and entry.status == "True"), None)
        if found is not None:
            return f"{kind}: {found.message or found.reason}"
    return ""


def _why_off(slot: Node) -> str:
    if slot.spec.paused:
        return "paused: no claims are offered"
    last = slot.status.last_claim
    if last is None:
        return "never used"
    return f"last claim {last.phase}{f' ({last.reason})' if last.reason else ''}"


def _why_booting(slot: Node, node: CoreNode | None, jobs: list[Job], snapshot: Snapshot) -> str:
    if jobs:
        return f"{_kind(jobs[0])} Job {'waits for its release' if jobs[0].suspended else 'runs'}"
    if node is not None and any(taint.key == names.TAINT_TO_BE_DELETED for taint in node.spec.taints):
        return "the autoscaler empties it and is about to withdraw"
    group = next((group for group in snapshot.groups if group.name == slot.group), None)
    taints = group.spec.node_readiness_taints if group else ()
    return unusable(node, taints) or "the node is usable; the claim is about to be ready"


def _why_draining(node: CoreNode | None, jobs: list[Job], snapshot: Snapshot) -> str:
    if jobs:
        return f"{_kind(jobs[0])} Job {'waits for its release' if jobs[0].suspended else 'runs'}"
    guests = _guests(node, snapshot)
    if guests:
        return f"nobody wants it; {_count(guests, 'pod')} to leave"
    return "nobody wants it; waits until the machine is surely off"


def _asker(claim: NodeClaim | None) -> str:
    if claim is None:
        return "nobody any more"
    return {
        Call.INCREASE_SIZE: "the autoscaler",
        Call.MANUAL: "hand",
        Call.SCHEDULE: "a schedule",
        Call.ADOPT: "adoption (it was on)",
    }[claim.spec.call]


def _kind(job: Job) -> str:
    return job.metadata.labels.get(names.LABEL_JOB_TYPE, "lifecycle")


def _is_of(job: Job, slot: Node) -> bool:
    return any(owner.uid == slot.uid for owner in job.metadata.owner_references)


def _node_name(slot: Node, claim: NodeClaim | None) -> str:
    return (claim.status.node_name if claim else "") or slot.spec.kubernetes_node_name


def _guests(node: CoreNode | None, snapshot: Snapshot) -> int:
    """Pods on the node that are not over yet; pods of DaemonSets belong to the machine and do not count."""
    if node is None:
        return 0
    return sum(
        pod.spec.node_name == node.name
        and pod.status.phase not in ("Succeeded", "Failed")
        and all(owner.kind != "DaemonSet" for owner in pod.metadata.owner_references)
        for pod in snapshot.pods
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts(snapshot: Snapshot) -> dict[ClaimPhase, int]:
    """How many claims are in each phase."""
    return {phase: sum(claim.phase is phase for claim in snapshot.claims) for phase in ClaimPhase}
