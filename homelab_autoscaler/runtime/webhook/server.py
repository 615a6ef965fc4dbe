"""WebhookServer: answers admission reviews over TLS."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import structlog

from homelab_autoscaler.runtime.http import ThreadedServer, parse_address
from homelab_autoscaler.runtime.webhook.admission import (
    AdmissionHandler,
    Decision,
    MalformedReviewError,
    NotReadyError,
    UnreadableObjectError,
    deny,
    read_review,
    write_review,
)

if TYPE_CHECKING:
    import ssl

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.metrics import Metrics
    from homelab_autoscaler.runtime.stop import StopSignal

BODY_LIMIT = 7 * 1024 * 1024
"""Two states of an object of the server's largest size, and some."""
_log = structlog.get_logger("homelab_autoscaler.runtime.webhook")


class CertificateSource(Protocol):
    """Where the serving certificate comes from: `ManagedCertificates` or `MountedCertificates`."""

    def context(self) -> ssl.SSLContext:
        """The context for the next connection. Raises CertificateError while there is no usable certificate."""
        ...

    def check(self) -> None:
        """Raise if there is no certificate that is valid now."""
        ...


class WebhookServer:
    """Serves handlers by path. A Runnable for `Manager.add_webhook`.

    It serves on every replica, whoever leads. A handler that raises answers 500, so that the configuration's
    failurePolicy decides.

    Args:
        address: see parse_address.
        certificates: of the TLS side; None serves plain HTTP, for tests and for a TLS proxy in front.
        clock: for latencies.
        metrics: of the manager.
    """

    name = "webhooks"

    def __init__(self, address: str, certificates: CertificateSource | None, clock: Clock, metrics: Metrics) -> None:
        self._certificates = certificates
        self._clock = clock
        self._metrics = metrics
        self._handlers: dict[str, AdmissionHandler] = {}
        self._serving = False
        tls = None if certificates is None else certificates.context
        self._server = ThreadedServer(self.name, parse_address(address), _handler_for(self), tls)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    def register(self, path: str, handler: AdmissionHandler) -> None:
        """Answer reviews that are posted to `path`.

        Raises:
            ValueError: the path has no leading slash or is taken.
        """
        if not path.startswith("/") or path in self._handlers:
            raise ValueError(f'"{path}" cannot be the path of a webhook: no leading slash, or taken')
        self._handlers[path] = handler
        self._metrics.webhook_in_flight.labels(path)

    def check(self) -> None:
        """A readiness check: it serves, with a certificate that is valid now.

        Raises:
            RuntimeError: it does not.
        """
        if not self._serving:
            raise RuntimeError("the webhook server does not serve yet")
        if self._certificates is not None:
            self._certificates.check()

    def run(self, stop: StopSignal) -> None:
        """Serve until stopped."""
        self._serving = True
        try:
            self._server.serve_until(stop)
        finally:
            self._serving = False

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """HTTP status and body for a posted review."""
        handler = self._handlers.get(path)
        if handler is None:
            return 404, b"no webhook here\n"
        metrics = self._metrics
        started = self._clock.monotonic()
        in_flight = metrics.webhook_in_flight.labels(path)
        in_flight.inc()
        status = 500
        try:
            status, reply = self._decide(path, handler, body)
        finally:
            in_flight.dec()
            metrics.webhook_latency.labels(path).observe(max(0.0, self._clock.monotonic() - started))
            metrics.webhook_requests.labels(path, str(status)).inc()
        return status, reply

    def _decide(self, path: str, handler: AdmissionHandler, body: bytes) -> tuple[int, bytes]:
        try:
            request = read_review(body)
        except MalformedReviewError as error:
            return 400, f"{error}\n".encode()
        log = _log.bind(webhook=path, operation=request.operation, object=f"{request.namespace}/{request.name}")
        try:
            decision = handler(request)
        except UnreadableObjectError as error:
            decision = deny(str(error), *error.causes)
        except NotReadyError as error:
            log.info("not judged", why=str(error))
            return 503, f"{error}\n".encode()
        except Exception:
            self._metrics.webhook_panics.inc()
            log.exception("webhook handler failed")
            failed = Decision(allowed=False, message="the webhook handler failed; see the manager's log", code=500)
            return 500, write_review(request.uid, failed)
        if not decision.allowed:
            log.info("denied", user=request.user, message=decision.message)
        return 200, write_review(request.uid, decision)


def _handler_for(owner: WebhookServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit():
                self._send(411, b"Content-Length is needed\n")
                return
            if int(length) > BODY_LIMIT:
                self._send(413, b"the review is too large\n")
                return
            status, body = owner.answer(urlsplit(self.path).path, self.rfile.read(int(length)))
            self._send(status, body)

        def _send(self, status: int, body: bytes) -> None:
            if status in {411, 413}:
                self.close_connection = True
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Reviews are counted, denials logged."""

    return Handler
