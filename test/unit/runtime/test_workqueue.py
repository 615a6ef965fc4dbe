"""The classic three layers: WorkQueue, DelayingQueue, RateLimitingQueue."""

import gc
import threading
import weakref

import pytest

from homelab_autoscaler.runtime.queue import (
    BucketLimiter,
    DelayingQueue,
    ExponentialLimiter,
    FastSlowLimiter,
    MaxLimiter,
    MaxWaitLimiter,
    QueueShutDown,
    RateLimitingQueue,
    WorkQueue,
    default_limiter,
)
from homelab_autoscaler.runtime.testing import FakeClock, eventually


@pytest.fixture
def clock():
    return FakeClock()


def taken(queue):
    keys = []
    while len(queue):
        key = queue.get()
        keys.append(key)
        queue.done(key)
    return keys


def test_a_key_added_twice_is_handed_out_once(clock):
    queue = WorkQueue(clock)
    queue.add("a")
    queue.add("a")
    assert taken(queue) == ["a"]


def test_any_number_of_adds_during_the_work_cause_one_more_turn_at_the_tail(clock):
    queue = WorkQueue(clock)
    queue.add("a")
    assert queue.get() == "a"
    queue.add("b")
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    queue.done("a")
    assert taken(queue) == ["b", "a"]


def test_done_of_a_key_that_nobody_has_is_ignored(clock):
    queue = WorkQueue(clock)
    queue.done("stranger")
    queue.add("a")
    assert taken(queue) == ["a"]


def test_adds_after_the_shutdown_are_ignored_and_workers_finish_what_is_queued(clock):
    queue = WorkQueue(clock)
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert queue.get() == "a"
    with pytest.raises(QueueShutDown):
        queue.get()


def test_a_drain_waits_for_the_key_that_a_worker_has(clock):
    queue = WorkQueue(clock)
    queue.add("a")
    queue.get()
    drained = threading.Event()
    thread = threading.Thread(target=lambda: (queue.shut_down_with_drain(), drained.set()))
    thread.start()
    eventually(lambda: queue.shutting_down)
    assert not drained.is_set()
    queue.done("a")
    thread.join(5)
    assert drained.is_set()


def test_a_plain_shutdown_releases_a_drain_that_waits(clock):
    queue = WorkQueue(clock)
    queue.add("a")
    queue.get()
    thread = threading.Thread(target=queue.shut_down_with_drain)
    thread.start()
    eventually(lambda: queue.shutting_down)
    queue.shut_down()
    thread.join(5)
    assert not thread.is_alive()


def test_the_queue_keeps_no_reference_to_done_keys(clock):
    class Key:
        pass

    queue = WorkQueue(clock)
    key = Key()
    seen = weakref.ref(key)
    queue.add(key)
    queue.done(queue.get())
    del key
    gc.collect()
    assert seen() is None


def test_of_two_delays_the_earlier_counts(clock):
    queue = DelayingQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    clock.step(4.9)
    assert len(queue) == 0
    clock.step(0.1)
    assert taken(queue) == ["a"]
    clock.step(100)
    assert len(queue) == 0


def test_an_immediate_add_does_not_cancel_the_delayed_one(clock):
    queue = DelayingQueue(clock)
    queue.add_after("a", 5)
    queue.add("a")
    assert taken(queue) == ["a"]
    clock.step(5)
    assert taken(queue) == ["a"]


def test_delayed_keys_come_in_the_order_of_their_times(clock):
    queue = DelayingQueue(clock)
    for key, seconds in (("c", 3), ("a", 1), ("b", 2), ("now", 0)):
        queue.add_after(key, seconds)
    clock.step(10)
    assert taken(queue) == ["now", "a", "b", "c"]


def test_a_waiting_worker_gets_a_delayed_key_when_its_time_comes(clock):
    queue = DelayingQueue(clock)
    got = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    queue.add_after("late", 60)
    clock.wait_for_waiters()
    queue.add_after("early", 5)
    eventually(lambda: clock.next_deadline() == 5)
    clock.step(5)
    thread.join(5)
    assert got == ["early"]


def test_the_shutdown_drops_what_still_waits(clock):
    queue = DelayingQueue(clock)
    queue.add_after("a", 5)
    queue.shut_down()
    clock.step(5)
    with pytest.raises(QueueShutDown):
        queue.get()


def test_failures_of_a_key_double_its_wait_up_to_a_cap():
    limiter = ExponentialLimiter()
    waits = [limiter.when("a") for _ in range(60)]
    assert waits[:5] == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08])
    assert waits[-1] == 1000.0
    assert limiter.when("b") == 0.005
    assert limiter.retries("a") == 60


def test_thousands_of_failures_do_not_overflow():
    limiter = ExponentialLimiter()
    assert max(limiter.when("a") for _ in range(3000)) == 1000.0


def test_forgetting_resets_the_wait(clock):
    queue = RateLimitingQueue(clock, ExponentialLimiter(1.0, 8.0))
    queue.add_rate_limited("a")
    queue.add_rate_limited("a")
    assert queue.retries("a") == 2
    queue.forget("a")
    assert queue.retries("a") == 0
    clock.step(1)
    assert taken(queue) == ["a"]


def test_the_bucket_gives_a_burst_and_then_reserves_in_line(clock):
    limiter = BucketLimiter(clock)
    assert [limiter.when(n) for n in range(100)] == [0.0] * 100
    assert [limiter.when("x"), limiter.when("y")] == pytest.approx([0.1, 0.2])
    clock.step(1)
    assert limiter.when("z") == 0.0


def test_the_default_limiter_is_the_longer_of_both(clock):
    limiter = default_limiter(clock)
    assert limiter.when("a") == pytest.approx(0.005)
    for n in range(99):
        limiter.when(n)
    assert limiter.when("b") == pytest.approx(0.1)


def test_a_poisoned_key_does_not_slow_the_others():
    limiter = MaxLimiter(ExponentialLimiter(1.0, 100.0), MaxWaitLimiter(ExponentialLimiter(), 0.02))
    for _ in range(10):
        limiter.when("bad")
    assert limiter.when("good") == 1.0
    assert limiter.retries("bad") == 10


def test_fast_tries_come_before_slow_ones():
    limiter = FastSlowLimiter(0.1, 10.0, 2)
    assert [limiter.when("a") for _ in range(4)] == [0.1, 0.1, 10.0, 10.0]
    limiter.forget("a")
    assert limiter.when("a") == 0.1
