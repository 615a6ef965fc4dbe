"""WorkQueue: each key once, never two workers on one key.

The first of three layers (`DelayingQueue`, `RateLimitingQueue` add one ability each). `PriorityQueue` has all three
and an order, and is what controllers use; these are for programs that want the classic behaviour.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from homelab_autoscaler.runtime.queue.metrics import NoQueueMetrics, QueueMetrics

if TYPE_CHECKING:
    from collections.abc import Hashable

    from homelab_autoscaler.runtime.clock import Clock

K = TypeVar("K", bound="Hashable")


class QueueShutDown(Exception):  # noqa: N818 - the normal end of a worker, not an error
    """The queue is shut down and has nothing more to hand out."""


class WorkQueue(Generic[K]):
    """A queue of keys for several workers.

    Guarantees: a key is with at most one worker at a time; any number of adds while it is with one cause exactly one
    more turn, at the tail; nothing that was added before the shutdown is lost. Every `get` must be paired with `done`,
    also when the work failed.
    """

    def __init__(self, clock: Clock, metrics: QueueMetrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics or NoQueueMetrics()
        lock = threading.RLock()
        self._condition = threading.Condition(lock)
        self._drained = threading.Condition(lock)
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        self._processing: dict[K, float] = {}
        self._shutting_down = False
        self._draining = False

    def add(self, key: K) -> None:
        """Ask for a turn of this key. Ignored after the shutdown."""
        with self._condition:
            self._add(key)

    def get(self) -> K:
        """Wait for a key; call `done` with it afterwards.

        Raises:
            QueueShutDown: it is shut down and empty.
        """
        with self._condition:
            while True:
                self._mature()
                if self._ready:
                    return self._hand_out()
                if self._shutting_down:
                    raise QueueShutDown
                self._clock.wait(self._condition, self._next_due())

    def done(self, key: K) -> None:
        """The work on this key has ended, well or not. Ignored for a key that nobody has."""
        with self._condition:
            since = self._processing.pop(key, None)
            if since is None:
                return
            self._metrics.finished(max(0.0, self._clock.monotonic() - since))
            if key in self._dirty:
                self._append(key)
            if not self._processing:
                self._drained.notify_all()

    def shut_down(self) -> None:
        """Take no more keys; hand out what is queued, then let `get` raise. Also releases `shut_down_with_drain`."""
        with self._condition:
            self._shutting_down = True
            self._draining = False
            self._condition.notify_all()
            self._drained.notify_all()

    def shut_down_with_drain(self) -> None:
        """As `shut_down`, and wait until no key is queued or with a worker; a later `shut_down` ends the wait."""
        with self._condition:
            self._shutting_down = True
            self._draining = True
            self._condition.notify_all()
            while self._draining and (self._processing or self._ready):
                self._clock.wait(self._drained, None)

    @property
    def shutting_down(self) -> bool:
        """Whether a shutdown was asked for."""
        return self._shutting_down

    def __len__(self) -> int:
        """How many keys are ready, without those that are with workers or delayed."""
        with self._condition:
            self._mature()
            return len(self._ready)

    def processing(self) -> dict[K, float]:
        """The keys that are with workers, each with the seconds since it was handed out."""
        with self._condition:
            now = self._clock.monotonic()
            return {key: max(0.0, now - since) for key, since in self._processing.items()}

    # --- for the layer above, with the lock held ----------------------------------------------------------

    def _add(self, key: K) -> None:
        if self._shutting_down or key in self._dirty:
            return
        self._metrics.added()
        self._dirty[key] = self._clock.monotonic()
        if key not in self._processing:
            self._append(key)

    def _append(self, key: K) -> None:
        self._ready.append(key)
        self._metrics.depth(0, 1)
        self._condition.notify()

    def _hand_out(self) -> K:
        key = self._ready.popleft()
        now = self._clock.monotonic()
        self._metrics.depth(0, -1)
        self._metrics.handed_out(max(0.0, now - self._dirty.pop(key)))
        self._processing[key] = now
        if self._ready or self._next_due() is not None:
            # Whoever waited for a timer may be the one who leaves now: somebody else must watch it.
            self._condition.notify()
        return key

    def _mature(self) -> None:
        """Move keys whose delay is over to the ready ones."""

    def _next_due(self) -> float | None:
        """Seconds until the next delay is over, None if nothing is delayed."""
        return None
