"""Delivery: each handler hears events in order, one at a time, without waiting for other handlers.

A handler has a buffer and a thread, so that none can hold up another or the informer. One that is known to return
within microseconds may be called without them, by the thread that changed the store: a hand-over between threads costs
several times what such a handler does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from homelab_api.meta import KubeObject
from homelab_autoscaler.runtime.event import CreateEvent, Event, UpdateEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

T = TypeVar("T", bound=KubeObject)
Handler = Callable[[Event[T]], None]
_PAUSE_AFTER_ERROR = 1.0
_log = structlog.get_logger("homelab_autoscaler.runtime.informer")


class Registration(Generic[T]):
    """One handler of an informer, with its buffer and its thread.

    The buffer has no bound: a handler must only compute keys and put them on a queue.

    Attributes:
        name: for logs and the thread.
        resync_period: seconds between replays of the store to this handler; None for none.
        direct: it has neither buffer nor thread.
    """

    def __init__(
        self, name: str, handler: Handler[T], clock: Clock, resync_period: float | None, *, direct: bool = False
    ) -> None:
        self.name = name
        self.resync_period = resync_period
        self.direct = direct
        self._handler = handler
        self._clock = clock
        self._condition = threading.Condition()
        self._buffer: deque[Event[T]] = deque()
        self._accepted = 0
        self._delivered = 0
        self._initial_mark: int | None = None
        self._removed = False
        self.next_resync: float | None = None

    def has_synced(self) -> bool:
        """True once everything that the first list held has been delivered to this handler.

        This, not the informer's flag, is what a controller waits for before it starts its workers.
        """
        with self._condition:
            return self._initial_mark is not None and self._delivered >= self._initial_mark

    def wait_for_sync(self, stop: StopSignal, timeout: float) -> bool:
        """Wait for `has_synced`; False when stopped or out of time."""
        deadline = self._clock.monotonic() + timeout
        remove = stop.on_set(self._wake)
        try:
            with self._condition:
                while self._initial_mark is None or self._delivered < self._initial_mark:
                    remaining = deadline - self._clock.monotonic()
                    if stop.is_set() or self._removed or remaining <= 0:
                        return False
                    self._clock.wait(self._condition, remaining)
                return True
        finally:
            remove()

    def push(self, event: Event[T]) -> None:
        """Append to the buffer. Resyncs reach only a handler that asked for them."""
        if self.resync_period is None and isinstance(event, UpdateEvent) and event.unchanged:
            return
        if self.direct:
            if not self._removed:
                self._call(event)
            return
        with self._condition:
            if self._removed:
                return
            self._buffer.append(event)
            self._accepted += 1
            self._condition.notify_all()

    def replay(self, objects: Iterable[T]) -> None:
        """Tell of these objects as unchanged, except of those of which something newer is still in the buffer."""
        with self._condition:
            waiting = {_key(event) for event in self._buffer}
        for obj in objects:
            if (obj.namespace, obj.name) not in waiting:
                self.push(UpdateEvent(obj, obj))

    def mark_initial(self) -> None:
        """All of the initial list has been pushed."""
        with self._condition:
            if self._initial_mark is None:
                self._initial_mark = self._accepted
                self._condition.notify_all()

    def remove(self) -> None:
        """Deliver nothing more. The call that is under way ends by itself. Harmless when repeated."""
        with self._condition:
            self._removed = True
            self._buffer.clear()
            self._condition.notify_all()

    @property
    def removed(self) -> bool:
        """Whether `remove` was called."""
        return self._removed

    @property
    def pending(self) -> int:
        """Events in the buffer or being delivered."""
        with self._condition:
            return self._accepted - self._delivered

    def run(self, stop: StopSignal) -> None:
        """Deliver until stopped or removed."""
        remove = stop.on_set(self._wake)
        try:
            while True:
                with self._condition:
                    while not self._buffer and not self._removed and not stop.is_set():
                        self._clock.wait(self._condition, None)
                    if self.removed or stop.is_set():
                        return
                    batch = list(self._buffer)
                    self._buffer.clear()
                for event in batch:
                    if self._removed or stop.is_set():
                        return
                    self._deliver(event, stop)
        finally:
            remove()

    def _deliver(self, event: Event[T], stop: StopSignal) -> None:
        if not self._call(event):
            self._clock.sleep(_PAUSE_AFTER_ERROR, stop)
        with self._condition:
            self._delivered += 1
            if self._initial_mark == self._delivered:
                self._condition.notify_all()

    def _call(self, event: Event[T]) -> bool:
        try:
            self._handler(event)
        except Exception:  # noqa: BLE001 - a bug in one handler must not end the delivery
            _log.exception("handler failed; the event is lost to it", handler=self.name, initial=_is_initial(event))
            return False
        return True

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


def _key(event: Event[T]) -> tuple[str, str]:
    obj = event.new if isinstance(event, UpdateEvent) else event.object
    return obj.namespace, obj.name


def _is_initial(event: Event[T]) -> bool:
    return isinstance(event, CreateEvent) and event.initial
