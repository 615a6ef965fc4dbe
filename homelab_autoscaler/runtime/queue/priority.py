"""PriorityQueue: the queue of controllers. Real changes overtake the flood of a start-up."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from homelab_autoscaler.runtime.queue.limiters import ExponentialLimiter, RateLimiter
from homelab_autoscaler.runtime.queue.metrics import NoQueueMetrics, QueueMetrics
from homelab_autoscaler.runtime.queue.workqueue import QueueShutDown

if TYPE_CHECKING:
    from collections.abc import Hashable

    from homelab_autoscaler.runtime.clock import Clock

K = TypeVar("K", bound="Hashable")
_FEW: Final = 64
"""Times that no longer count and that are not worth a tidying."""


class _Entry(Generic[K]):
    """A key that wants a turn. `ready_at` None: now. `parked`: now, but another worker still has the key."""

    __slots__ = ("added_at", "key", "parked", "priority", "ready_at", "sequence")

    def __init__(self, key: K, priority: int, ready_at: float | None, sequence: int, added_at: float) -> None:
        self.key = key
        self.priority = priority
        self.ready_at = ready_at
        self.sequence = sequence
        self.added_at = added_at
        self.parked = False


class PriorityQueue(Generic[K]):
    """Keys in order of (priority, then order of adding); delayed keys; rate limits; one worker per key.

    One entry per key: adding it again merges. The highest priority wins and is never lowered; the earliest time
    wins, so a key that is ready stays ready, and **a delayed key that is added without a delay becomes ready and its
    later wake-up is gone**: a reconciler asks for `requeue_after` every time it still needs one.

    After the shutdown workers stop even if keys are left: what they would have done is done after the next start.

    Guarantees otherwise as WorkQueue: exclusive per key, one more turn for any number of adds during the work.
    """

    def __init__(
        self, clock: Clock, limiter: RateLimiter[K] | None = None, metrics: QueueMetrics | None = None
    ) -> None:
        self._clock = clock
        self._limiter: RateLimiter[K] = limiter or ExponentialLimiter()
        self._metrics = metrics or NoQueueMetrics()
        self._lock = threading.Lock()
        # An idle worker waits on a condition of its own; a single one of them, the timekeeper, for the next delay.
        # The last to fall idle is the first to be woken: its memory is still warm.
        self._idle: list[threading.Condition] = []
        self._timer = threading.Condition(self._lock)
        self._timekeeper = False
        self._entries: dict[K, _Entry[K]] = {}
        self._ready: list[tuple[int, int, _Entry[K]]] = []
        self._waiting: list[tuple[float, int, _Entry[K]]] = []
        self._ready_count = 0
        self._processing: dict[K, tuple[float, int]] = {}
        self._sequence = itertools.count()
        self._shutting_down = False

    # --- adding -------------------------------------------------------------------------------------------

    def add(
        self, key: K, *, priority: int | None = None, after: float | None = None, rate_limited: bool = False
    ) -> None:
        """Ask for a turn. Ignored after the shutdown.

        Args:
            key: which.
            priority: higher goes first; None is 0.
            after: seconds from now; with `rate_limited` the smaller of both delays is used.
            rate_limited: wait as long as the limiter says, and count a failure.
        """
        delay = after if after is not None and after > 0 else 0.0
        if rate_limited:
            limit = self._limiter.when(key)
            delay = limit if after is None or after <= 0 else min(limit, after)
        with self._lock:
            if not self._shutting_down:
                self._merge(key, priority or 0, delay)

    def add_after(self, key: K, seconds: float, *, priority: int | None = None) -> None:
        """`add` with a delay."""
        self.add(key, priority=priority, after=seconds)

    def add_rate_limited(self, key: K, *, priority: int | None = None) -> None:
        """`add` with the limiter's delay."""
        self.add(key, priority=priority, rate_limited=True)

    def forget(self, key: K) -> None:
        """Forget the failures of a key."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """How many failures of a key are counted."""
        return self._limiter.retries(key)

    # --- working ------------------------------------------------------------------------------------------

    def get(self) -> tuple[K, int]:
        """Wait for a key; returns it with its priority. Call `done` with it afterwards.

        Raises:
            QueueShutDown: it is shut down, whether or not keys are left.
        """
        with self._lock:
            while True:
                if self._shutting_down:
                    raise QueueShutDown
                self._mature()
                entry = self._pop_ready()
                if entry is not None:
                    return self._hand_out(entry)
                self._wait()

    def done(self, key: K) -> None:
        """The work on this key has ended, well or not. Ignored for a key that nobody has."""
        with self._lock:
            taken = self._processing.pop(key, None)
            if taken is None:
                return
            self._metrics.finished(max(0.0, self._clock.monotonic() - taken[0]))
            entry = self._entries.get(key)
            if entry is not None and entry.parked:
                entry.parked = False
                heapq.heappush(self._ready, (-entry.priority, entry.sequence, entry))
                self._wake_one()

    def shut_down(self) -> None:
        """Take no more keys and let every `get` raise. Harmless when repeated."""
        with self._lock:
            self._shutting_down = True
            for idle in self._idle:
                idle.notify()
            self._idle.clear()
            self._timer.notify_all()

    @property
    def shutting_down(self) -> bool:
        """Whether the shutdown was asked for."""
        return self._shutting_down

    def __len__(self) -> int:
        """How many keys are ready, including those that wait for a worker to finish with them."""
        with self._lock:
            self._mature()
            return self._ready_count

    def delayed(self) -> dict[K, float]:
        """Keys that wait for a time, with the seconds left."""
        with self._lock:
            now = self._clock.monotonic()
            return {k: e.ready_at - now for k, e in self._entries.items() if e.ready_at is not None}

    def processing(self) -> dict[K, float]:
        """The keys that are with workers, each with the seconds since it was handed out."""
        with self._lock:
            now = self._clock.monotonic()
            return {key: max(0.0, now - since) for key, (since, _) in self._processing.items()}

    # --- with the lock held -------------------------------------------------------------------------------

    def _merge(self, key: K, priority: int, delay: float) -> None:
        self._mature()
        now = self._clock.monotonic()
        ready_at = now + delay if delay > 0 else None
        if ready_at is not None:
            self._metrics.retried()
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(key, priority, ready_at, next(self._sequence), now)
            self._entries[key] = entry
            self._metrics.added()
            if ready_at is None:
                self._make_ready(entry)
            else:
                self._make_wait(entry)
            return
        raised = priority > entry.priority
        if entry.ready_at is None:
            if raised:
                self._metrics.depth(entry.priority, -1)
                self._metrics.depth(priority, 1)
                entry.priority = priority
                entry.sequence = next(self._sequence)
                if not entry.parked:
                    heapq.heappush(self._ready, (-priority, entry.sequence, entry))
            return
        if raised:
            entry.priority = priority
        if ready_at is None:
            entry.ready_at = None
            entry.sequence = next(self._sequence)
            self._make_ready(entry)
        elif ready_at < entry.ready_at:
            entry.ready_at = ready_at
            self._make_wait(entry)

    def _make_ready(self, entry: _Entry[K]) -> None:
        entry.added_at = self._clock.monotonic()
        self._ready_count += 1
        self._metrics.depth(entry.priority, 1)
        if entry.key in self._processing:
            entry.parked = True
            return
        heapq.heappush(self._ready, (-entry.priority, entry.sequence, entry))
        self._wake_one()

    def _make_wait(self, entry: _Entry[K]) -> None:
        assert entry.ready_at is not None
        if len(self._waiting) > _FEW + 2 * len(self._entries):
            self._tidy()
        item = (entry.ready_at, next(self._sequence), entry)
        heapq.heappush(self._waiting, item)
        if self._waiting[0] is item:
            if self._timekeeper:
                self._timer.notify()
            else:
                self._wake_one()

    def _tidy(self) -> None:
        """Drop the times that no longer count: a key that is woken early leaves its later wake-up behind."""
        self._waiting = [item for item in self._waiting if self._counts(item[0], item[2])]
        heapq.heapify(self._waiting)

    def _counts(self, ready_at: float, entry: _Entry[K]) -> bool:
        return self._entries.get(entry.key) is entry and entry.ready_at == ready_at

    def _mature(self) -> None:
        if not self._waiting:
            return
        now = self._clock.monotonic()
        while self._waiting:
            ready_at, _, entry = self._waiting[0]
            current = self._counts(ready_at, entry)
            if current and ready_at > now:
                return
            heapq.heappop(self._waiting)
            if current:
                entry.ready_at = None
                entry.sequence = next(self._sequence)
                self._make_ready(entry)

    def _pop_ready(self) -> _Entry[K] | None:
        while self._ready:
            priority, sequence, entry = heapq.heappop(self._ready)
            if (
                self._entries.get(entry.key) is entry
                and entry.ready_at is None
                and not entry.parked
                and entry.sequence == sequence
                and entry.priority == -priority
            ):
                return entry
        return None

    def _hand_out(self, entry: _Entry[K]) -> tuple[K, int]:
        now = self._clock.monotonic()
        del self._entries[entry.key]
        self._ready_count -= 1
        self._metrics.depth(entry.priority, -1)
        self._metrics.handed_out(max(0.0, now - entry.added_at))
        self._processing[entry.key] = (now, entry.priority)
        if self._ready or (self._waiting and not self._timekeeper):
            self._wake_one()
        return entry.key, entry.priority

    def _wait(self) -> None:
        if self._waiting and not self._timekeeper:
            self._timekeeper = True
            try:
                self._clock.wait(self._timer, max(0.0, self._waiting[0][0] - self._clock.monotonic()))
            finally:
                self._timekeeper = False
        else:
            idle = threading.Condition(self._lock)
            self._idle.append(idle)
            self._clock.wait(idle, None)
            if idle in self._idle:  # nobody woke it
                self._idle.remove(idle)

    def _wake_one(self) -> None:
        # Whoever is woken is no idle waiter any more, so that the next wake-up goes to somebody else.
        if self._idle:
            self._idle.pop().notify()
        else:
            self._timer.notify()
