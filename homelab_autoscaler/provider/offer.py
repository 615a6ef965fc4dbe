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
    from collections.abc import Callable, Sequence

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
    """Why the slot cannot be claimed now; None if it is free."""
    slot = facts.slot
    live = next((claim for claim in facts.claims if claim.live), None)
    checks: tuple[tuple[bool, str], ...] = (
        (slot.marked, "it is being deleted"),
        (facts.held, "its owner has the machine"),
        (slot.spec.paused, "it is paused"),
        (bool(facts.rivals), f"it names the same node as slot {', '.join(facts.rivals)}"),
        (live is not None, f"claim {live.name if live else ''} has it"),
        (exhausted(slot.status.last_claim, now, settings), "its boots have failed too often"),
        (power(facts.node) is PowerState.ON, "its machine is still on"),
        (any(not job.finished for job in facts.jobs), "a lifecycle Job is under way"),
        (any(in_debt(claim, facts) for claim in facts.claims), "its last shutdown is not proven"),
    )
    for applies, reason in checks:
        if applies:
            return reason
    said = (gate(slot, now) for gate in gates)
    return next((reason for reason in said if reason is not None), None)


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
