"""Guarantees about claims: how they move and how they end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lab.monitors.base import Monitor, committed, conditions, instant, marked, phase, wants_machine
from lab.monitors.power import abandoned
from lab.record import Change, Command, Power

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from lab.monitors.base import Stage
    from lab.record import Entry

_MOVES: Final = {
    "": {"booting", "ready", "completed", "failed", "pending"},
    "pending": {"booting", "ready", "completed", "failed"},
    "booting": {"ready", "completed", "failed"},
    "ready": {"completed", "failed"},
    "failed": set(),
    "completed": set(),
}
_SLACK: Final = 5.0
"""Seconds for a busy test machine."""


class CompletedWhenOff(Monitor):
    """S3: a claim completes, and its finalizer goes, only when its machine is off, after the last power-on.

    A machine whose node never came since the last power-on can only be known off by a power-off that it acknowledged:
    then that is enough.
    """

    guarantee = "S3"

    def __init__(self) -> None:
        self._pending_on: set[str] = set()
        self._acknowledged: set[str] = set()

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if isinstance(entry, Command):
            if entry.command == "on" and entry.result == "accepted":
                self._pending_on.add(entry.machine)
                self._acknowledged.discard(entry.machine)
            elif entry.command == "off":
                self._pending_on.discard(entry.machine)
                self._acknowledged |= {entry.machine} if entry.result in {"accepted", "unchanged"} else set()
        elif isinstance(entry, Power):
            if entry.power == "off":
                self._pending_on.discard(entry.machine)
        elif entry.kind == "claim" and committed(entry.before):
            yield from self._judge(entry, stage)

    def _judge(self, entry: Change, stage: Stage) -> Iterator[str]:
        before, after = entry.before, entry.after
        assert before is not None
        completes = after is not None and phase(after) == "completed" and phase(before) != "completed"
        released = after is None or not committed(after)
        if not completes and not released:
            return
        claim = after or before
        slot = claim["spec"]["slotRef"]["name"]
        reason = (claim.get("status") or {}).get("reason")
        handed_over = reason == "Superseded" and any(committed(other) for other in stage.claims(slot))
        body = stage.objects.get(("slot", slot))
        unproven = body is not None and conditions(body).get("PowerUnknown") == "True"
        if handed_over or reason == "EmergencyReclaim" or unproven or abandoned(body, claim):
            return
        never_came = body is not None and ("node", body["spec"]["kubernetesNodeName"]) not in stage.objects
        if never_came and slot in self._acknowledged and stage.power.get(slot) != "up":
            return
        if stage.on(slot) or slot in self._pending_on:
            what = "completed" if completes else "lost its finalizer"
            yield f"claim {entry.name} {what} while machine {slot} is {stage.power.get(slot, 'being switched on')}"


class LegalMoves(Monitor):
    """S5: terminal phases are final, only legal moves occur, and the manager makes them."""

    guarantee = "S5"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if not isinstance(entry, Change) or entry.kind != "claim" or entry.before is None or entry.after is None:
            return
        origin, to = phase(entry.before), phase(entry.after)
        if origin == to:
            return
        if to not in _MOVES.get(origin, set()):
            yield f"claim {entry.name} moved from {origin or 'pending'} to {to or 'nothing'}"
        if not stage.author(entry):
            yield f"somebody else moved claim {entry.name} to {to}"


class ReadyOrEndedInTime(Monitor):
    """L2: every claim is ready or terminal by its deadline plus one resync."""

    guarantee = "L2"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if not isinstance(entry, Change) or entry.kind != "claim" or entry.before is None:
            return
        if self._late(entry.before, entry.at, stage) and entry.after is not None and not wants_boot(entry.after):
            yield f"claim {entry.name} was {phase(entry.before) or 'pending'} past its deadline"

    def end(self, stage: Stage) -> Iterator[str]:
        assert stage.history.ended_at is not None
        for claim in stage.all("claim"):
            if self._late(claim, stage.history.ended_at, stage):
                yield f"claim {claim['metadata']['name']} is {phase(claim) or 'pending'} past its deadline"

    def _late(self, claim: JsonObject, at: datetime, stage: Stage) -> bool:
        deadline = instant(claim["spec"].get("deadlineAt"))
        grace = timedelta(seconds=stage.history.settings.idle_resync + _SLACK)
        return deadline is not None and wants_boot(claim) and at > deadline + grace


def wants_boot(claim: JsonObject) -> bool:
    """Neither ready nor ended nor withdrawn."""
    return wants_machine(claim) and phase(claim) != "ready"


class DeletesEnd(Monitor):
    """L3: a deleted object goes, or says that it needs a human."""

    guarantee = "L3"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        del entry, stage
        return iter(())

    def end(self, stage: Stage) -> Iterator[str]:
        for (kind, name), body in stage.objects.items():
            if kind not in {"claim", "slot", "group", "reclaim", "job", "node"} or not marked(body):
                continue
            if conditions(body).get("NeedsHuman") != "True":
                yield f"{kind} {name} is deleted, stays, and does not say why"
