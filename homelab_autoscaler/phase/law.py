"""The input law: one table from an input to the report, the state of the machine, and what fires.

`row`, `state`, `derive` and `fires` read the same rows, and so does the generator of the documentation; they cannot
disagree. Everything is pure: the same input gives the same answer, at any time, in any process. That is what the
second read before a release stands on: it asks the same question again with fresh facts.

Source: state management, "The input law"; model section 3 (rows 0-12 and the three footnotes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from homelab_api.v2alpha1 import PowerState, SlotPhase
from homelab_autoscaler.phase.input import ClaimKind, Input


class MachineState(StrEnum):
    """State in which the node state machine starts a pass."""

    SHUTDOWN = "shutdown"
    STARTINGUP = "startingup"
    READY = "ready"
    SHUTTINGDOWN = "shuttingdown"


class Operation(StrEnum):
    """A lifecycle operation: one power command to the machine."""

    START_NODE = "StartNode"
    SHUTDOWN_NODE = "ShutdownNode"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the law.

    Attributes:
        number: its number in the model and in the documentation.
        held: whether a NodeReclaim names the slot.
        claims: kinds of the owning claim that it matches.
        power: the power that it matches; None matches both.
        unwanted: nobody wants the machine, so footnote 3 decides what counts as off. Else observed power counts.
        usable: the usability that it matches; None matches both.
        report: the slot's phase.
        state: state of the machine.
        state_off: state when the observed power is off, where a row covers both powers and they differ.
        operation: what fires, None if nothing.
        title: the row in a person's words.
        runs: what goes on instead of, or beside, the operation.
    """

    number: int
    held: bool
    claims: frozenset[ClaimKind]
    power: PowerState | None
    unwanted: bool
    usable: bool | None
    report: SlotPhase
    state: MachineState
    state_off: MachineState | None
    operation: Operation | None
    title: str
    runs: str

    def matches(self, value: Input) -> bool:
        """Whether this row is the one for the input. Exactly one row of the law matches any input."""
        if self.held or value.held:
            return self.held and value.held
        on = value.counts_as_on if self.unwanted else value.power is PowerState.ON
        return (
            value.claim_kind in self.claims
            and self.power in (None, PowerState.ON if on else PowerState.OFF)
            and self.usable in (None, value.usable)
        )


def _row(  # noqa: PLR0917 - reads like a row of the table
    number: int,
    claims: ClaimKind | frozenset[ClaimKind],
    power: PowerState | None,
    report: SlotPhase,
    state: MachineState,
    title: str,
    runs: str,
    *,
    operation: Operation | None = None,
    usable: bool | None = None,
    held: bool = False,
    state_off: MachineState | None = None,
) -> Row:
    kinds = claims if isinstance(claims, frozenset) else frozenset({claims})
    return Row(
        number=number,
        held=held,
        claims=kinds,
        power=power,
        unwanted=not held and kinds <= _UNWANTED,
        usable=usable,
        report=report,
        state=state,
        state_off=state_off,
        operation=operation,
        title=title,
        runs=runs,
    )


_UNWANTED: Final = frozenset({ClaimKind.NONE, ClaimKind.MARKED, ClaimKind.TERMINAL})
_ON, _OFF = PowerState.ON, PowerState.OFF
_S = MachineState

LAW: Final[tuple[Row, ...]] = (
    _row(
        0,
        frozenset(ClaimKind),
        None,
        SlotPhase.RECLAIMED,
        _S.READY,
        "The machine is in its owner's hands.",
        "nothing, until the NodeReclaim is deleted",
        held=True,
        state_off=_S.SHUTDOWN,
    ),
    _row(
        1,
        ClaimKind.NONE,
        _OFF,
        SlotPhase.OFF,
        _S.SHUTDOWN,
        "A free slot.",
        "nothing",
    ),
    _row(
        2,
        ClaimKind.NONE,
        _ON,
        SlotPhase.DRAINING,
        _S.READY,
        "A machine that nobody asked for.",
        "the shutdown; a slot that was never used waits a minute first",
        operation=Operation.SHUTDOWN_NODE,
    ),
    _row(
        3,
        ClaimKind.PENDING,
        _OFF,
        SlotPhase.PENDING,
        _S.SHUTDOWN,
        "A request whose boot has not begun.",
        "the boot",
        operation=Operation.START_NODE,
    ),
    _row(
        4,
        ClaimKind.PENDING,
        _ON,
        SlotPhase.BOOTING,
        _S.STARTINGUP,
        "A request for a machine that is already on.",
        "a monitor and the readiness gate",
    ),
    _row(
        5,
        ClaimKind.BOOTING,
        None,
        SlotPhase.BOOTING,
        _S.STARTINGUP,
        "A boot that was asked for.",
        "the monitor of the startup Job, then the readiness gate",
    ),
    _row(
        6,
        ClaimKind.READY,
        _ON,
        SlotPhase.READY,
        _S.READY,
        "A machine that takes the pool's work.",
        "nothing",
        usable=True,
    ),
    _row(
        7,
        ClaimKind.READY,
        _ON,
        SlotPhase.BOOTING,
        _S.STARTINGUP,
        "A wanted machine that cannot take work: cordoned, or tainted as not ready.",
        "nothing; the report waits for the node",
        usable=False,
    ),
    _row(
        8,
        ClaimKind.READY,
        _OFF,
        SlotPhase.BOOTING,
        _S.STARTINGUP,
        "A wanted machine that went off by itself.",
        "nothing; past one boot window the claim ends as MachineGone",
    ),
    _row(
        9,
        ClaimKind.MARKED,
        _ON,
        SlotPhase.DRAINING,
        _S.READY,
        "A request that was withdrawn while its machine is on.",
        "the shutdown; then the claim's finalizer releases",
        operation=Operation.SHUTDOWN_NODE,
    ),
    _row(
        10,
        ClaimKind.MARKED,
        _OFF,
        SlotPhase.OFF,
        _S.SHUTDOWN,
        "A withdrawn request whose machine is off.",
        "nothing; the claim ends completed once off is confirmed",
    ),
    _row(
        11,
        ClaimKind.TERMINAL,
        _ON,
        SlotPhase.DRAINING,
        _S.READY,
        "A request that ended while its machine is on.",
        "the shutdown: an ended claim is not a want",
        operation=Operation.SHUTDOWN_NODE,
    ),
    _row(
        12,
        ClaimKind.TERMINAL,
        _OFF,
        SlotPhase.OFF,
        _S.SHUTDOWN,
        "A request that ended, and its machine is off.",
        "nothing; the claim's finalizer leaves once off is confirmed",
    ),
)
"""Rows 0-12. Disjoint and complete: every input has exactly one."""


def row(value: Input) -> Row:
    """The one row for the input."""
    return next(entry for entry in LAW if entry.matches(value))


def state(value: Input) -> MachineState:
    """The state in which the node state machine starts a pass.

    Footnote 1: a machine that is being switched off is `shuttingdown` while a shutdown of its slot is in flight, so
    that no second one can be triggered.
    """
    found = row(value)
    if found.state_off and value.power is PowerState.OFF:
        return found.state_off
    if found.operation is Operation.SHUTDOWN_NODE and value.shutdown_in_flight:
        return MachineState.SHUTTINGDOWN
    return found.state


def derive(value: Input) -> SlotPhase:
    """The slot's phase: a report, which nothing reads to decide."""
    return row(value).report


def fires(value: Input) -> Operation | None:
    """The operation that the law asks for now, None for none.

    Nothing fires while the slot is contested, while a shutdown is in flight (a wanted machine waits for the end of
    its shutdown Job before it boots again), or while a Job of another operation is unfinished. Whether an operation
    that the law asks for may start is still bounded by locks, attempts and pauses: those are not its business.
    """
    if value.contested or value.shutdown_in_flight or value.other_job_unfinished:
        return None
    return row(value).operation


def free(value: Input) -> bool:
    """Whether the machine is off as far as a new claim is concerned: no veto, no live claim, off by footnote 3.

    A free slot for the provider is more than this (not paused, not exhausted, no unfinished Job): see model section 9.
    """
    return derive(value) is SlotPhase.OFF and value.claim_kind is not ClaimKind.MARKED and not value.contested


def may_release(value: Input) -> bool:
    """Whether the claim's end may be recorded and its finalizer may leave because the machine is off.

    Rows 10 and 12 with off *confirmed*: an observation of off alone is a report, not evidence (model section 7).
    """
    return row(value).number in (10, 12) and value.off_confirmed
