from datetime import timedelta

import pytest

from homelab_api import names
from homelab_autoscaler.lifecycle.ledger import ShutdownLedger, next_attempt
from homelab_autoscaler.settings import Settings

SETTINGS = Settings()
HOUR = timedelta(hours=1)


def test_a_ledger_survives_its_annotation(make):
    ledger = ShutdownLedger().opened(make.now, HOUR, "worker-01-shutdown-4", "uid-c").attempted(make.now, 2)
    slot = make.slot(metadata={"annotations": {names.ANNOTATION_SHUTDOWN_LEDGER: ledger.text()}})
    assert ShutdownLedger.read(slot) == ledger


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"releases": 3}', '{"attempts": "x"}', "null"])
def test_an_annotation_that_a_hand_broke_reads_as_empty(make, text):
    slot = make.slot(metadata={"annotations": {names.ANNOTATION_SHUTDOWN_LEDGER: text}})
    assert ShutdownLedger.read(slot) == ShutdownLedger()


def test_the_seventh_release_within_an_hour_waits_half_an_hour_after_the_sixth(make):
    ledger = ShutdownLedger()
    for minute in range(6):
        assert ledger.flapping_until(make.at(minute * 60), SETTINGS) is None
        ledger = ledger.opened(make.at(minute * 60), HOUR, f"j-{minute}", "")
    assert ledger.flapping_until(make.at(360), SETTINGS) == make.at(300 + 1800)
    assert ledger.flapping_until(make.at(300 + 1800), SETTINGS) is None


def test_a_pause_lasts_as_long_as_it_was_announced_though_earlier_releases_leave_the_hour(make):
    ledger = ShutdownLedger()
    for minute in (0, 40, 45, 50, 55, 59):
        ledger = ledger.opened(make.at(minute * 60), HOUR, f"j-{minute}", "")
    until = make.at(59 * 60 + 1800)
    assert ledger.flapping_until(make.at(59 * 60), SETTINGS) == until
    assert ledger.flapping_until(make.at(61 * 60), SETTINGS) == until


def test_releases_leave_the_ledger_with_the_window(make):
    ledger = ShutdownLedger().opened(make.at(0), HOUR, "a", "").opened(make.at(3601), HOUR, "b", "")
    assert ledger.releases == (make.at(3601),)


def test_rest_clears_attempts_and_keeps_the_releases(make):
    ledger = ShutdownLedger().opened(make.now, HOUR, "j", "").attempted(make.now, 3)
    assert ledger.rested() == ShutdownLedger(releases=(make.now,), job_name="j")


def test_attempts_count_to_three_then_pause_for_thirty_minutes_then_start_anew(make):
    assert [next_attempt(n, make.now, make.now, SETTINGS) for n in (0, 1, 2)] == [1, 2, 3]
    assert next_attempt(3, make.now, make.at(1), SETTINGS) == make.at(1800)
    assert next_attempt(3, make.now, make.at(1800), SETTINGS) == 1


def test_the_escape_hatch_takes_effect_at_once(make):
    assert next_attempt(0, None, make.now, SETTINGS) == 1
    assert next_attempt(3, None, make.now, SETTINGS) == 1


def test_instants_ahead_of_now_hold_nothing_up(make):
    """A clock that was years ahead for a minute wrote them."""
    future = make.now + timedelta(days=3650)
    ledger = ShutdownLedger()
    for number in range(6):
        ledger = ledger.opened(future + timedelta(seconds=number), HOUR, "job", "uid")
    assert ledger.flapping_until(future + timedelta(seconds=9), SETTINGS) is not None
    assert ledger.flapping_until(make.now, SETTINGS) is None
    assert ledger.opened(make.now, HOUR, "job", "uid").releases == (make.now,)
    assert next_attempt(3, future, make.now, SETTINGS) == 1
