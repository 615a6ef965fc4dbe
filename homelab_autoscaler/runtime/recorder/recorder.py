"""EventRecorder: tells people about objects, without ever making anyone wait."""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from homelab_autoscaler.runtime.errors import (
    ApiError,
    InternalServerError,
    ServerTimeoutError,
    TooManyRequestsError,
    TransportError,
    UnavailableError,
)
from homelab_autoscaler.runtime.recorder.correlator import LruTable, Observation
from homelab_autoscaler.runtime.recorder.model import ObjectReference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from homelab_api.meta import KubeObject
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

EventType = Literal["Normal", "Warning"]
QUEUE_SIZE = 1000
TRIES = 12
RETRY_AFTER = 10.0
MESSAGE_LIMIT = 1024
DEDUPE_WINDOW = 120.0
_RETRIED = (TransportError, TooManyRequestsError, InternalServerError, UnavailableError, ServerTimeoutError)
_log = structlog.get_logger("homelab_autoscaler.runtime.recorder")


class EventSink(Protocol):
    """Writes observations as events of one API; `CoreSink` and `SeriesSink` are the two."""

    def write(self, observation: Observation) -> bool:
        """Correlate and write one; False when it was dropped as chatter. Raises ApiError; may be called again then."""
        ...

    def flush(self) -> float | None:
        """Write what was held back and is due; seconds until the next such time, None if there is none."""
        ...


class EventRecorder:
    """Puts events on a bounded queue that one thread writes to the API server.

    Guarantees: `event` never blocks and never raises for the server's sake; an event that the server cannot take now
    is tried up to 12 times, about 10 s apart. Non-guarantees: events are dropped when the queue is full, when an
    object has too many, when the server refuses them, and when the process ends. Never read events to decide.

    Args:
        sink: where and in which form they are written.
        clock: time.
        on_dropped: told the cause (`queue full`, `spam`, `refused`, `gave up`) of each event that is not written.
        queue_size: bound of the queue.
        rng: spreads the first retry.
    """

    def __init__(
        self,
        sink: EventSink,
        clock: Clock,
        *,
        on_dropped: Callable[[str], None] | None = None,
        queue_size: int = QUEUE_SIZE,
        rng: random.Random | None = None,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._on_dropped = on_dropped
        self._queue_size = queue_size
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._condition = threading.Condition()
        self._queue: deque[Observation] = deque()
        self._recent: LruTable[float] = LruTable(4096)
        self._busy = False
        self._closed = False

    def event(
        self,
        obj: KubeObject,
        type_: EventType,
        reason: str,
        message: str,
        *,
        dedupe: Sequence[str] | None = None,
        window: float = DEDUPE_WINDOW,
    ) -> None:
        """Record that something happened to an object.

        Args:
            obj: what it is about; cluster-scoped objects' events are kept in namespace `default`.
            type_: Warning for what people should look at.
            reason: one CamelCase word for machines and filters.
            message: a sentence for people; cut to 1,024 characters.
            dedupe: what makes this event the same as another of its object and reason, whatever the message says (an
                empty sequence: always the same); a repetition within `window` is dropped. None: every event counts.
            window: seconds for which a repetition by `dedupe` is dropped.
        """
        reference = ObjectReference(
            api_version=obj.resource.api_version,
            kind=obj.resource.kind,
            namespace=obj.namespace or None,
            name=obj.name,
            uid=obj.uid or None,
            resource_version=obj.metadata.resource_version or None,
        )
        observation = Observation(reference, type_, reason, message[:MESSAGE_LIMIT], self._clock.now())
        with self._condition:
            if self._closed:
                return
            if dedupe is not None and self._repeats((obj.uid or obj.name, type_, reason, tuple(dedupe)), window):
                return
            if len(self._queue) < self._queue_size:
                self._queue.append(observation)
                self._condition.notify_all()
                return
        self._dropped("queue full", observation)

    def _repeats(self, key: object, window: float) -> bool:
        now = self._clock.monotonic()
        last = self._recent.get(key)
        if last is not None and now - last < window:
            return True
        self._recent.put(key, now)
        return False

    def run(self, stop: StopSignal) -> None:
        """Write until stopped; what is queued then is tried once more, without waiting for retries."""
        remove = stop.on_set(self._wake)
        try:
            while True:
                observation = self._next(stop)
                if observation is None:
                    return
                self._write(observation, stop)
                with self._condition:
                    self._busy = False
                    self._condition.notify_all()
        finally:
            remove()
            with self._condition:
                self._closed = True

    def wait_until_written(self, timeout: float) -> bool:
        """Wait until the queue is empty and nothing is being written; False when out of time. For tests and the end."""
        deadline = self._clock.monotonic() + timeout
        with self._condition:
            while self._queue or self._busy:
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0:
                    return False
                self._clock.wait(self._condition, remaining)
            return True

    def _next(self, stop: StopSignal) -> Observation | None:
        while True:
            due = self._flush()
            with self._condition:
                if self._queue:
                    self._busy = True
                    return self._queue.popleft()
                if stop.is_set():
                    return None
                self._clock.wait(self._condition, due)

    def _flush(self) -> float | None:
        try:
            return self._sink.flush()
        except ApiError as error:
            _log.warning("events held back could not be written", error=str(error))
            return RETRY_AFTER

    def _write(self, observation: Observation, stop: StopSignal) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                written = self._sink.write(observation)
            except _RETRIED as error:
                if attempt == TRIES or stop.is_set():
                    _log.warning("event given up", reason=observation.reason, error=str(error))
                    break
                wait = RETRY_AFTER * (self._rng.random() if attempt == 1 else 1.0)
                self._clock.sleep(wait, stop)
            except ApiError as error:
                quiet = error.reason in {"AlreadyExists", "NotFound"} or "being terminated" in error.message
                (_log.debug if quiet else _log.warning)("event refused", reason=observation.reason, error=str(error))
                self._dropped("refused", observation)
                return
            except Exception:  # noqa: BLE001 - a bug in a sink must not end the recorder
                _log.exception("event lost", reason=observation.reason)
                self._dropped("refused", observation)
                return
            else:
                if not written:
                    self._dropped("spam", observation)
                return
        self._dropped("gave up", observation)

    def _dropped(self, cause: str, observation: Observation) -> None:
        if cause == "queue full":
            _log.warning("event dropped: too many are waiting", reason=observation.reason)
        if self._on_dropped is not None:
            self._on_dropped(cause)

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
