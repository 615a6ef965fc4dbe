"""What a queue reports about itself."""

from __future__ import annotations

from typing import Protocol


class QueueMetrics(Protocol):
    """Receives the numbers of one queue; `tally.QueueTally` is the real one."""

    def depth(self, priority: int, change: int) -> None:
        """`change` more (or fewer) keys of that priority are ready."""
        ...

    def added(self) -> None:
        """A key was added that was not waiting to be handed out."""
        ...

    def retried(self) -> None:
        """A key was added with a delay."""
        ...

    def handed_out(self, queued: float) -> None:
        """A key was handed out after so many seconds in the queue."""
        ...

    def finished(self, worked: float) -> None:
        """A key was done after so many seconds of work."""
        ...


class NoQueueMetrics(QueueMetrics):
    """Reports nothing."""

    def depth(self, priority: int, change: int) -> None:
        """See QueueMetrics."""

    def added(self) -> None:
        """See QueueMetrics."""

    def retried(self) -> None:
        """See QueueMetrics."""

    def handed_out(self, queued: float) -> None:
        """See QueueMetrics."""

    def finished(self, worked: float) -> None:
        """See QueueMetrics."""
