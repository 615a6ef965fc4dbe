import pytest

from homelab_api.v2alpha1 import ClaimPhase, Reason
from homelab_autoscaler.claim.moves import LEGAL_MOVES, IllegalMoveError, check_move

PENDING, BOOTING, READY, FAILED, COMPLETED = ClaimPhase


def legal(origin, to):
    return to in LEGAL_MOVES[origin]


@pytest.mark.parametrize("origin", ClaimPhase)
@pytest.mark.parametrize("to", ClaimPhase)
def test_only_the_moves_of_the_table_are_legal(origin, to):
    expected = {
        PENDING: {BOOTING, READY, COMPLETED, FAILED},
        BOOTING: {READY, COMPLETED, FAILED},
        READY: {COMPLETED, FAILED},
        FAILED: set(),
        COMPLETED: set(),
    }
    assert legal(origin, to) is (to in expected[origin])


@pytest.mark.parametrize("origin", ClaimPhase)
@pytest.mark.parametrize("to", ClaimPhase)
@pytest.mark.parametrize("reason", Reason)
def test_a_move_that_is_not_listed_raises_and_names_both_phases(origin, to, reason):
    if reason in LEGAL_MOVES[origin].get(to, ()):
        check_move("c", origin, to, reason)
    else:
        with pytest.raises(IllegalMoveError, match=f"c cannot move from {origin} to {to} with reason {reason}"):
            check_move("c", origin, to, reason)


def test_a_ready_machine_is_never_failed_by_a_boot_deadline():
    assert Reason.DEADLINE_EXCEEDED not in LEGAL_MOVES[READY][FAILED]
    assert Reason.ATTEMPT_LIMIT_EXCEEDED not in LEGAL_MOVES[READY][FAILED]


def test_only_a_ready_machine_can_be_gone():
    assert Reason.MACHINE_GONE in LEGAL_MOVES[READY][FAILED]
    assert Reason.MACHINE_GONE not in LEGAL_MOVES[BOOTING][FAILED]
