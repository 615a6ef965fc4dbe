"""Guarantees about the whole: the target size, secrets, coming to rest."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lab.monitors.base import Monitor, wants_machine
from lab.record import Change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lab.monitors.base import Stage
    from lab.record import Entry

_VIEW_AGE: Final = timedelta(seconds=5)
"""How old a cache's truth may be on a busy test machine while things still move."""
_RESTLESS: Final = 60
"""Writes of managers in a row, without anything else happening, that are no reaction any more."""


class TargetIsClaims(Monitor):
    """S8: the target size equals the number of claims that want a machine, and never exceeds the slots."""

    guarantee = "S8"

    def __init__(self) -> None:
        self._counts: list[tuple[datetime, int, int]] = []

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if isinstance(entry, Change) and entry.kind in {"claim", "slot"}:
            wanted = {claim["spec"]["slotRef"]["name"] for claim in stage.all("claim") if wants_machine(claim)}
            slots = {slot["metadata"]["name"] for slot in stage.all("slot")}
            self._counts.append((entry.at, len(wanted & slots), len(slots)))
        if isinstance(entry, Change) and entry.kind == "group" and entry.after is not None:
            told = (entry.after.get("status") or {}).get("target") or 0
            most = max((slots for _, _, slots in _since(self._counts, entry.at - _VIEW_AGE)), default=0)
            if told > most:
                yield f"group {entry.name} reports target {told} of {most} slots"

    def end(self, stage: Stage) -> Iterator[str]:
        for read in stage.history.targets:
            known_by = read.at + stage.history.late
            past = [(at, count, slots) for at, count, slots in self._counts if at <= known_by] or [(read.at, 0, 0)]
            # What was written at the very instant of the answer came before or after it.
            recent = _since(past, read.at - (timedelta(microseconds=1) if read.settled else _VIEW_AGE))
            if read.target not in {count for _, count, _ in recent}:
                yield f"target {read.target} was answered, {past[-1][1]} machines are wanted"
            if read.target > max(slots for _, _, slots in recent):
                yield f"target {read.target} was answered for {past[-1][2]} slots"


def _since(counts: list[tuple[datetime, int, int]], since: datetime) -> list[tuple[datetime, int, int]]:
    """What held at that instant, and everything later."""
    earlier = [entry for entry in counts if entry[0] <= since][-1:]
    return [*(earlier or [(since, 0, 0)]), *(entry for entry in counts if entry[0] > since)]


class SecretsStaySecret(Monitor):
    """S11: a secret's content appears in no status, event, Job, log line or request."""

    guarantee = "S11"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        canary = stage.history.canary
        if canary and isinstance(entry, Change) and canary in json.dumps(entry.after):
            yield f"the secret is in {entry.kind} {entry.name}"

    def end(self, stage: Stage) -> Iterator[str]:
        canary = stage.history.canary
        if canary:
            yield from (f"the secret was logged: {line[:80]}" for line in stage.history.logs if canary in line)
            yield from (
                f"the secret was sent: {write}" for write in stage.history.wire if canary.encode() in write.body
            )


class ComesToRest(Monitor):
    """L1: managers react, and then stop writing."""

    guarantee = "L1"

    def __init__(self) -> None:
        self._in_a_row = 0

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if isinstance(entry, Change) and entry.kind in {"lease", "event"}:
            return
        ours = isinstance(entry, Change) and bool(stage.author(entry))
        self._in_a_row = self._in_a_row + 1 if ours else 0
        if self._in_a_row == _RESTLESS:
            yield f"{_RESTLESS} writes in a row though nothing happened"

    def end(self, stage: Stage) -> Iterator[str]:
        ended = stage.history.ended_at
        assert ended is not None
        late = [
            entry
            for entry in stage.history.entries
            if isinstance(entry, Change)
            and entry.at > ended
            and stage.author(entry)
            and entry.kind not in {"lease", "event"}
        ]
        if late:
            yield f"{late[0].kind} {late[0].name} was written after everything was over"


class ConvergesAfterFaults(Monitor):
    """L5: after the fault the operator comes to rest within a stated time."""

    guarantee = "L5"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        del entry, stage
        return iter(())

    def end(self, stage: Stage) -> Iterator[str]:
        struck, ended = stage.history.struck_at, stage.history.ended_at
        if struck is not None and ended is not None and ended - struck > stage.history.converged_within:
            yield f"{(ended - struck).total_seconds():.0f} s from the fault to the end"
