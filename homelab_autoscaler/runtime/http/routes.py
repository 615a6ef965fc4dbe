"""Probes and metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from homelab_autoscaler.runtime.http.server import ThreadedServer, parse_address

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from homelab_autoscaler.runtime.health.checks import CheckReport, HealthChecks
    from homelab_autoscaler.runtime.stop import StopSignal

Route = Callable[[str, Mapping[str, list[str]]], tuple[int, str, bytes] | None]
"""(path, query) to (status, content type, body), None if the path is not its business."""


class HttpServer:
    """Serves GET from a list of routes until stopped, in threads of its own. A Runnable.

    Args:
        name: of its threads.
        address: see parse_address.
        routes: asked in turn; if none answers, the reply is 404.
    """

    def __init__(self, name: str, address: str, routes: list[Route]) -> None:
        self._server = ThreadedServer(name, parse_address(address), _handler(routes))

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    def run(self, stop: StopSignal) -> None:
        """Serve until stopped; open connections are cut then."""
        self._server.serve_until(stop)


def health_route(checks: HealthChecks) -> Route:
    """`/healthz` and `/readyz`."""

    def route(path: str, query: Mapping[str, list[str]]) -> tuple[int, str, bytes] | None:
        report: CheckReport | None = checks.handle(path, query)
        return None if report is None else (report.status, "text/plain; charset=utf-8", report.body.encode())

    return route


def metrics_route(registry: CollectorRegistry) -> Route:
    """`/metrics` in the Prometheus text format."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - with the first metric

    def route(path: str, query: Mapping[str, list[str]]) -> tuple[int, str, bytes] | None:
        del query
        if path.rstrip("/") != "/metrics":
            return None
        return 200, CONTENT_TYPE_LATEST, generate_latest(registry)

    return route


def _handler(routes: list[Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, keep_blank_values=True)
            reply = next((r for route in routes if (r := route(parts.path, query)) is not None), None)
            status, content_type, body = reply or (404, "text/plain; charset=utf-8", b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Probes come every few seconds: they are not worth a line."""

    return Handler
