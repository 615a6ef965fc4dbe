"""A small HTTP server for probes and metrics."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from homelab_autoscaler.runtime.health.checks import CheckReport, HealthChecks
    from homelab_autoscaler.runtime.stop import StopSignal

Route = Callable[[str, Mapping[str, list[str]]], tuple[int, str, bytes] | None]
"""(path, query) to (status, content type, body), None if the path is not its business."""


def parse_address(address: str) -> tuple[str, int]:
    """`host:port` or `:port` (all addresses); port 0 takes a free one. IPv6 hosts stand in brackets.

    Raises:
        ValueError: naming the text.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'"{address}" is no address: write host:port or :port')
    return host.strip("[]"), int(port)


class HttpServer:
    """Serves GET from a list of routes until stopped, in threads of its own. A Runnable.

    Args:
        name: of its threads.
        address: see parse_address.
        routes: asked in turn; if none answers, the reply is 404.
    """

    def __init__(self, name: str, address: str, routes: list[Route]) -> None:
        self._server = _Server(name, parse_address(address), _handler(routes))

    @property
    def port(self) -> int:
        """The port it listens on; requests are taken from construction on and answered once it runs."""
        return int(self._server.server_address[1])

    def run(self, stop: StopSignal) -> None:
        """Serve until stopped; open connections are cut then."""
        self._server.serve_until(stop)


class _Server(ThreadingHTTPServer):
    """A threading server that sleeps until something comes, and whose end leaves no thread behind."""

    request_queue_size = 32
    daemon_threads = True

    def __init__(self, name: str, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._name = name
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        super().__init__(address, handler)
        # accept() after a readable event may still find nobody: it must not block then.
        self.socket.setblocking(False)

    def serve_until(self, stop: StopSignal) -> None:
        waker, wakened = socket.socketpair()

        def wake() -> None:
            waker.send(b"x")

        remove = stop.on_set(wake)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ)
                selector.register(wakened, selectors.EVENT_READ)
                while not stop.is_set():
                    for key, _ in selector.select():
                        if key.fileobj is self.socket:
                            self._accept()
        finally:
            remove()
            self._end()
            waker.close()
            wakened.close()

    def _accept(self) -> None:
        try:
            connection, address = self.get_request()
        except OSError:
            return
        connection.setblocking(True)
        thread = threading.Thread(
            target=self._serve_connection, args=(connection, address), name=f"{self._name}/connection", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _serve_connection(self, connection: socket.socket, address: object) -> None:
        try:
            self.finish_request(connection, address)
        except (OSError, ValueError):
            pass  # the other side went away, or we are stopping
        finally:
            self.shutdown_request(connection)
            with self._lock:
                self._connections.pop(connection, None)

    def _end(self) -> None:
        self.server_close()
        with self._lock:
            open_now = dict(self._connections)
        for connection in open_now:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in open_now.values():
            thread.join(timeout=1.0)


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
