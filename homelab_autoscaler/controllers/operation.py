"""The operation controller: keeps every boot and shutdown that is under way company until it is over.

It looks only at slots that a slot pass told it of (`ensure`), wakes on events of their objects and, as a fallback, on
the monitor's poll. What it knows beyond the objects is that list of slots, and the first pass over each slot after a
restart makes the list again: that carries a boot over a restart. It is a controller of its own so that operations do
not queue behind the passes of a thousand slots at rest. Source: state management, "Async operations"; model section 3,
footnote 2.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

from homelab_api.meta import KubeObject
from homelab_autoscaler.lifecycle.lock import LockRefusedError
from homelab_autoscaler.runtime import Request, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from homelab_autoscaler.lifecycle.monitor import OperationMonitor
    from homelab_autoscaler.runtime import Clock

T = TypeVar("T", bound=KubeObject)

RETRY_FIRST: Final = 0.05
"""Seconds before a step that lost a race looks again: the cache needs a moment to see the other write."""
RETRY_LAST: Final = 5.0
"""Seconds between tries while the API server fails; an event comes before that anyway."""


class OperationReconciler:
    """Reconciles the slots that have an operation under way.

    Args:
        monitor: one step of it.
        clock: the manager's.
        poll: most seconds between two steps.
    """

    def __init__(self, monitor: OperationMonitor, clock: Clock, poll: float) -> None:
        self._monitor = monitor
        self._clock = clock
        self._poll = poll
        self._lock = threading.Lock()
        self._followed: set[Request] = set()
        self._enqueue: Callable[[Request], None] | None = None

    def attach(self, enqueue: Callable[[Request], None]) -> None:
        """Tell it how to ask its controller for a pass; until then `ensure` only remembers."""
        self._enqueue = enqueue

    def ensure(self, namespace: str, name: str) -> None:
        """Make sure that the slot's operation is followed, and looked at now."""
        request = Request(namespace, name)
        with self._lock:
            self._followed.add(request)
        if self._enqueue is not None:
            self._enqueue(request)

    def followed(self, mapper: Callable[[T], Iterable[Request]]) -> Callable[[T], list[Request]]:
        """The same mapper, for slots with an operation under way."""

        def requests(obj: T) -> list[Request]:
            found = mapper(obj)
            with self._lock:
                return [request for request in found if request in self._followed]

        return requests

    def reconcile(self, request: Request) -> Result:
        """One step; the slot is forgotten when its operation needs no more.

        A slot that is named again meanwhile is not lost: `ensure` has queued a pass, and that pass remembers it.
        """
        with self._lock:
            self._followed.add(request)
        try:
            again_at = self._monitor.step(request.namespace, request.name)
        except LockRefusedError as refusal:
            return self._again(refusal.until)
        if again_at is not None:
            return self._again(again_at)
        with self._lock:
            self._followed.discard(request)
        return Result()

    def _again(self, at: datetime) -> Result:
        seconds = (at - self._clock.now()).total_seconds()
        return Result(requeue_after=min(self._poll, max(RETRY_FIRST, seconds)))
