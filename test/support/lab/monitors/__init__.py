"""Guarantees S1 to S11 and L1 to L5, watched over the record of every run.

Each monitor is told of everything that happened, in order, and judges by the picture of the cluster at that moment;
it never asks the manager. A monitor that cannot fire is none: each has a test that shows it a violation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.monitors.base import History, Monitor, Stage, TargetRead
from lab.monitors.claims import CompletedWhenOff, DeletesEnd, LegalMoves, ReadyOrEndedInTime
from lab.monitors.marks import NothingOutlivesItsOperation, OnlyOurMarksRemoved, UidsCompared
from lab.monitors.power import (
    AllowedTargets,
    BoundedCommands,
    NoPowerOffWhileWanted,
    OneOperationAtATime,
    OwnersMachine,
)
from lab.monitors.whole import ComesToRest, ConvergesAfterFaults, SecretsStaySecret, TargetIsClaims

if TYPE_CHECKING:
    from collections.abc import Sequence

MONITORS: Final[tuple[type[Monitor], ...]] = (
    NoPowerOffWhileWanted,
    OneOperationAtATime,
    CompletedWhenOff,
    UidsCompared,
    LegalMoves,
    BoundedCommands,
    OnlyOurMarksRemoved,
    TargetIsClaims,
    OwnersMachine,
    AllowedTargets,
    SecretsStaySecret,
    ComesToRest,
    ReadyOrEndedInTime,
    DeletesEnd,
    NothingOutlivesItsOperation,
    ConvergesAfterFaults,
)


def check(history: History, kinds: Sequence[type[Monitor]] = MONITORS) -> list[str]:
    """What a run violated, one line each, with the guarantee in front."""
    watching = [kind() for kind in kinds]
    stage = Stage(history)
    found = []
    for entry in history.entries:
        stage.take(entry)
        found += [f"{monitor.guarantee}: {line}" for monitor in watching for line in monitor.see(entry, stage)]
    if history.ended_at is not None:
        found += [f"{monitor.guarantee}: {line}" for monitor in watching for line in monitor.end(stage)]
    return found


__all__ = ["MONITORS", "History", "Monitor", "TargetRead", "check"]
