"""Who may take a slot's lock over, and when."""

from datetime import timedelta

import pytest

from homelab_api import names
from homelab_api.meta import format_time
from homelab_autoscaler.lifecycle.lock import Locks, read_lock


class Clock:
    def __init__(self, now):
        self.instant = now

    def now(self):
        return self.instant


class Lease:
    identity = "me"
    transitions = 5


@pytest.fixture
def locks(make):
    return Locks(client=None, clock=Clock(make.now), leadership=Lease(), timeout=300)


def lock(make, owner, taken, timeout="300"):
    annotations = {
        names.ANNOTATION_LOCK: "scale-down",
        names.ANNOTATION_LOCK_OWNER: owner,
        names.ANNOTATION_LOCK_TIMESTAMP: format_time(make.now + timedelta(seconds=taken)),
        names.ANNOTATION_LOCK_TIMEOUT: timeout,
    }
    return read_lock(make.slot(metadata={"annotations": annotations}))


@pytest.mark.parametrize(
    ("owner", "taken", "ours"),
    [
        ("me/5", -10, True),
        ("you/4", -10, True),
        ("you/5", -10, False),
        ("you/9", -10, False),
        ("you", -10, False),
        ("you/9", -299, False),
        ("you/9", -300, True),
        ("you/9", 5, False),
        ("you/9", 86400 * 3650, True),
    ],
    ids=[
        "our own",
        "of the leader before us",
        "of another in the same lease",
        "of a later leader",
        "of somebody unknown",
        "almost over",
        "over",
        "by a clock a little ahead",
        "by a clock years ahead",
    ],
)
def test_a_lock_binds_others_for_its_time_and_no_longer(make, locks, owner, taken, ours):
    assert locks.ours_to_take(lock(make, owner, taken)) is ours


@pytest.mark.parametrize("timeout", ["", "soon", "nan-ish"])
def test_a_lock_that_cannot_be_read_has_expired(make, locks, timeout):
    assert locks.ours_to_take(lock(make, "you/9", -10, timeout))
