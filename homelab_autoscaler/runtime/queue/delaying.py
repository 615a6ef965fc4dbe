"""DelayingQueue and RateLimitingQueue: the second and third layer over WorkQueue."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, TypeVar

from homelab_autoscaler.runtime.queue.limiters import RateLimiter, default_limiter
from homelab_autoscaler.runtime.queue.workqueue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.queue.metrics import QueueMetrics

K = TypeVar("K", bound="Hashable")


class DelayingQueue(WorkQueue[K]):
    """A WorkQueue that can add later.

    One wait per key: a second `add_after` can only make it earlier. A plain `add` does not cancel a waiting one: it
    will come again. Delays need no thread: the workers that wait for keys wait for the nearest delay.
    """

    def __init__(self, clock: Clock, metrics: QueueMetrics | None = None) -> None:
        super().__init__(clock, metrics)
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = itertools.count()

    def add_after(self, key: K, seconds: float) -> None:
        """Add after a delay; at once if it is not positive. Ignored after the shutdown."""
        with self._condition:
            if self._shutting_down:
                return
            if seconds <= 0:
                self._add(key)
                return
            self._metrics.retried()
            due = self._clock.monotonic() + seconds
            known = self._due.get(key)
            if known is not None and known <= due:
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._sequence), key))
            if self._heap[0][2] == key:
                self._condition.notify_all()

    def shut_down(self) -> None:
        """See WorkQueue; keys whose delay is not over are dropped."""
        with self._condition:
            self._due.clear()
            self._heap.clear()
            super().shut_down()

    def shut_down_with_drain(self) -> None:
        """See WorkQueue; keys whose delay is not over are dropped."""
        with self._condition:
            self._due.clear()
            self._heap.clear()
            super().shut_down_with_drain()

    def _mature(self) -> None:
        now = self._clock.monotonic()
        while self._heap and (self._heap[0][0] <= now or self._stale(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if not self._stale(entry):
                del self._due[entry[2]]
                self._add(entry[2])

    def _stale(self, entry: tuple[float, int, K]) -> bool:
        return self._due.get(entry[2]) != entry[0]

    def _next_due(self) -> float | None:
        return max(0.0, self._heap[0][0] - self._clock.monotonic()) if self._heap else None


class RateLimitingQueue(DelayingQueue[K]):
    """A DelayingQueue that knows how long a failed key should wait."""

    def __init__(
        self, clock: Clock, limiter: RateLimiter[K] | None = None, metrics: QueueMetrics | None = None
    ) -> None:
        super().__init__(clock, metrics)
        self._limiter: RateLimiter[K] = limiter or default_limiter(clock)

    def add_rate_limited(self, key: K) -> None:
        """Add after the wait that the limiter names; counts as one more failure."""
        self.add_after(key, self._limiter.when(key))

    def forget(self, key: K) -> None:
        """Forget the failures of a key. Neither removes it nor replaces `done`."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """How many failures of a key are counted."""
        return self._limiter.retries(key)
