"""Numbers that a hot path keeps as it runs and that a scrape of the metrics reads.

A metric object of the client library is called through several layers for each change. What every pass changes is kept
here in plain numbers instead; `live_metrics` turns them into metrics when somebody asks.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.queue.metrics import QueueMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OUTCOMES = ("success", "error", "requeue", "requeue_after")
"""Values of the label `result` of a pass; `requeue` is never reached here, but dashboards add it up."""


class Distribution:
    """How many observed values lie below each bound, and their sum. Any thread may add.

    Args:
        bounds: ascending; the last is infinity.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Add one value; one that equals a bound lies below it."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    def read(self) -> tuple[list[tuple[float, int]], float]:
        """Each bound with the number of values up to it, and the sum of all, as of one moment."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        running = 0
        buckets = []
        for bound, count in zip(self._bounds, counts, strict=True):
            running += count
            buckets.append((bound, running))
        return buckets, total


class QueueTally(QueueMetrics):
    """The numbers of one queue, which calls this with its own lock held.

    Args:
        bounds: of both distributions, in seconds.
        processing: the seconds that each key is with a worker.
    """

    def __init__(self, bounds: Sequence[float], processing: Callable[[], Mapping[object, float]]) -> None:
        self.depths: Counter[int] = Counter({0: 0})
        self.adds = 0
        self.retries = 0
        self.queued = Distribution(bounds)
        self.worked = Distribution(bounds)
        self.processing = processing

    def depth(self, priority: int, change: int) -> None:
        """See QueueMetrics."""
        self.depths[priority] += change

    def added(self) -> None:
        """See QueueMetrics."""
        self.adds += 1

    def retried(self) -> None:
        """See QueueMetrics."""
        self.retries += 1

    def handed_out(self, queued: float) -> None:
        """See QueueMetrics."""
        self.queued.observe(queued)

    def finished(self, worked: float) -> None:
        """See QueueMetrics."""
        self.worked.observe(worked)


class PassTally:
    """The passes of one controller: how they ended, how long they took, how many are under way."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.active = 0
        self.seconds = Distribution(bounds)
        self._lock = threading.Lock()

    def begun(self) -> None:
        """A worker starts a pass."""
        with self._lock:
            self.active += 1

    def ended(self, outcome: str, seconds: float) -> None:
        """It ended as one of OUTCOMES after so many seconds."""
        self.seconds.observe(seconds)
        with self._lock:
            self.active -= 1
            self.outcomes[outcome] += 1
