"""The API server's time, kept on this machine's monotonic clock."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from homelab_autoscaler.runtime.server_clock import TOLERANCE, ServerClock
from homelab_autoscaler.runtime.testing import FakeClock

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def date(instant):
    return format_datetime(instant.replace(microsecond=0), usegmt=True)


@pytest.fixture
def base():
    return FakeClock(NOON)


@pytest.fixture
def clock(base):
    return ServerClock(base)


def error(clock, instant):
    return abs((clock.now() - instant).total_seconds())


def test_until_a_reply_was_heard_it_is_the_machines_time(base, clock):
    assert clock.now() == NOON
    base.step(5)
    assert clock.now() == NOON + timedelta(seconds=5)
    assert clock.monotonic() == base.monotonic()


def test_small_differences_are_left_alone(base, clock):
    clock.heard(date(NOON - timedelta(seconds=1)), base.monotonic())
    assert clock.now() == NOON


@pytest.mark.parametrize("off", [-3650 * 86400, -3600, -4, 4, 3600, 3650 * 86400])
def test_the_servers_time_replaces_a_wrong_one(base, clock, off):
    server = NOON + timedelta(seconds=off)
    clock.heard(date(server), base.monotonic())
    assert error(clock, server) <= 1
    base.step(100)
    assert error(clock, server + timedelta(seconds=100)) <= 1


def test_a_jump_of_the_machines_clock_does_not_show(base, clock):
    clock.heard(date(NOON), base.monotonic())
    base.set(NOON + timedelta(days=3650))
    assert clock.now() == NOON
    base.set(NOON - timedelta(hours=1))
    base.step(1)
    assert clock.now() == NOON + timedelta(seconds=1)


def test_a_machine_that_slept_is_told_the_time_by_the_next_reply(base, clock):
    """Monotonic time stands still meanwhile."""
    later = NOON + timedelta(hours=8)
    clock.heard(date(later), base.monotonic())
    assert error(clock, later) <= 1


def test_a_reply_that_took_long_says_nothing(base, clock):
    sent = base.monotonic()
    base.step(TOLERANCE + 60)
    before = clock.now()
    clock.heard(date(NOON), sent)
    assert clock.now() == before


@pytest.mark.parametrize("text", [None, "", "yesterday", "Wed, 04 Mar 2026 25:00:00 GMT"])
def test_what_is_no_date_says_nothing(base, clock, text):
    clock.heard(text, base.monotonic())
    assert clock.now() == NOON


def test_waits_are_the_machines(base, clock):
    assert not clock.sleep(0)
    assert base.waiters == 0
