"""An API server's address whose traffic a test holds, freezes and answers from the past.

A manager that is given the proxy's kubeconfig cannot tell it from the API server, so the same faults work on a thread
and on a process of its own, before the embedded control plane and before a real one. Everything is passed on as it is
until a rule says otherwise.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from homelab_autoscaler.runtime import SystemClock, load_config
from homelab_autoscaler.runtime.client import Reply, Transport
from homelab_autoscaler.runtime.client.paths import collection_path
from homelab_autoscaler.runtime.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from homelab_api.meta import KubeObject

PATIENCE = 60.0
"""Seconds that a test waits for a request that it wants to hold."""


@dataclass(frozen=True)
class Asked:
    """A request as it arrives."""

    method: str
    target: str
    body: bytes = b""

    @property
    def _parts(self) -> list[str]:
        parts = urlsplit(self.target).path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        return rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest

    @property
    def plural(self) -> str:
        """Of the kind that is asked about; "nodes" for slots and for nodes: see `core`."""
        return self._parts[0] if self._parts else ""

    @property
    def name(self) -> str:
        """Of the object; "" for a collection."""
        return self._parts[1] if len(self._parts) > 1 else ""

    @property
    def subresource(self) -> str:
        """ "" for the object itself."""
        return self._parts[2] if len(self._parts) > 2 else ""

    @property
    def core(self) -> bool:
        """Whether the kind is one of core/v1."""
        return self.target.startswith("/api/")

    @property
    def watches(self) -> bool:
        """Whether it opens a stream."""
        return self.method == "GET" and "watch" in self.query

    @property
    def query(self) -> dict[str, list[str]]:
        """Query parameters."""
        return parse_qs(urlsplit(self.target).query)

    @property
    def kind(self) -> str:
        """`slots` for our Node, else the plural."""
        return "slots" if self.plural == "nodes" and not self.core else self.plural

    def json(self) -> Any:
        """The body; {} without one."""
        return json.loads(self.body) if self.body else {}


class Hold:
    """Requests that stop at a point until they are let go."""

    def __init__(self, matches: Callable[[Asked], bool], *, answered: bool, count: int | None, refused: bool) -> None:
        self._matches = matches
        self._answered = answered
        self._left = count
        self._refused = refused
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._reached = threading.Event()
        self.on_reach: Callable[[], None] | None = None

    def wants(self, asked: Asked, *, answered: bool) -> bool:
        """Whether this request is to be held at this point; counts it."""
        if answered is not self._answered or self._open.is_set() or not self._matches(asked):
            return False
        with self._lock:
            if self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            return True

    def stay(self) -> None:
        """The held request's part.

        Raises:
            ConnectionAbortedError: it is not to be passed on.
        """
        if self.on_reach is not None:
            self.on_reach()
        self._reached.set()
        self._open.wait()
        if self._refused:
            raise ConnectionAbortedError

    def wait(self, patience: float = PATIENCE) -> Self:
        """Wait until a request is held."""
        assert self._reached.wait(patience), "no such request came"
        return self

    @property
    def reached(self) -> bool:
        """Whether a request was held."""
        return self._reached.is_set()

    def let_go(self) -> None:
        """Let what is held go on, and hold nothing more."""
        self._open.set()


class Past:
    """The state of some kinds at the moment of its making, to answer later reads from."""

    def __init__(self, proxy: Proxy, kinds: dict[type[KubeObject], str | None]) -> None:
        self._kinds: dict[str, dict[str, Any]] = {}
        for kind, namespace in kinds.items():
            path = collection_path(kind.resource, namespace)
            self._kinds[Asked("GET", path).kind] = json.loads(proxy.ask(path).body)
        self._matches: Callable[[Asked], bool] | None = None
        self.served: list[Asked] = []

    def answer(self, asked: Asked) -> Reply | None:
        """The old answer; None where the present one is to be given."""
        listed = self._kinds.get(asked.kind)
        if self._matches is None or listed is None or asked.method != "GET" or not self._matches(asked):
            return None
        self.served.append(asked)
        if not asked.name:
            wanted = _label_test(asked.query.get("labelSelector", [""])[0])
            items = [item for item in listed["items"] if wanted(item["metadata"].get("labels") or {})]
            return _reply(200, {**listed, "items": items})
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        for item in listed["items"]:
            if item["metadata"]["name"] == asked.name:
                return _reply(200, {**head, **item})
        missing = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound"}
        return _reply(404, {**missing, "message": f"{asked.name} not found", "code": 404})

    @contextlib.contextmanager
    def told(self, matches: Callable[[Asked], bool] = lambda _: True) -> Iterator[Self]:
        """Reads of these kinds, as far as they match, are answered from the past."""
        self._matches = matches
        try:
            yield self
        finally:
            self._matches = None


def _reply(status: int, body: dict[str, Any]) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(body).encode())


def _label_test(selector: str) -> Callable[[dict[str, str]], bool]:
    """`a=b` and `a in (b,c)`, which is what a manager asks with."""
    wanted: dict[str, set[str]] = {}
    for key, one, many in re.findall(r"([^,=\s]+)(?:=([^,]*)|\s+in\s+\(([^)]*)\))", selector):
        wanted[key] = set(many.split(",")) if many else {one}
    return lambda labels: all(labels.get(key) in values for key, values in wanted.items())


class Proxy:
    """Runs from `with` to its end."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        config = load_config(kubeconfig)
        self._upstream = Transport(config, SystemClock())
        self._holds: list[Hold] = []
        self._pasts: list[Past] = []
        self._frozen: set[str] = set()
        self._flow = threading.Condition()
        self._closing = False
        self.asked: list[Asked] = []
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="proxy", daemon=True)
        self.kubeconfig = str(folder / f"proxy-{self._server.server_address[1]}.kubeconfig")
        Path(self.kubeconfig).write_text(json.dumps(_kubeconfig(self._server.server_address[1])))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_everything_go()
        with self._flow:
            self._closing = True
            self._flow.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._upstream.close()

    # --- rules --------------------------------------------------------------------------------------------------

    def hold(
        self, matches: Callable[[Asked], bool], *, answered: bool = False, count: int | None = 1, refused: bool = False
    ) -> Hold:
        """Hold requests.

        Args:
            matches: which.
            answered: hold the reply of a request that was carried out, not the request.
            count: how many at most; None for all until they are let go.
            refused: when let go, the connection is cut: the request is not carried out, or its reply is lost.
        """
        hold = Hold(matches, answered=answered, count=count, refused=refused)
        self._holds.append(hold)
        return hold

    @contextlib.contextmanager
    def frozen(self, *kinds: str) -> Iterator[None]:
        """Watches of these kinds stay open and say nothing; at the end they go on where they stopped."""
        with self._flow:
            self._frozen.update(kinds)
        try:
            yield
        finally:
            with self._flow:
                self._frozen.difference_update(kinds)
                self._flow.notify_all()

    def past(self, kinds: dict[type[KubeObject], str | None]) -> Past:
        """Keep the present state of these kinds (each with its namespace) for later; see Past."""
        past = Past(self, kinds)
        self._pasts.append(past)
        return past

    def ask(self, target: str) -> Reply:
        """The API server's present answer."""
        return self._upstream.request("GET", target)

    def let_everything_go(self) -> None:
        """No rule any more."""
        with self._flow:
            self._frozen.clear()
            self._flow.notify_all()
        for hold in self._holds:
            hold.let_go()

    # --- traffic ------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked, content_type: str) -> Reply:
        """Carry a request out under the rules.

        Raises:
            ConnectionAbortedError: a rule lets it end without an answer.
            TransportError: the API server did not answer.
        """
        self.asked.append(asked)
        self._stop_at(asked, answered=False)
        reply = next((old for past in self._pasts if (old := past.answer(asked)) is not None), None)
        if reply is None:
            reply = self._upstream.request(
                asked.method, asked.target, body=asked.body or None, content_type=content_type, timeout=60
            )
        self._stop_at(asked, answered=True)
        return reply

    def _stop_at(self, asked: Asked, *, answered: bool) -> None:
        for hold in self._holds:
            if hold.wants(asked, answered=answered):
                hold.stay()

    def stream(self, asked: Asked) -> Any:
        """Open a watch."""
        return self._upstream.stream(asked.target, inactivity=600)

    def pass_on(self, asked: Asked) -> bool:
        """Wait while the watch is frozen; False at the end of the proxy."""
        with self._flow:
            while asked.kind in self._frozen and not self._closing:
                self._flow.wait()
            return not self._closing


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, _request, _address) -> None:
        """A client that hung up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    proxy: Proxy

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, self.path, body)
        try:
            if asked.watches:
                self._watch(asked)
                return
            reply = self.proxy.answer(asked, self.headers.get("Content-Type") or "application/json")
        except (ConnectionAbortedError, TransportError):
            self.close_connection = True
            return
        self._send(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names that http.server looks for

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name in ("content-type", "retry-after", "warning"):
            if name in reply.headers:
                self.send_header(name, reply.headers[name])
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _watch(self, asked: Asked) -> None:
        opened = self.proxy.stream(asked)
        if isinstance(opened, Reply):
            self._send(opened)
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for line in opened.lines():
                if not self.proxy.pass_on(asked):
                    return
                self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, TransportError):
            return
        finally:
            opened.close()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "proxy", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy", "namespace": "default"}}],
        "current-context": "proxy",
    }
