"""One group as the autoscaler is told about it: sizes, instances and free slots, from one state of the index.

Source: model section 9; the contract's "target size, instances, registered nodes". Everything is derived from claims,
nothing from reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from homelab_api.v2alpha1 import STREAK_REASONS, ClaimPhase, Reason
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.phase import owning_claim
from homelab_autoscaler.provider.index import Key, key_of
from homelab_autoscaler.provider.offer import SlotFacts, offered_again_at, preference, unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from homelab_api.v2alpha1 import Group, Node, NodeClaim
    from homelab_autoscaler.provider.index import PoolIndex
    from homelab_autoscaler.provider.offer import Gate
    from homelab_autoscaler.settings import Settings

from homelab_api import names

BOOT_FAILURES: Final = STREAK_REASONS | {Reason.ATTEMPT_LIMIT_EXCEEDED, Reason.INVALID_SLOT}
"""Ends that mean "this machine did not come up": the autoscaler is told, and tries elsewhere."""


class State(IntEnum):
    """Instance states, numbered as on the wire."""

    RUNNING = 1
    CREATING = 2
    DELETING = 3


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine as the autoscaler sees it.

    Attributes:
        id: the providerID of its node, or the claim's placeholder.
        state: running once the claim is ready; deleting once it is marked.
        claim: the claim that answers with this id.
        slot: the claim's slot.
        error: set for a boot that failed: code and text.
    """

    id: str
    state: State
    claim: NodeClaim
    slot: Node
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """The answers about one group.

    Attributes:
        group: the Group.
        id: how the autoscaler names it.
        revision: of the index, for which this holds.
        slots: the group's slots, by name.
        owners: the claim that speaks for a slot, by slot name.
        target: machines that claims want; never more than the group has slots (guarantee S8).
        instances: live claims and failed boots that were not acknowledged.
        by_id: the instances by id.
        free: slots that can be claimed now, the preferred one first.
        refusals: why each other slot without a wanting claim cannot be claimed now, by slot name.
        valid_until: when `free` may change without any event; None if never.
    """

    group: Group
    id: str
    revision: int
    slots: Sequence[Node]
    owners: Mapping[str, NodeClaim]
    target: int
    instances: Sequence[Instance]
    by_id: Mapping[str, Instance]
    free: Sequence[Node]
    refusals: Mapping[str, str]
    valid_until: datetime | None

    @property
    def key(self) -> Key:
        """Namespace and name of the group."""
        return key_of(self.group)

    @property
    def max_size(self) -> int:
        """What the group can really reach now: never more than the machines that could serve."""
        reachable = self.target + (0 if self.group.marked else len(self.free))
        limit = self.group.spec.max_size
        return reachable if limit is None else max(min(limit, reachable), 0)

    @property
    def min_size(self) -> int:
        """`minSize`, but never above what can be reached: the two must not contradict each other."""
        return max(0, min(self.group.spec.min_size, self.max_size))

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{len(self.slots)} slots, {self.target} wanted, {len(self.free)} free"
            + (f"; not free: {self.why_not()}" if self.refusals else "")
            + ("; being deleted" if self.group.marked else "")
        )

    def why_not(self, limit: int = 5) -> str:
        """Why slots cannot be claimed, the first few by name."""
        reasons = [f"{slot}: {reason}" for slot, reason in self.refusals.items()]
        more = len(reasons) - limit
        return "; ".join(reasons[:limit]) + (f"; and {more} more" if more > 0 else "")


def build_view(
    index: PoolIndex, group: Group, group_id: str, *, now: datetime, settings: Settings, gates: Sequence[Gate] = ()
) -> GroupView:
    """Derive one group's view. The caller holds the index's lock. Costs time with the group's own slots only."""
    slots = index.slots_of(key_of(group))
    owners: dict[str, NodeClaim] = {}
    refusals: dict[str, str] = {}
    free: list[Node] = []
    changes: list[datetime] = []
    wanted: list[tuple[Node, NodeClaim]] = []
    failed: list[tuple[Node, NodeClaim]] = []
    for slot in slots:
        claims = index.claims_of(key_of(slot))
        owner = owning_claim(claims)
        if owner is not None:
            owners[slot.name] = owner
        wanted.extend((slot, claim) for claim in claims if claim.live)
        failed.extend((slot, claim) for claim in claims if boot_failed(claim))
        facts = slot_facts(index, slot, claims)
        reason = unavailable(facts, now, settings, gates)
        if reason is None:
            free.append(slot)
        elif not any(claim.wants_machine for claim in claims):
            refusals[slot.name] = reason
            again = offered_again_at(slot, now, settings)
            if again is not None:
                changes.append(again)
    instances: dict[str, Instance] = {}
    for slot, claim in wanted:
        instance_id = _instance_id(index, slot, claim)
        if instance_id in instances:  # two slots that name one node, or two claims of one slot
            instance_id = placeholder_id(claim)
        instances[instance_id] = Instance(instance_id, _state(claim), claim, slot)
    for slot, claim in failed:
        instance_id = placeholder_id(claim)
        if instance_id not in instances:
            error = (str(claim.status.reason), _failure_text(slot, claim))
            instances[instance_id] = Instance(instance_id, State.CREATING, claim, slot, error)
    return GroupView(
        group=group,
        id=group_id,
        revision=index.revision(key_of(group)),
        slots=slots,
        owners=owners,
        # By slot: of two claims that name one machine, one is about to be superseded.
        target=len({claim.slot_name for _, claim in wanted if claim.wants_machine}),
        instances=list(instances.values()),
        by_id=instances,
        free=sorted(free, key=preference),
        refusals=refusals,
        valid_until=min(changes, default=None),
    )


def slot_facts(index: PoolIndex, slot: Node, claims: Sequence[NodeClaim]) -> SlotFacts:
    """Everything that decides whether the slot is free."""
    key = key_of(slot)
    node_name = slot.spec.kubernetes_node_name
    rivals = [other.name for other in index.slots.by("node", node_name) if key_of(other) != key]
    return SlotFacts(slot, claims, index.jobs_of(key), index.node(node_name), index.held(key), rivals)


def boot_failed(claim: NodeClaim) -> bool:
    """Whether the claim's boot failed and the autoscaler has not yet taken note of it."""
    return (
        claim.phase is ClaimPhase.FAILED
        and claim.status.reason in BOOT_FAILURES
        and names.ANNOTATION_ACKNOWLEDGED not in claim.metadata.annotations
    )


def _state(claim: NodeClaim) -> State:
    if claim.marked:
        return State.DELETING
    return State.RUNNING if claim.phase is ClaimPhase.READY else State.CREATING


def _instance_id(index: PoolIndex, slot: Node, claim: NodeClaim) -> str:
    """The node's providerID once it has one: the autoscaler compares the two letter by letter."""
    node = index.node(claim.status.node_name or slot.spec.kubernetes_node_name)
    return node.spec.provider_id if node is not None and node.spec.provider_id else placeholder_id(claim)


def _failure_text(slot: Node, claim: NodeClaim) -> str:
    said = f": {claim.status.message}" if claim.status.message else ""
    return f"slot {slot.name}, claim {claim.name}: {claim.status.reason}{said}"
