"""How events are written: corev1 with counts, or events.k8s.io/v1 with series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from homelab_api.meta import JsonObject, format_micro_time, format_time
from homelab_autoscaler.runtime.errors import ApiError, NotFoundError
from homelab_autoscaler.runtime.patch import MergePatch
from homelab_autoscaler.runtime.recorder.correlator import Correlator, CorrelatorOptions, LruTable, Observation, Verdict
from homelab_autoscaler.runtime.recorder.model import CoreEvent, EventV1, ObjectReference
from homelab_autoscaler.runtime.recorder.recorder import EventSink

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock

DEFAULT_NAMESPACE = "default"
SERIES_REFRESH = 1800.0
SERIES_END = 360.0
_log = structlog.get_logger("homelab_autoscaler.runtime.recorder")


def _namespace(reference: ObjectReference) -> str:
    return reference.namespace or DEFAULT_NAMESPACE


class _Names:
    """`<object>.<hex of nanoseconds>`, never the same twice in a process."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, reference: ObjectReference, at: datetime) -> str:
        nanoseconds = int(at.timestamp() * 1_000_000) * 1000
        self._last = max(self._last + 1, nanoseconds)
        return f"{reference.name[:230]}.{self._last:x}"


class CoreSink(EventSink):
    """Writes corev1 Events: what kubectl and most tools read.

    A repeat patches the count and the last time of the stored event; one that has vanished meanwhile is created anew.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        component: str,
        instance: str,
        *,
        options: CorrelatorOptions | None = None,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._correlator = Correlator(clock, options)
        self._names = _Names()
        self._judged: tuple[Observation, Verdict | None] | None = None

    def write(self, observation: Observation) -> bool:
        """See EventSink."""
        # A retry of the same observation must not count it twice.
        if self._judged is not None and self._judged[0] is observation:
            verdict = self._judged[1]
        else:
            verdict = self._correlator.judge(observation)
            self._judged = (observation, verdict)
        if verdict is None:
            return False
        namespace = _namespace(observation.reference)
        if verdict.stored_name is not None:
            body: JsonObject = {
                "count": verdict.count,
                "lastTimestamp": format_time(observation.at),
                "message": verdict.message,
            }
            try:
                self._client.patch(CoreEvent, verdict.stored_name, namespace, MergePatch(body))
            except NotFoundError:
                verdict = self._correlator.vanished(verdict, observation)
            else:
                return True
        name = self._names.next(observation.reference, observation.at)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": observation.reference.to_json(),
            "type": observation.type,
            "reason": observation.reason,
            "message": verdict.message,
            "count": verdict.count,
            "firstTimestamp": format_time(verdict.first),
            "lastTimestamp": format_time(observation.at),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        self._client.create_json(CoreEvent, body, namespace)
        self._correlator.stored(verdict.key, name)
        return True

    def flush(self) -> float | None:
        """See EventSink: nothing is held back."""
        return None


@dataclass(slots=True)
class _Series:
    namespace: str
    name: str
    count: int
    last: datetime
    last_at: float
    written_at: float
    written_count: int


class SeriesSink(EventSink):
    """Writes events.k8s.io/v1 Events.

    The first repeat of an event begins a series with count 2. Further ones are counted in memory; the stored series is
    refreshed every 30 minutes, and written for the last time after 6 minutes of silence.
    """

    def __init__(self, client: Client, clock: Clock, controller: str, instance: str, *, table_size: int = 4096) -> None:
        self._client = client
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self._names = _Names()
        self._table: LruTable[_Series] = LruTable(table_size)

    def write(self, observation: Observation) -> bool:
        """See EventSink."""
        reference = observation.reference
        # The message is no part of the key: an event with another text is a repeat too.
        key = (reference.to_json().__repr__(), observation.type, observation.reason)
        now = self._clock.monotonic()
        series = self._table.get(key)
        if series is not None and now - series.last_at <= SERIES_END:
            series.count += 1
            series.last = observation.at
            series.last_at = now
            if series.count == 2 and not self._store(series):
                self._table.pop(key)
                self._create(key, observation)
            return True
        self._create(key, observation)
        return True

    def flush(self) -> float | None:
        """See EventSink."""
        now = self._clock.monotonic()
        waits: list[float] = []
        for key, series in self._table.items():
            ended = now - series.last_at > SERIES_END
            if series.count > series.written_count and (ended or now - series.written_at >= SERIES_REFRESH):
                self._store(series)
            if ended:
                self._table.pop(key)
            elif series.count > 1:
                waits.append(min(series.last_at + SERIES_END, series.written_at + SERIES_REFRESH) - now)
        return None if not waits else max(0.1, min(waits))

    def _create(self, key: object, observation: Observation) -> None:
        namespace = _namespace(observation.reference)
        name = self._names.next(observation.reference, observation.at)
        body: JsonObject = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "regarding": observation.reference.to_json(),
            "type": observation.type,
            "reason": observation.reason,
            "action": observation.reason,
            "note": observation.message,
            "eventTime": format_micro_time(observation.at),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
        }
        self._client.create_json(EventV1, body, namespace)
        now = self._clock.monotonic()
        self._table.put(key, _Series(namespace, name, 1, observation.at, now, now, 1))

    def _store(self, series: _Series) -> bool:
        """Write the series; False when the event has vanished."""
        body: JsonObject = {
            "series": {"count": series.count, "lastObservedTime": format_micro_time(series.last)},
        }
        try:
            self._client.patch(EventV1, series.name, series.namespace, MergePatch(body))
        except NotFoundError:
            return False
        except ApiError:
            # Held back: the next refresh or the end of the series writes it.
            series.written_at = self._clock.monotonic() - SERIES_REFRESH + 10.0
            _log.debug("event series not written yet", name=series.name)
            return True
        series.written_at = self._clock.monotonic()
        series.written_count = series.count
        return True
