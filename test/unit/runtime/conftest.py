"""A scripted HTTP server, for tests of what travels over the wire."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from homelab_autoscaler.runtime import ClientConfig


@dataclass
class Seen:
    method: str
    target: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Script:
    """Answers in turn; the last one repeats. An answer is (status, headers, body), or a callable (handler) -> None."""

    url: str
    answers: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    def reply(self, status, body=None, **headers):
        self.answers.append((status, {k.replace("_", "-"): v for k, v in headers.items()}, body))

    def status(self, code, reason, message="", details=None, **headers):
        body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or {}}
        self.reply(code, body, **headers)

    @property
    def config(self):
        return ClientConfig.for_url(self.url)


@pytest.fixture
def script():
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self):
            length = int(self.headers.get("Content-Length") or 0)
            seen = Seen(self.command, self.path, dict(self.headers), self.rfile.read(length))
            state.seen.append(seen)
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            if callable(answer):
                answer(self)
                return
            status, headers, body = answer
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - the base class's names

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    state = Script(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join(5)
