"""Any interleaving: no key is lost, none is with two workers, every delay comes due."""

import threading
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.queue import (
    ExponentialLimiter,
    PriorityQueue,
    QueueShutDown,
    RateLimitingQueue,
)
from homelab_autoscaler.runtime.testing import FakeClock

KEYS = st.sampled_from("abcd")
JOBS = st.lists(st.tuples(st.sampled_from(["add", "after", "limited"]), KEYS), min_size=1, max_size=12)
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0])


class PriorityQueueModel(RuleBasedStateMachine):
    """A PriorityQueue beside the plainest thing that has the same rules."""

    def __init__(self):
        super().__init__()
        self.clock = FakeClock()
        self.queue = PriorityQueue(self.clock, ExponentialLimiter(1.0, 8.0))
        self.wanted = {}
        self.working = {}
        self.sequence = 0
        self.failures = Counter()

    def _mature(self):
        now = self.clock.monotonic()
        due = sorted((e for e in self.wanted.values() if e["at"] is not None and e["at"] <= now), key=self._when)
        for entry in due:
            self.sequence += 1
            entry.update(at=None, order=self.sequence)

    @staticmethod
    def _when(entry):
        return (entry["at"], entry["waited"])

    def _want(self, key, priority, delay):
        self._mature()
        at = self.clock.monotonic() + delay if delay > 0 else None
        self.sequence += 1
        entry = self.wanted.get(key)
        if entry is None:
            self.wanted[key] = {"priority": priority, "at": at, "order": self.sequence, "waited": self.sequence}
            return
        raised = priority > entry["priority"]
        if entry["at"] is None:
            if raised:
                entry.update(priority=priority, order=self.sequence)
            return
        if raised:
            entry["priority"] = priority
        if at is None:
            entry.update(at=None, order=self.sequence)
        elif at < entry["at"]:
            entry.update(at=at, waited=self.sequence)

    @rule(key=KEYS, priority=st.sampled_from([-100, 0, 5]))
    def add(self, key, priority):
        self.queue.add(key, priority=priority)
        self._want(key, priority, 0)

    @rule(key=KEYS, delay=DELAYS)
    def add_after(self, key, delay):
        self.queue.add_after(key, delay)
        self._want(key, 0, delay)

    @rule(key=KEYS)
    def add_rate_limited(self, key):
        self.queue.add_rate_limited(key)
        delay = min(8.0, 2.0 ** self.failures[key])
        self.failures[key] += 1
        self._want(key, 0, delay)

    @rule(key=KEYS)
    def forget(self, key):
        self.queue.forget(key)
        self.failures[key] = 0

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def time_passes(self, seconds):
        self.clock.step(seconds)
        self._mature()

    def _next(self):
        self._mature()
        ready = [(key, e) for key, e in self.wanted.items() if e["at"] is None and key not in self.working]
        return min(ready, key=lambda pair: (-pair[1]["priority"], pair[1]["order"]), default=None)

    @precondition(lambda self: self._next() is not None)
    @rule()
    def get(self):
        expected, entry = self._next()
        assert self.queue.get() == (expected, entry["priority"])
        assert expected not in self.working
        self.working[expected] = entry
        del self.wanted[expected]

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        del self.working[key]

    @invariant()
    def the_same_keys_are_ready_delayed_and_with_workers(self):
        self._mature()
        assert len(self.queue) == sum(entry["at"] is None for entry in self.wanted.values())
        assert set(self.queue.delayed()) == {key for key, entry in self.wanted.items() if entry["at"] is not None}
        assert set(self.queue.processing()) == set(self.working)


TestPriorityQueueModel = PriorityQueueModel.TestCase
TestPriorityQueueModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class ClassicQueueModel(RuleBasedStateMachine):
    """A RateLimitingQueue beside a model of its table of dirty and processing keys."""

    def __init__(self):
        super().__init__()
        self.clock = FakeClock()
        self.queue = RateLimitingQueue(self.clock, ExponentialLimiter(1.0, 8.0))
        self.order = []
        self.dirty = set()
        self.working = set()
        self.delayed = {}
        self.failures = Counter()
        self.sequence = 0

    def _mature(self):
        now = self.clock.monotonic()
        for key, _ in sorted(self.delayed.items(), key=lambda item: item[1]):
            if self.delayed[key][0] <= now:
                del self.delayed[key]
                self._add(key)

    def _add(self, key):
        if key not in self.dirty:
            self.dirty.add(key)
            if key not in self.working:
                self.order.append(key)

    def _after(self, key, delay):
        if delay <= 0:
            self._add(key)
            return
        self.sequence += 1
        due = (self.clock.monotonic() + delay, self.sequence)
        if key not in self.delayed or due[0] < self.delayed[key][0]:
            self.delayed[key] = due

    @rule(key=KEYS)
    def add(self, key):
        self.queue.add(key)
        self._add(key)

    @rule(key=KEYS, delay=DELAYS)
    def add_after(self, key, delay):
        self.queue.add_after(key, delay)
        self._after(key, delay)

    @rule(key=KEYS)
    def add_rate_limited(self, key):
        self.queue.add_rate_limited(key)
        self._after(key, min(8.0, 2.0 ** self.failures[key]))
        self.failures[key] += 1

    @rule(key=KEYS)
    def forget(self, key):
        self.queue.forget(key)
        self.failures[key] = 0

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def time_passes(self, seconds):
        self.clock.step(seconds)

    @precondition(lambda self: self.order)
    @rule()
    def get(self):
        expected = self.order.pop(0)
        assert self.queue.get() == expected
        assert expected not in self.working
        self.working.add(expected)
        self.dirty.discard(expected)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        self.working.discard(key)
        if key in self.dirty:
            self.order.append(key)

    @invariant()
    def the_same_keys_are_ready_and_with_workers(self):
        self._mature()
        assert len(self.queue) == len(self.order)
        assert set(self.queue.processing()) == self.working


TestClassicQueueModel = ClassicQueueModel.TestCase
TestClassicQueueModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Crowd(RuleBasedStateMachine):
    """Producers, workers and shutdowns in threads of their own, whatever they do and in whatever order.

    After each add a mark says that the key must be worked on at a later moment; a worker that begins takes the mark.
    What is still marked when everything is quiet was lost. A shutdown may come in the middle, from several threads at
    once: all workers end then, and a new queue with new workers goes on.
    """

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.busy = Counter()
        self.marks = set()
        self.overlaps = []
        self.pace = threading.Event()
        self.producers = []
        self._open()

    def _open(self):
        self.queue = self.make()
        self.workers = [threading.Thread(target=self._work, args=(self.queue,)) for _ in range(3)]
        for worker in self.workers:
            worker.start()

    def _work(self, queue):
        while True:
            try:
                got = queue.get()
            except QueueShutDown:
                return
            key = got[0] if isinstance(got, tuple) else got
            with self.lock:
                self.busy[key] += 1
                if self.busy[key] > 1:
                    self.overlaps.append(key)
                self.marks.discard(key)
            self.pace.wait(0.0002)
            with self.lock:
                self.busy[key] -= 1
            queue.done(key)

    def _produce(self, queue, jobs):
        for action, key in jobs:
            with self.lock:
                self.marks.add(key)
            if action == "add":
                queue.add(key)
            elif action == "after":
                queue.add_after(key, 0.001)
            else:
                queue.add_rate_limited(key)
                queue.forget(key)

    @rule(jobs=JOBS, threads=st.integers(1, 3))
    def produce(self, jobs, threads):
        for _ in range(threads):
            thread = threading.Thread(target=self._produce, args=(self.queue, jobs))
            thread.start()
            self.producers.append(thread)

    @rule(
        jobs=JOBS, promised=st.sets(KEYS), closers=st.lists(st.sampled_from(["plain", "drain"]), min_size=1, max_size=3)
    )
    def shut_down_in_the_middle(self, jobs, promised, closers):
        """What was added before any shutdown began is `promised`; what comes beside it may be taken or refused."""
        self._join_producers()
        with self.lock:
            self.marks = set(promised)
        for key in promised:
            self.queue.add(key)
        racing = [threading.Thread(target=self._produce, args=(self.queue, jobs)) for _ in range(2)]
        racing += [threading.Thread(target=self._close, args=(self.queue, how)) for how in closers]
        for thread in racing:
            thread.start()
        for thread in (*racing, *self.workers):
            thread.join(10)
            assert not thread.is_alive()
        self.queue.add("a")
        assert self.queue.processing() == {}
        with self.lock:
            self.kept(promised - {key for _, key in jobs})
            self.marks = set()
        self._open()

    def _join_producers(self):
        for producer in self.producers:
            producer.join(10)
            assert not producer.is_alive()
        self.producers = []

    @invariant()
    def no_key_is_with_two_workers(self):
        assert self.overlaps == []

    def teardown(self):
        self._join_producers()
        for _ in range(2000):
            with self.lock:
                if not self.marks:
                    break
            self.pace.wait(0.002)
        self.queue.shut_down()
        self.queue.add("a")
        for worker in self.workers:
            worker.join(10)
            assert not worker.is_alive()
        assert self.marks == set()
        assert self.overlaps == []


class PriorityCrowd(Crowd):
    @staticmethod
    def make():
        return PriorityQueue(SystemClock(), ExponentialLimiter(0.001, 0.01))

    @staticmethod
    def _close(queue, how):
        del how  # it has no drain
        queue.shut_down()

    def kept(self, promised):
        """Nothing is promised: its workers stop with keys left."""


class ClassicCrowd(Crowd):
    @staticmethod
    def make():
        return RateLimitingQueue(SystemClock(), ExponentialLimiter(0.001, 0.01))

    @staticmethod
    def _close(queue, how):
        if how == "drain":
            queue.shut_down_with_drain()
        else:
            queue.shut_down()

    def kept(self, promised):
        """Its workers finish what was queued."""
        assert not self.marks & promised


SLOW = [HealthCheck.too_slow]
TestPriorityCrowd = PriorityCrowd.TestCase
TestPriorityCrowd.settings = settings(
    max_examples=30, stateful_step_count=12, deadline=None, suppress_health_check=SLOW
)
TestClassicCrowd = ClassicCrowd.TestCase
TestClassicCrowd.settings = settings(max_examples=30, stateful_step_count=12, deadline=None, suppress_health_check=SLOW)
