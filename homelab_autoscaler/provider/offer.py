"""Which slots of a group can be claimed now, and in which order.

Source: model section 9 (IncreaseSize) and 13.10 (a spent streak). Each refusal is a sentence, because it ends up in
the autoscaler's events when a group cannot grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, TypeAlias

from homelab_api.v2alpha1 import PowerState
from homelab_autoscaler.claim import debt
from homelab_autoscaler.claim.attempts import exhausted, exhausted_until
from homelab_autoscaler.phase import power

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from homelab_api.core import CoreNode, Job
    from homelab_api.v2alpha1 import Node, NodeClaim
    from homelab_autoscaler.settings import Settings

_NEVER: Final = datetime.min.replace(tzinfo=UTC)

Gate: TypeAlias = "Callable[[Node, datetime], str | None]"
"""A further condition on offering a slot (a schedule's window, a kubelet that still renews): why not, or None."""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What is known about one slot when it is judged.

    Attributes:
        slot: the slot.
        claims: every claim that names it.
        jobs: its lifecycle Jobs.
        node: its machine's node, None if there is none.
        held: a NodeReclaim names it.
        rivals: other slots that name the same Kubernetes node.
    """

    slot: Node
    claims: Sequence[NodeClaim]
    jobs: Sequence[Job]
    node: CoreNode | None
    held: bool
    rivals: Sequence[str] = ()


def unavailable(facts: SlotFacts, now: datetime, settings: Settings, gates: Sequence[Gate] = ()) -> str | None:
    """Why the slot cannot be claimed now, the plainest reason; None if it is free."""
    return next(_obstacles(facts, now, settings, gates), None)


def _obstacles(facts: SlotFacts, now: datetime, settings: Settings, gates: Sequence[Gate]) -> Iterator[str]:
    """Every reason, lazily: most slots that are not free have a claim, and the costly questions come last."""
    slot = facts.slot
    if slot.marked:
        yield "it is being deleted"
    if facts.held:
        yield "its owner has the machine"
    yield from (f"claim {claim.name} has it" for claim in facts.claims if claim.live)
    if slot.spec.paused:
        yield "it is paused"
    if facts.rivals:
        yield f"it names the same node as slot {', '.join(facts.rivals)}"
    if exhausted(slot.status.last_claim, now, settings):
        yield "its boots have failed too often"
    yield from _machine_obstacles(facts)
    yield from (reason for gate in gates if (reason := gate(slot, now)) is not None)


def _machine_obstacles(facts: SlotFacts) -> Iterator[str]:
    ready = facts.node.condition("Ready") if facts.node else None
    if power(facts.node) is PowerState.ON:
        yield "its machine is still on"
    elif ready is not None and ready.status == "False":
        # Only a kubelet itself says False. Once it is silent, the node lifecycle controller says Unknown.
        yield "its kubelet has not gone silent yet"
    if any(not job.finished for job in facts.jobs):
        yield "a lifecycle Job is under way"
    if any(in_debt(claim, facts) for claim in facts.claims):
        yield "its last shutdown is not proven"


def preference(slot: Node) -> tuple[Decimal, datetime, str]:
    """Sort key: the cheapest machine first, among equals the one that rested longest."""
    last = slot.status.last_claim
    used = (last.finished_at or last.requested_at) if last else None
    return (hourly_rate(slot), used or _NEVER, slot.name)


def hourly_rate(slot: Node) -> Decimal:
    """The slot's `pricing.hourlyRate`; 0 when there is none or it cannot be read (the CRD's pattern forbids that)."""
    return _decimal(slot.spec.pricing.hourly_rate if slot.spec.pricing else "0")


def pod_rate(slot: Node) -> Decimal:
    """The slot's `pricing.podRate`, read like `hourly_rate`."""
    return _decimal(slot.spec.pricing.pod_rate if slot.spec.pricing else "0")


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return value if value.is_finite() and value >= 0 else Decimal(0)


def offered_again_at(slot: Node, now: datetime, settings: Settings) -> datetime | None:
    """When a spent streak is over by itself; None if there is none or only a person ends it."""
    last = slot.status.last_claim
    return exhausted_until(last, settings) if exhausted(last, now, settings) else None


def in_debt(claim: NodeClaim, facts: SlotFacts) -> bool:
    """Whether the claim may have switched its machine on and nothing has proven that it is off again."""
    ready = facts.node.condition("Ready") if facts.node else None
    silent = ready is not None and ready.status == "Unknown" and ready.reason == "NodeStatusUnknown"
    return debt.in_debt(claim, facts.jobs, gone_silent=silent)
