"""The legal moves of a claim, as one table. A move that it does not list raises and nothing is written.

Source: state management, "Claim phases, and who writes each move"; model section 4.
"""

from __future__ import annotations

from typing import Final

from homelab_api.v2alpha1 import ClaimPhase, Reason

_BOOT_FAILURES: Final = frozenset(
    {
        Reason.DEADLINE_EXCEEDED,
        Reason.ATTEMPT_LIMIT_EXCEEDED,
        Reason.STARTUP_JOB_FAILED,
        Reason.STARTUP_JOB_TIMEOUT,
        Reason.READINESS_GATE_TIMEOUT,
        Reason.STUCK_TRANSITION,
        Reason.INVALID_SLOT,
    }
)
_ANY_TIME_FAILURES: Final = frozenset({Reason.SUPERSEDED, Reason.SLOT_DELETED, Reason.EMERGENCY_RECLAIM})
_ENDS: Final = frozenset(
    {
        Reason.NODE_DELETED,
        Reason.CANCELLED_BY_DECREASE,
        Reason.DELETED_BY_HAND,
        Reason.SCHEDULE_ENDED,
        Reason.ABANDONED,
    }
)
_READY: Final = frozenset({Reason.MACHINE_READY, Reason.MACHINE_ADOPTED})

LEGAL_MOVES: Final[dict[ClaimPhase, dict[ClaimPhase, frozenset[Reason]]]] = {
    ClaimPhase.PENDING: {
        ClaimPhase.BOOTING: frozenset({Reason.STARTUP_JOB_CREATED}),
        ClaimPhase.READY: _READY,
        ClaimPhase.FAILED: _BOOT_FAILURES | _ANY_TIME_FAILURES,
        ClaimPhase.COMPLETED: _ENDS,
    },
    ClaimPhase.BOOTING: {
        ClaimPhase.READY: _READY,
        ClaimPhase.FAILED: _BOOT_FAILURES | _ANY_TIME_FAILURES,
        ClaimPhase.COMPLETED: _ENDS,
    },
    ClaimPhase.READY: {
        ClaimPhase.FAILED: _ANY_TIME_FAILURES | {Reason.MACHINE_GONE},
        ClaimPhase.COMPLETED: _ENDS,
    },
    ClaimPhase.FAILED: {},
    ClaimPhase.COMPLETED: {},
}
"""From phase → to phase → the reasons that may be given. Terminal phases have no way out."""


class IllegalMoveError(Exception):
    """A claim was asked to make a move that the table does not list; nothing was written."""

    def __init__(self, name: str, origin: ClaimPhase, to: ClaimPhase, reason: Reason) -> None:
        super().__init__(f"claim {name} cannot move from {origin} to {to} with reason {reason}")
        self.origin = origin
        self.to = to
        self.reason = reason


def check_move(name: str, origin: ClaimPhase, to: ClaimPhase, reason: Reason) -> None:
    """Refuse a move that is not legal.

    Raises:
        IllegalMoveError: the table does not list it.
    """
    if reason not in LEGAL_MOVES[origin].get(to, frozenset()):
        raise IllegalMoveError(name, origin, to, reason)
