"""PriorityQueue: order, merging, delays, exclusivity."""

import threading

import pytest

from homelab_autoscaler.runtime.queue import ExponentialLimiter, PriorityQueue, QueueMetrics, QueueShutDown
from homelab_autoscaler.runtime.testing import FakeClock, eventually


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def queue(clock):
    return PriorityQueue(clock)


def taken(queue):
    keys = []
    while len(queue):
        key, _ = queue.get()
        keys.append(key)
        queue.done(key)
    return keys


def test_higher_priority_goes_first_and_equals_in_order_of_adding(queue):
    queue.add("flood-1", priority=-100)
    queue.add("flood-2", priority=-100)
    queue.add("change-1")
    queue.add("change-2", priority=0)
    assert taken(queue) == ["change-1", "change-2", "flood-1", "flood-2"]


def test_a_key_is_there_once_and_its_priority_is_only_raised(queue):
    queue.add("a", priority=5)
    queue.add("b", priority=7)
    queue.add("a", priority=1)
    assert len(queue) == 2
    assert queue.get() == ("b", 7)
    assert queue.get() == ("a", 5)


def test_a_raised_key_goes_to_the_end_of_its_new_level(queue):
    queue.add("a", priority=-100)
    queue.add("b")
    queue.add("a", priority=0)
    assert taken(queue) == ["b", "a"]


def test_a_ready_key_stays_ready_when_added_with_a_delay(queue):
    queue.add("a")
    queue.add_after("a", 60)
    assert taken(queue) == ["a"]
    assert queue.delayed() == {}


def test_a_delayed_key_added_now_is_ready_and_loses_its_later_wake_up(queue, clock):
    queue.add_after("a", 60)
    queue.add("a")
    assert taken(queue) == ["a"]
    clock.step(61)
    assert len(queue) == 0


def test_the_earliest_of_several_delays_wins(queue, clock):
    queue.add_after("a", 60)
    queue.add_after("a", 10)
    queue.add_after("a", 30)
    clock.step(10)
    assert taken(queue) == ["a"]
    clock.step(100)
    assert len(queue) == 0


def test_a_matured_delay_queues_up_behind_what_is_ready(queue, clock):
    queue.add_after("early", 1)
    queue.add("a")
    clock.step(2)
    queue.add("b")
    assert taken(queue) == ["a", "early", "b"]


def test_of_delay_and_rate_limit_the_smaller_is_used(clock):
    queue = PriorityQueue(clock, ExponentialLimiter(8.0, 100.0))
    queue.add("a", after=3.0, rate_limited=True)
    assert queue.delayed() == {"a": 3.0}
    queue.add("b", after=30.0, rate_limited=True)
    assert queue.delayed()["b"] == 8.0


def test_a_key_with_a_worker_waits_until_it_is_done_and_others_overtake(queue):
    queue.add("a")
    assert queue.get()[0] == "a"
    queue.add("a", priority=100)
    queue.add("b")
    assert queue.get()[0] == "b"
    queue.done("b")
    queue.done("a")
    assert queue.get() == ("a", 100)


def test_a_delay_that_matures_during_the_work_waits_for_its_end(queue, clock):
    queue.add("a")
    queue.get()
    queue.add_after("a", 5)
    clock.step(5)
    queue.add("b")
    assert queue.get()[0] == "b"
    queue.done("a")
    assert queue.get()[0] == "a"


def test_a_parked_key_whose_priority_is_raised_is_handed_out_once(queue):
    queue.add("a")
    queue.get()
    queue.add("a", priority=-100)
    queue.add("a", priority=3)
    queue.done("a")
    assert queue.get() == ("a", 3)
    queue.done("a")
    assert len(queue) == 0


def test_after_the_shutdown_workers_stop_even_with_keys_left(queue):
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    with pytest.raises(QueueShutDown):
        queue.get()


def test_the_shutdown_wakes_workers_and_the_timekeeper(queue, clock):
    ended = []

    def work():
        try:
            queue.get()
        except QueueShutDown:
            ended.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    queue.add_after("later", 100)
    for thread in threads:
        thread.start()
    clock.wait_for_waiters()
    queue.shut_down()
    for thread in threads:
        thread.join(5)
    assert len(ended) == 4


def test_a_waiting_worker_gets_a_delayed_key_on_time(queue, clock):
    got = []
    threads = [threading.Thread(target=lambda: got.append(queue.get()[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    queue.add_after("slow", 30)
    queue.add_after("fast", 5)
    eventually(lambda: clock.next_deadline() == 5)
    clock.step(5)
    eventually(lambda: got == ["fast"])
    eventually(lambda: clock.next_deadline() == 25)
    clock.step(25)
    for thread in threads:
        thread.join(5)
    assert got == ["fast", "slow"]


def test_the_numbers_of_a_queue_are_told(clock):
    class Recorded(QueueMetrics):
        def __init__(self):
            self.depths = {}
            self.told = []

        def depth(self, priority, change):
            self.depths[priority] = self.depths.get(priority, 0) + change

        def added(self):
            self.told.append("added")

        def retried(self):
            self.told.append("retried")

        def handed_out(self, queued):
            self.told.append(("queued", queued))

        def finished(self, worked):
            self.told.append(("worked", worked))

    metrics = Recorded()
    queue = PriorityQueue(clock, None, metrics)
    queue.add("a")
    clock.step(2)
    queue.add("a", priority=4)
    assert metrics.depths == {0: 0, 4: 1}
    queue.get()
    clock.step(3)
    queue.done("a")
    queue.add_after("a", 1)
    assert metrics.told == ["added", ("queued", 2.0), ("worked", 3.0), "retried", "added"]
    assert metrics.depths == {0: 0, 4: 0}


def test_keys_that_are_woken_early_time_and_again_leave_nothing_behind(queue, clock):
    def held():
        return sum(len(value) for value in vars(queue).values() if isinstance(value, list | dict))

    queue.add("quiet", after=1700.0)
    for turn in range(2000):
        key = f"slot-{turn % 10}"
        queue.add(key)
        queue.get()
        queue.add(key, after=1800.0)  # what a pass asks for that has nothing to do
        queue.done(key)
        clock.step(0.01)
    assert held() < 200
    assert len(queue.delayed()) == 11
    clock.step(1800.0)
    assert taken(queue) == ["quiet", *(f"slot-{number}" for number in range(10))]
