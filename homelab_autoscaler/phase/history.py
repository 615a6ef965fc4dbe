"""The report's own history, and its only writer.

A slot's phase, the claim shown beside it, `previousPhase`, `lastTransitionTime`, the display ring and the ledger of
boots are written through this module alone, by the passes that own a phase write and by the pass that the window's
end schedules. Nothing reads any of it to decide (state management, "The observability fields").

The ring is bounded for display (rows and window, in the order of the writes). Counts come from the ledger and never
through the ring: a bound that a count is read through would be a bound on the count.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from homelab_api.meta import format_time
from homelab_api.v2alpha1 import SlotPhase, SlotStatus, SlotTransition

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.phase.input import ClaimFact

_BOOTS_FROM: Final = frozenset({SlotPhase.OFF, SlotPhase.PENDING})
_BOOTS_TO: Final = frozenset({SlotPhase.BOOTING, SlotPhase.READY})


class HistoryLimits(Protocol):
    """The three numbers of the history; the settings have them."""

    @property
    def history_ring(self) -> int:
        """Rows of the display ring."""

    @property
    def history_window(self) -> float:
        """Seconds that ring and ledger look back."""

    @property
    def history_ledger(self) -> int:
        """Timestamps in the ledger."""


def record(  # noqa: PLR0917 - the order of a sentence: this status became that phase at, by, because
    status: SlotStatus,
    phase: SlotPhase,
    at: datetime,
    claim: ClaimFact | None,
    reason: str,
    limits: HistoryLimits,
) -> JsonObject:
    """The fields of a status merge patch that record the phase and the claim beside it.

    An activation is counted when a slot that was off or pending is booting, or ready already because nobody reported
    in between (a manager that was down): that is a boot of its machine, while a ready machine that is cordoned, or a
    draining one that is wanted again, was never off.

    Args:
        status: the slot's status as it was read; the compare-and-set that guards it is the caller's.
        phase: the phase that the law derives now.
        at: the instant of the change.
        claim: the owning claim of the pass, None without one.
        reason: why, in a word, for the ring; "" if there is nothing to say.
        limits: bounds of ring and ledger.

    Returns:
        Fields under `status` in wire names; empty when nothing changes, and then nothing is to be written.
    """
    fields: JsonObject = {}
    shown = claim.name if claim and claim.phase.live else ""
    if shown != status.claim:
        fields["claim"] = shown or None
    if phase is status.phase:
        return fields
    since = at - timedelta(seconds=limits.history_window)
    entry = SlotTransition(at=at, from_phase=status.phase, to=phase, claim=claim.name if claim else "", reason=reason)
    ring = [row for row in status.recent_transitions if row.at > since]
    fields |= {
        "phase": phase.value,
        "previousPhase": status.phase.value if status.phase else None,
        "lastTransitionTime": format_time(at),
        "recentTransitions": [row.to_json() for row in [*ring, entry][-limits.history_ring :]],
    }
    ledger = [instant for instant in status.recent_activations if instant > since]
    if phase in _BOOTS_TO and status.phase in _BOOTS_FROM:
        ledger.append(at)
        fields["activationsTotal"] = status.activations_total + 1
    return fields | _ledger_fields(status, ledger[-limits.history_ledger :])


def expire(status: SlotStatus, now: datetime, limits: HistoryLimits) -> JsonObject:
    """The fields of a status merge patch that drop what left the window; empty when nothing did."""
    since = now - timedelta(seconds=limits.history_window)
    fields: JsonObject = {}
    ring = [row for row in status.recent_transitions if row.at > since]
    if len(ring) < len(status.recent_transitions):
        fields["recentTransitions"] = [row.to_json() for row in ring]
    return fields | _ledger_fields(status, [instant for instant in status.recent_activations if instant > since])


def next_expiry(status: SlotStatus, limits: HistoryLimits) -> datetime | None:
    """When the first row of ring or ledger leaves the window: `expire` has something to do from then on."""
    instants = [row.at for row in status.recent_transitions] + status.recent_activations
    return min(instants) + timedelta(seconds=limits.history_window) if instants else None


def _ledger_fields(status: SlotStatus, ledger: list[datetime]) -> JsonObject:
    fields: JsonObject = {}
    if ledger != status.recent_activations:
        fields["recentActivations"] = [format_time(instant) for instant in ledger]
    if len(ledger) != status.activations_last24_h:
        fields["activationsLast24H"] = len(ledger)
    return fields
