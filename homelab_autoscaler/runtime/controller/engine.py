"""The engine of a controller: sources into a queue, workers out of it.

What a pass's outcome does to the queue:

| outcome | queue | `result` label |
|---|---|---|
| `requeue_after` > 0 | failures forgotten, added after that time | requeue_after |
| any other Result | failures forgotten | success |
| TerminalError | nothing; failures stay counted | error |
| ConflictError | added with back-off, told quietly: a normal race | error |
| any other exception | added with back-off, same priority | error |

An exception that only a bug raises (a failed assertion, a missing attribute or key, a wrong type) is counted as a
panic too; the worker goes on.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import structlog

from homelab_autoscaler.runtime import deadline
from homelab_autoscaler.runtime.errors import ApiError, ConflictError, DeadlineExceededError
from homelab_autoscaler.runtime.event import CreateEvent, UpdateEvent
from homelab_autoscaler.runtime.handler import enqueue_self
from homelab_autoscaler.runtime.queue import PriorityQueue, QueueShutDown, RateLimiter
from homelab_autoscaler.runtime.reconcile import LOW_PRIORITY, Reconciler, Request, Result, TerminalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from homelab_autoscaler.runtime.cache import Cache, Informer, Registration
    from homelab_autoscaler.runtime.channel import Channel
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.controller.gate import ConsistencyGate
    from homelab_autoscaler.runtime.event import Event
    from homelab_autoscaler.runtime.handler import EventMapper
    from homelab_autoscaler.runtime.metrics import Metrics
    from homelab_autoscaler.runtime.predicate import Predicate
    from homelab_autoscaler.runtime.stop import StopSignal

STALE_RETRY = 0.1
DEFAULT_SYNC_TIMEOUT = 120.0
_BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError)
_log = structlog.get_logger("homelab_autoscaler.runtime.controller")


class CacheSyncError(Exception):
    """The first lists did not come in time; the text names the kinds."""


class Engine:
    """One controller's machinery. Made by ControllerBuilder, run by the manager.

    Args:
        name: unique in the process; label of logs and metrics.
        reconciler: does the work.
        clock: time.
        cache: what the reconciler reads; its informers are awaited before the first pass.
        metrics: where numbers go.
        kind: the reconciled kind, for logs and for telling re-created objects apart.
        workers: passes at the same time, of different objects.
        reconcile_timeout: seconds that a pass may take before it sends nothing more; None for no limit.
        rate_limiter: back-off of failing requests; 5 ms doubling to 1000 s by default.
        sync_timeout: seconds for the first lists.
        gate: read-your-writes; None for none.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        clock: Clock,
        cache: Cache,
        metrics: Metrics,
        *,
        kind: str = "",
        workers: int = 1,
        reconcile_timeout: float | None = 60.0,
        rate_limiter: RateLimiter[Request] | None = None,
        sync_timeout: float = DEFAULT_SYNC_TIMEOUT,
        gate: ConsistencyGate | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"controller {name}: workers must be at least 1, got {workers}")
        self.name = name
        self.workers = workers
        self._kind = kind
        self._reconciler = reconciler
        self._clock = clock
        self._cache = cache
        self._metrics = metrics
        self._timeout = reconcile_timeout
        self._sync_timeout = sync_timeout
        self._gate = gate
        self._lock = threading.Lock()
        self._started = False
        self._registrations: list[Registration[Any]] = []
        self._watches: list[Callable[[], Registration[Any]]] = []
        self._warm = False
        self.queue: PriorityQueue[Request] = PriorityQueue(clock, rate_limiter, metrics.queue(name, self._running))
        self._passes = metrics.passes(name)
        self._error_total = metrics.reconcile_errors.labels(name)
        self._terminal_total = metrics.terminal_errors.labels(name)
        self._panic_total = metrics.reconcile_panics.labels(name)
        self._timeout_total = metrics.reconcile_timeouts.labels(name)
        self._stale_total = metrics.stale_skips.labels(name)
        metrics.max_concurrent.labels(name).set(workers)

    # --- sources ------------------------------------------------------------------------------------------

    def watch(
        self,
        informer: Informer[Any],
        mapper: EventMapper,
        predicate: Predicate | None = None,
        resync_period: float | None = None,
    ) -> None:
        """Wake requests on events of an informer; before the start it is remembered, after it begins at once.

        Code of the caller (a predicate, a mapper) runs in a thread of its own, where it can hold up nobody else.
        """
        direct = predicate is None and mapper is enqueue_self
        handler = self._handler(mapper, predicate)

        def begin() -> Registration[Any]:
            return informer.add_handler(handler, name=self.name, resync_period=resync_period, direct=direct)

        with self._lock:
            if not self._warm:
                self._watches.append(begin)
                return
        self._registrations.append(begin())

    def listen(self, channel: Channel[Any], mapper: EventMapper, predicate: Predicate | None = None) -> None:
        """Wake requests on events of a channel, at once; they wait on the queue until the workers start."""
        channel.listen(self._handler(mapper, predicate))

    def _handler(self, mapper: EventMapper, predicate: Predicate | None) -> Callable[[Event[Any]], None]:
        def handler(event: Event[Any]) -> None:
            if predicate is not None and not predicate(event):
                return
            priority = _priority(event)
            for request in mapper(event):
                self.queue.add(request, priority=priority)

        return handler

    def enqueue(self, request: Request, *, priority: int = 0) -> None:
        """Ask for a pass."""
        self.queue.add(request, priority=priority)

    def enqueue_after(self, request: Request, seconds: float, *, priority: int = 0) -> None:
        """Ask for a pass after a time."""
        self.queue.add(request, after=seconds, priority=priority)

    def _running(self) -> Mapping[Any, float]:
        return self.queue.processing()

    # --- life ---------------------------------------------------------------------------------------------

    def warm_up(self, stop: StopSignal) -> None:
        """Begin to fill the queue and wait for the first lists, without working on anything.

        Raises:
            CacheSyncError: they did not come in time.
        """
        with self._lock:
            if not self._warm:
                self._warm = True
                self._registrations = [begin() for begin in self._watches]
        deadline_at = self._clock.monotonic() + self._sync_timeout
        ready = all(r.wait_for_sync(stop, deadline_at - self._clock.monotonic()) for r in self._registrations)
        ready = ready and self._cache.wait_for_sync(stop, max(0.0, deadline_at - self._clock.monotonic()))
        if not ready and not stop.is_set():
            missing = ", ".join(self._cache.unsynced()) or "events not yet delivered"
            raise CacheSyncError(
                f"controller {self.name}: no complete list within {self._sync_timeout:g} s of: {missing}"
            )

    def run(self, stop: StopSignal) -> None:
        """Work until stopped; each worker ends the request it has, then this returns.

        Raises:
            RuntimeError: it was started before.
            CacheSyncError: the first lists did not come in time.
        """
        with self._lock:
            if self._started:
                raise RuntimeError(f"controller {self.name} was started before")
            self._started = True
        self.warm_up(stop)
        remove = stop.on_set(self.queue.shut_down)
        threads = [
            threading.Thread(target=self._work, name=f"{self.name}/worker-{number}", daemon=True)
            for number in range(self.workers)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            remove()

    def _work(self) -> None:
        structlog.contextvars.bind_contextvars(controller=self.name)
        while True:
            try:
                request, priority = self.queue.get()
            except QueueShutDown:
                return
            try:
                self.process(request, priority)
            finally:
                self.queue.done(request)

    def process(self, request: Request, priority: int = 0) -> None:
        """One pass of one request with all that belongs to it. Never raises for what the reconciler does."""
        if self._gate is not None and not self._gate.open_for(request):
            self._stale_total.inc()
            self.queue.add(request, after=STALE_RETRY, priority=priority)
            return
        self._passes.begun()
        started = self._clock.monotonic()
        context = structlog.contextvars.bind_contextvars(object=str(request), reconcile_id=_reconcile_id())
        outcome = "error"
        try:
            outcome = self._reconcile(request, priority, started)
        finally:
            structlog.contextvars.reset_contextvars(**context)
            self._passes.ended(outcome, max(0.0, self._clock.monotonic() - started))

    def _reconcile(self, request: Request, priority: int, started: float) -> str:
        try:
            with deadline.time_limit(self._clock, self._timeout):
                if self._gate is None:
                    result = self._reconciler.reconcile(request)
                else:
                    with self._gate.recording(request):
                        result = self._reconciler.reconcile(request)
        except Exception as error:  # noqa: BLE001 - whatever a pass raises is an outcome
            self._count_timeout(started, error)
            self._failed(request, priority, error)
            return "error"
        self._count_timeout(started, None)
        return self._succeeded(request, priority, result)

    def _succeeded(self, request: Request, priority: int, result: Result | None) -> str:
        self.queue.forget(request)
        if result is not None and result.requeue_after is not None and result.requeue_after > 0:
            wanted = priority if result.priority is None else result.priority
            self.queue.add(request, after=result.requeue_after, priority=wanted)
            return "requeue_after"
        return "success"

    def _failed(self, request: Request, priority: int, error: Exception) -> None:
        self._error_total.inc()
        if isinstance(error, TerminalError):
            self._terminal_total.inc()
            _log.error("reconcile failed for good", error=str(error), kind=self._kind, exc_info=error.__cause__)
            return
        if isinstance(error, ConflictError):
            _log.debug("reconcile met a conflict", error=str(error), kind=self._kind)
        elif isinstance(error, ApiError):
            _log.warning("reconcile failed", error=str(error), kind=self._kind)
        else:
            if isinstance(error, _BUGS):
                self._panic_total.inc()
            _log.error("reconcile broke", error=str(error), kind=self._kind, exc_info=error)
        self.queue.add_rate_limited(request, priority=priority)

    def _count_timeout(self, started: float, error: Exception | None) -> None:
        if self._timeout is None:
            return
        over = self._clock.monotonic() - started >= self._timeout
        if over or isinstance(error, DeadlineExceededError):
            self._timeout_total.inc()
            _log.warning("reconcile took longer than its limit", limit=self._timeout, kind=self._kind)


def _reconcile_id() -> str:
    return f"{random.getrandbits(64):016x}"


def _priority(event: Event[Any]) -> int:
    if isinstance(event, CreateEvent):
        return LOW_PRIORITY if event.initial else 0
    if isinstance(event, UpdateEvent):
        return LOW_PRIORITY if event.unchanged else 0
    return 0
