"""The display ring, the ledger of boots, the counts, and the one claim shown beside the phase."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_api.v2alpha1 import ClaimPhase, SlotPhase, SlotStatus
from homelab_autoscaler.phase import ClaimFact, expire, next_expiry, record
from homelab_autoscaler.settings import Settings

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
LIMITS = Settings()
CLAIM = ClaimFact(ClaimPhase.PENDING, uid="u", name="w1-7f4b9c00")
P = SlotPhase


def patched(status, fields):
    body = status.to_json() | fields
    return SlotStatus.model_validate({key: value for key, value in body.items() if value is not None})


def after(status, *phases, at=NOON, step=1, claim=None):
    for phase in phases:
        status = patched(status, record(status, phase, at, claim, "", LIMITS))
        at += timedelta(seconds=step)
    return status


def test_a_change_of_phase_is_recorded_with_where_it_came_from():
    status = after(SlotStatus(), P.OFF)
    fields = record(status, P.PENDING, NOON + timedelta(minutes=1), CLAIM, "StartupJobCreated", LIMITS)
    assert fields == {
        "claim": "w1-7f4b9c00",
        "phase": "pending",
        "previousPhase": "off",
        "lastTransitionTime": "2026-03-04T12:01:00Z",
        "recentTransitions": [
            {"at": "2026-03-04T12:00:00Z", "to": "off", "claim": "", "reason": ""},
            {
                "at": "2026-03-04T12:01:00Z",
                "from": "off",
                "to": "pending",
                "claim": "w1-7f4b9c00",
                "reason": "StartupJobCreated",
            },
        ],
    }


def test_nothing_is_written_when_nothing_changes():
    status = after(SlotStatus(), P.OFF, P.PENDING, claim=CLAIM)
    assert record(status, P.PENDING, NOON + timedelta(hours=1), CLAIM, "", LIMITS) == {}


def test_the_claim_beside_the_phase_is_the_live_one_and_leaves_with_it():
    status = after(SlotStatus(), P.PENDING, claim=CLAIM)
    other = ClaimFact(ClaimPhase.PENDING, uid="v", name="w1-00000001")
    assert record(status, P.PENDING, NOON, other, "", LIMITS) == {"claim": "w1-00000001"}
    ended = ClaimFact(ClaimPhase.FAILED, uid="u", name=CLAIM.name)
    fields = record(status, P.OFF, NOON, ended, "DeadlineExceeded", LIMITS)
    assert fields["claim"] is None
    assert fields["recentTransitions"][-1]["claim"] == CLAIM.name


@pytest.mark.parametrize(
    ("before", "boots"),
    [(P.OFF, 1), (P.PENDING, 1), (P.READY, 0), (P.DRAINING, 0), (P.RECLAIMED, 0)],
)
def test_only_a_machine_that_was_off_is_counted_as_booted(before, boots):
    status = after(SlotStatus(), before, P.BOOTING)
    assert status.activations_total == boots
    assert status.activations_last24_h == boots
    assert len(status.recent_activations) == boots


def test_a_cordon_on_a_ready_machine_is_not_a_boot():
    status = after(SlotStatus(), P.OFF, P.BOOTING, P.READY, P.BOOTING, P.READY)
    assert status.activations_total == 1


def test_a_boot_that_nobody_reported_while_it_lasted_is_counted_when_the_machine_is_ready():
    assert after(SlotStatus(), P.OFF, P.READY).activations_total == 1
    assert after(SlotStatus(), P.PENDING, P.READY).activations_total == 1


def test_a_first_record_counts_nothing():
    assert after(SlotStatus(), P.BOOTING).activations_total == 0


def test_forty_boots_a_day_are_counted_as_forty_though_the_ring_shows_fewer():
    status = SlotStatus()
    for hour in range(40):
        status = after(status, P.BOOTING, P.OFF, at=NOON + timedelta(minutes=30 * hour))
    assert len(status.recent_transitions) == 32
    assert status.activations_last24_h == 39  # the first record of a slot is not a boot
    assert status.activations_total == 39


def test_the_ledger_keeps_its_newest_rows_and_the_count_is_its_length():
    limits = Settings(history_ledger=5)
    status = SlotStatus(phase=P.OFF)
    for minute in range(9):
        for phase in (P.BOOTING, P.OFF):
            status = patched(status, record(status, phase, NOON + timedelta(minutes=minute), None, "", limits))
    assert status.recent_activations == [NOON + timedelta(minutes=minute) for minute in range(4, 9)]
    assert status.activations_last24_h == 5
    assert status.activations_total == 9


def test_a_slot_that_boots_every_two_minutes_keeps_512_boots_and_32_rows_of_the_last_24_hours():
    boots = [NOON + timedelta(minutes=2 * number) for number in range(530)]
    status = SlotStatus(phase=P.OFF, recent_activations=boots[:500], activations_last24_h=500, activations_total=500)
    for at in boots[500:]:
        status = after(status, P.BOOTING, P.OFF, at=at)
    assert (len(status.recent_transitions), status.recent_activations) == (32, boots[-512:])
    assert (status.activations_last24_h, status.activations_total) == (512, 530)
    day_after = boots[-512] + timedelta(hours=24)
    assert "activationsLast24H" not in expire(status, day_after - timedelta(seconds=1), LIMITS)
    assert expire(status, day_after, LIMITS)["activationsLast24H"] == 511


def test_the_ring_keeps_the_order_of_the_writes_when_the_clock_steps_back():
    status = after(SlotStatus(), P.OFF, at=NOON)
    status = after(status, P.PENDING, at=NOON - timedelta(minutes=5))
    assert [entry.to for entry in status.recent_transitions] == [P.OFF, P.PENDING]


def test_what_left_the_window_is_dropped_with_its_count():
    status = after(SlotStatus(), P.OFF, P.BOOTING, P.READY)
    day = timedelta(seconds=LIMITS.history_window)
    assert next_expiry(status, LIMITS) == NOON + day
    assert expire(status, NOON + day - timedelta(seconds=1), LIMITS) == {}
    fields = expire(status, NOON + day + timedelta(seconds=1), LIMITS)
    assert [entry["to"] for entry in fields["recentTransitions"]] == ["ready"]
    assert fields["recentActivations"] == []
    assert fields["activationsLast24H"] == 0
    assert "activationsTotal" not in fields


def test_expiry_has_something_to_do_at_the_instant_that_it_names_and_nothing_after():
    status = after(SlotStatus(), P.OFF, P.BOOTING, P.READY)
    seen = 0
    while (due := next_expiry(status, LIMITS)) is not None:
        fields = expire(status, due, LIMITS)
        assert fields
        status = patched(status, fields)
        assert expire(status, due, LIMITS) == {}
        seen += 1
    assert seen == 3
    assert not status.recent_transitions


def test_a_slot_without_history_has_nothing_to_expire():
    assert next_expiry(SlotStatus(), LIMITS) is None
    assert expire(SlotStatus(), NOON, LIMITS) == {}


steps = st.lists(st.tuples(st.sampled_from(SlotPhase), st.integers(-600, 40_000)), max_size=60)


@given(steps)
def test_bounds_and_counts_hold_after_any_series_of_writes(series):
    status, at, boots = SlotStatus(), NOON, 0
    for phase, seconds in series:
        at += timedelta(seconds=seconds)
        boots += phase in (P.BOOTING, P.READY) and status.phase in (P.OFF, P.PENDING)
        status = patched(status, record(status, phase, at, None, "", LIMITS))
        assert len(status.recent_transitions) <= 32
        assert len(status.recent_activations) == status.activations_last24_h
        assert status.activations_total == boots
        assert status.phase is phase
        assert all(entry.from_phase is not entry.to for entry in status.recent_transitions)
