"""Which slots the operation controller follows, and until when."""

from datetime import timedelta

import pytest

from homelab_autoscaler.controllers.operation import RETRY_FIRST, OperationReconciler
from homelab_autoscaler.lifecycle.lock import Lock, LockKind, LockRefusedError
from homelab_autoscaler.runtime import ConflictError, Request
from homelab_autoscaler.runtime.testing.clock import FakeClock

SLOT, OTHER = Request("pool", "rack-1"), Request("pool", "rack-2")
POLL = 30.0


class Monitor:
    """Answers as it is told; may do something in the middle of a step."""

    def __init__(self):
        self.answer = None
        self.meanwhile = None

    def step(self, namespace, name):
        if self.meanwhile is not None:
            self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def monitor():
    return Monitor()


@pytest.fixture
def asked():
    return []


@pytest.fixture
def operations(monitor, clock, asked):
    made = OperationReconciler(monitor, clock, POLL)
    made.attach(asked.append)
    return made


def woken(operations, *requests):
    return operations.followed(lambda requests: requests)(requests)


def test_events_wake_only_slots_that_a_pass_named(operations, asked):
    assert woken(operations, SLOT, OTHER) == []
    operations.ensure(*SLOT)
    assert asked == [SLOT]
    assert woken(operations, SLOT, OTHER) == [SLOT]


def test_a_slot_is_followed_until_its_operation_needs_no_more(operations, monitor, clock):
    operations.ensure(*SLOT)
    monitor.answer = clock.now() + timedelta(seconds=5)
    assert operations.reconcile(SLOT).requeue_after == 5.0
    assert woken(operations, SLOT) == [SLOT]
    monitor.answer = None
    assert operations.reconcile(SLOT).requeue_after is None
    assert woken(operations, SLOT) == []


def test_the_poll_is_the_longest_wait_and_a_past_instant_is_no_busy_loop(operations, monitor, clock):
    monitor.answer = clock.now() + timedelta(hours=1)
    assert operations.reconcile(SLOT).requeue_after == POLL
    monitor.answer = clock.now() - timedelta(hours=1)
    assert operations.reconcile(SLOT).requeue_after == RETRY_FIRST


def test_a_refused_lock_is_waited_for(operations, monitor, clock):
    monitor.answer = LockRefusedError("rack-1", Lock(LockKind.SCALE_UP, "another/3", clock.now(), timeout=7.0))
    assert operations.reconcile(SLOT).requeue_after == 7.0
    assert woken(operations, SLOT) == [SLOT]


def test_a_failed_step_leaves_the_slot_followed(operations, monitor):
    monitor.answer = ConflictError("changed", status=409)
    with pytest.raises(ConflictError):
        operations.reconcile(SLOT)
    assert woken(operations, SLOT) == [SLOT]


def test_a_slot_named_again_while_its_last_step_runs_gets_another_pass_that_follows_it(
    operations, monitor, clock, asked
):
    monitor.meanwhile = lambda: operations.ensure(*SLOT)
    operations.reconcile(SLOT)
    assert asked == [SLOT]
    monitor.meanwhile = None
    monitor.answer = clock.now() + timedelta(seconds=5)
    operations.reconcile(asked.pop())
    assert woken(operations, SLOT) == [SLOT]


def test_before_it_is_attached_it_remembers_what_it_is_told(monitor, clock):
    operations = OperationReconciler(monitor, clock, POLL)
    operations.ensure(*SLOT)
    assert woken(operations, SLOT) == [SLOT]
