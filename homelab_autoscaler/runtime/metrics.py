"""Metrics under the names of controller-runtime, workqueue and client-go, so that existing dashboards work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from homelab_autoscaler.runtime.live_metrics import LiveCollector
from homelab_autoscaler.runtime.tally import PassTally, QueueTally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.client import RequestSeen

RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, math.inf,
)  # fmt: skip
QUEUE_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0, math.inf)
REST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, math.inf)
SIZE_BUCKETS = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, math.inf)


class Metrics:
    """All metrics of one manager, in one registry of its own: several managers in a process do not meet."""

    def __init__(self, registry: CollectorRegistry | None = None, *, detailed_requests: bool = False) -> None:
        self.registry = registry or CollectorRegistry()
        r = self.registry
        c = ("controller",)
        self.reconcile_errors = _counter("controller_runtime_reconcile_errors_total", "Passes that failed", c, r)
        self.terminal_errors = _counter(
            "controller_runtime_terminal_reconcile_errors_total", "Passes that failed for good", c, r
        )
        self.reconcile_panics = _counter(
            "controller_runtime_reconcile_panics_total", "Passes that ended in a bug (an unexpected exception)", c, r
        )
        self.reconcile_timeouts = _counter(
            "controller_runtime_reconcile_timeouts_total", "Passes that ran over their time limit", c, r
        )
        self.max_concurrent = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers of a controller", c, registry=r
        )
        self.stale_skips = _counter(
            "controller_runtime_reconcile_stale_cache_skips_total",
            "Passes put off because the cache had not yet seen the writes of the one before",
            c,
            r,
        )
        self.rest_requests = _counter(
            "rest_client_requests_total", "Requests to the API server", ("code", "method", "host"), r
        )
        self._rest = _RestMetrics(r) if detailed_requests else None
        self.leader = Gauge("leader_election_master_status", "1 while this process leads", ("name",), registry=r)
        self.leader_slowpath = _counter(
            "leader_election_slowpath_total", "Renewals that needed a read first", ("name",), r
        )
        self.webhook_latency = Histogram(
            "controller_runtime_webhook_latency_seconds", "Length of admission calls", ("webhook",), registry=r
        )
        self.webhook_requests = _counter(
            "controller_runtime_webhook_requests_total", "Admission calls", ("webhook", "code"), r
        )
        self.webhook_in_flight = Gauge(
            "controller_runtime_webhook_requests_in_flight", "Admission calls under way", ("webhook",), registry=r
        )
        self.webhook_panics = _counter(
            "controller_runtime_webhook_panics_total", "Admission calls that ended in a bug", (), r
        )
        self.certificate_reads = _counter("certwatcher_read_certificate_total", "Certificates read", (), r)
        self.certificate_errors = _counter(
            "certwatcher_read_certificate_errors_total", "Certificates that could not be read", (), r
        )
        self.events_dropped = _counter("event_recorder_dropped_total", "Events not written, by cause", ("cause",), r)
        ProcessCollector(registry=r)
        PlatformCollector(registry=r)
        GCCollector(registry=r)
        self._live = LiveCollector()
        r.register(self._live)

    def queue(self, name: str, processing: Callable[[], Mapping[object, float]]) -> QueueTally:
        """The metrics of one queue; `processing` tells the seconds that each key is with a worker."""
        tally = self._live.queues[name] = QueueTally(QUEUE_BUCKETS, processing)
        return tally

    def passes(self, name: str) -> PassTally:
        """The metrics of one controller's passes."""
        tally = self._live.passes[name] = PassTally(RECONCILE_BUCKETS)
        return tally

    def watch_cache(self, cache: Cache) -> None:
        """Report the state of all informers of a cache."""
        self._live.cache = cache

    def observe_lookup(self, host: str) -> Callable[[float], None] | None:
        """An observer of name resolutions for a Transport, None unless `detailed_requests` was asked for."""
        return None if self._rest is None else self._rest.lookups.labels(host).observe

    def observe_request(self, host: str) -> Callable[[RequestSeen], None]:
        """An observer for a Transport: counts requests, and measures them if `detailed_requests` was asked for."""
        children: dict[tuple[str, int], Counter] = {}

        def observe(seen: RequestSeen) -> None:
            key = (seen.method, seen.status)
            child = children.get(key)
            if child is None:
                code = str(seen.status) if seen.status else "<error>"
                child = children[key] = self.rest_requests.labels(code, seen.method, host)
            child.inc()
            if self._rest is not None:
                self._rest.observe(seen, host)

        return observe


class _RestMetrics:
    """What client-go measures of requests when asked to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("verb", "host")
        self._duration = Histogram(
            "rest_client_request_duration_seconds",
            "Length of requests",
            labels,
            registry=registry,
            buckets=REST_BUCKETS,
        )
        self.lookups = Histogram(
            "rest_client_dns_resolution_duration_seconds",
            "Length of name resolutions",
            ("host",),
            registry=registry,
            buckets=REST_BUCKETS,
        )
        self._sent = Histogram(
            "rest_client_request_size_bytes", "Bytes sent", labels, registry=registry, buckets=SIZE_BUCKETS
        )
        self._received = Histogram(
            "rest_client_response_size_bytes", "Bytes received", labels, registry=registry, buckets=SIZE_BUCKETS
        )
        self._throttled = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Wait for the client's own limit",
            labels,
            registry=registry,
            buckets=REST_BUCKETS,
        )
        self._retries = _counter(
            "rest_client_request_retries_total", "Requests sent once more", ("code", *labels), registry
        )

    def observe(self, seen: RequestSeen, host: str) -> None:
        labels = (seen.method, host)
        self._duration.labels(*labels).observe(seen.seconds)
        self._throttled.labels(*labels).observe(seen.throttled)
        self._sent.labels(*labels).observe(seen.sent)
        self._received.labels(*labels).observe(seen.received)
        if seen.attempt > 1:
            self._retries.labels(str(seen.status) if seen.status else "<error>", *labels).inc()


def _counter(name: str, text: str, labels: Iterable[str], registry: CollectorRegistry) -> Counter:
    return Counter(name, text, tuple(labels), registry=registry)
