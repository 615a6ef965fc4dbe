"""Metrics of the provider: its calls, and how long its certificates are good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class ProviderMetrics:
    """The provider's metrics, in the given registry or one of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        self._calls = Counter(
            "homelab_autoscaler_provider_calls",
            "Calls of the autoscaler by status code",
            ("method", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "homelab_autoscaler_provider_call_seconds",
            "Time to answer a call, without the wire",
            ("method",),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._expiry = Gauge(
            "homelab_autoscaler_provider_certificate_expiry_timestamp_seconds",
            "Until when a certificate is valid (Unix time)",
            ("certificate",),
            registry=registry,
        )
        self._silent = Gauge(
            "homelab_autoscaler_provider_silent_tls_connections",
            "TLS connections so far that made no call: turned away, given up, or probes",
            registry=registry,
        )

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def certificates(self, expiry: Mapping[str, datetime]) -> None:
        """Say until when each certificate is valid."""
        for name, until in expiry.items():
            self._expiry.labels(name).set(until.timestamp())

    def silent_connections(self, total: int) -> None:
        """Say how many TLS connections made no call so far."""
        self._silent.set(total)
