import pytest

from homelab_api.v2alpha1 import STREAK_REASONS, Call, LastClaim, Reason
from homelab_autoscaler.claim.attempts import digest, exhausted, seed_attempt
from homelab_autoscaler.settings import Settings

SETTINGS = Settings()


def last(make, attempt, streak=None, **fields):
    return LastClaim(
        name="old",
        uid="u",
        phase="failed",
        attempt=attempt,
        streak_at=None if streak is None else make.at(streak),
        **fields,
    )


@pytest.mark.parametrize(
    ("attempt", "streak", "expected"),
    [(1, -60, 2), (2, -60, 3), (3, -60, 4), (1, None, 1), (2, None, 1), (7, None, 1), (3, -1801, 1), (2, -90000, 3)],
)
def test_a_streak_counts_on_until_it_ends_or_rests(make, attempt, streak, expected):
    assert seed_attempt(last(make, attempt, streak), Call.INCREASE_SIZE, make.now, SETTINGS) == expected


def test_the_first_claim_of_a_slot_is_attempt_one(make):
    assert seed_attempt(None, Call.INCREASE_SIZE, make.now, SETTINGS) == 1


def test_a_claim_by_hand_restarts_a_spent_streak_but_not_a_running_one(make):
    assert seed_attempt(last(make, 3, -1), Call.MANUAL, make.now, SETTINGS) == 1
    assert seed_attempt(last(make, 2, -1), Call.MANUAL, make.now, SETTINGS) == 3


def test_a_slot_is_exhausted_from_the_third_failure_until_its_rest_is_over(make):
    assert not exhausted(last(make, 2, -1), make.now, SETTINGS)
    assert exhausted(last(make, 3, -1799), make.now, SETTINGS)
    assert not exhausted(last(make, 3, -1800), make.now, SETTINGS)


def test_with_a_rest_of_zero_only_a_hand_ends_exhaustion(make):
    forever = Settings(exhausted_after=0)
    assert exhausted(last(make, 3, -10_000_000), make.now, forever)
    assert seed_attempt(last(make, 3, -10_000_000), Call.INCREASE_SIZE, make.now, forever) == 4
    assert seed_attempt(last(make, 3, -10_000_000), Call.MANUAL, make.now, forever) == 1


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason in STREAK_REASONS])
def test_a_boot_that_failed_by_itself_extends_the_streak(make, reason):
    claim = make.claim(phase="failed", reason=reason, attempt=2, finishedAt=make.at(0).isoformat())
    kept = digest(claim, last(make, 1, -900))
    assert (kept.attempt, kept.streak_at) == (2, make.at(0))


@pytest.mark.parametrize(
    "reason", ["Superseded", "SlotDeleted", "EmergencyReclaim", "AttemptLimitExceeded", "InvalidSlot"]
)
def test_an_end_that_says_nothing_about_the_machine_leaves_the_streak(make, reason):
    claim = make.claim(phase="failed", reason=reason, attempt=9, finishedAt=make.at(0).isoformat())
    kept = digest(claim, last(make, 2, -900))
    assert (kept.attempt, kept.streak_at) == (2, make.at(-900))


def test_completed_without_ready_does_not_reset_the_attempts(make):
    claim = make.claim(phase="completed", reason="NodeDeleted", attempt=3, finishedAt=make.at(0).isoformat())
    kept = digest(claim, last(make, 2, -900))
    assert (kept.attempt, kept.streak_at, kept.reached_ready) == (2, make.at(-900), False)


@pytest.mark.parametrize(("phase", "reason"), [("completed", "NodeDeleted"), ("failed", "MachineGone")])
def test_reaching_ready_ends_the_streak_however_the_claim_ends(make, phase, reason):
    claim = make.claim(
        phase=phase, reason=reason, attempt=3, readyAt=make.at(-300).isoformat(), finishedAt=make.at(0).isoformat()
    )
    kept = digest(claim, last(make, 2, -900))
    assert (kept.streak_at, kept.reached_ready) == (None, True)
    assert seed_attempt(kept, Call.INCREASE_SIZE, make.now, SETTINGS) == 1


def test_a_streak_that_ended_ahead_of_now_is_over(make):
    """A clock that was years ahead for a minute wrote it; the slot must not rest for years."""
    spent = last(make, 3, 86400 * 3650)
    assert not exhausted(spent, make.now, SETTINGS)
    assert seed_attempt(spent, Call.INCREASE_SIZE, make.now, SETTINGS) == 1
    assert exhausted(spent, make.now, SETTINGS.model_copy(update={"exhausted_after": 0.0})), "only a hand ends this"
