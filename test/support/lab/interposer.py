"""Stands between a manager and its API server and breaks things at chosen writes.

A write is any request but GET, without Leases and Events: those are not part of any write order. A kill makes every
later request of that manager fail: for the API server that is a process that died.

Writes come from several threads, so that their numbers differ from run to run. A plan therefore names a `Place`: the
n-th write of one kind to one object that changes the same fields, which is the same instruction in every run.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.runtime.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Fault(StrEnum):
    """What happens at a write."""

    KILL_BEFORE = "killed before the write"
    KILL_AFTER = "killed after the write was committed"
    REPLY_LOST = "reply lost after the commit"
    CONFLICT = "409"
    TOO_MANY = "429"
    INTERNAL = "500"


KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)


@dataclass(frozen=True)
class Place:
    """A write that every run of a story makes.

    Attributes:
        write: what is written, as `Names.signature` says it.
        occurrence: the how manieth such write, from 1.
    """

    write: str
    occurrence: int = 1

    def __str__(self) -> str:
        return self.write if self.occurrence == 1 else f"{self.write} (no. {self.occurrence})"


@dataclass(frozen=True)
class Write:
    """A write as it went over the wire.

    Attributes:
        place: where in the story; None for one before it began.
        status: of the answer; 0 without one.
        version: resourceVersion that the server gave the object; "" if the object is gone or the write was refused.
        author: which manager sent it, as `<identity>/<transitions>`.
    """

    method: str
    path: str
    body: bytes
    place: Place | None = None
    status: int = 0
    version: str = ""
    author: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"

    @property
    def json(self) -> Any:
        """The body; {} without one."""
        return orjson.loads(self.body) if self.body else {}


_CLAIM = re.compile(r"(?<=lab-m)-[0-9a-f]{8}\b")
_LONG = re.compile(r"^/apis?/(?:[a-z0-9.]+/)?v[0-9a-z]+/(?:namespaces/lab/)?")
_TELLING = ("phase", "unschedulable", "suspend")


@dataclass
class Names:
    """Names that a run made up, by the order in which they came: the same in every run."""

    namespace: str
    claims: dict[str, str] = field(default_factory=dict)

    def plain(self, text: str) -> str:
        """The text with names that do not differ between runs."""
        return _CLAIM.sub(
            lambda found: self.claims.setdefault(found.group(), f"-claim{len(self.claims) + 1}"),
            text.replace(self.namespace, "lab"),
        )

    def signature(self, method: str, path: str, body: bytes) -> str:
        """What a write does, in words that are the same in every run: object and fields, and values that tell."""
        target = self.plain(path.partition("?")[0])
        kind = "core" if target.startswith("/api/") else ""
        target = f"{kind}{_LONG.sub('', target)}" if not kind else f"core/{_LONG.sub('', target)}"
        content = orjson.loads(body) if body and method == "PATCH" else {}
        if isinstance(content, list):
            fields = sorted({_short(f"{step['op']} {step['path']}") for step in content if step["op"] != "test"})
        else:
            fields = sorted(set(_fields(content, "")))
        return f"{method} {target}{' ' + ' '.join(fields) if fields else ''}"


def _short(path: str) -> str:
    return path.replace("infra.homecluster.dev", "infra").replace("homelab-autoscaler.dev", "ha")


def _fields(body: dict[str, Any], prefix: str) -> Iterator[str]:
    for key, value in body.items():
        path = f"{prefix}{key}"
        if path in {"metadata.resourceVersion", "metadata.uid", "status.observedGeneration"}:
            continue
        if isinstance(value, dict) and prefix.count(".") < 2:
            yield from _fields(value, f"{path}.")
        elif key in _TELLING or value is None:
            yield _short(f"{path}={value}")
        else:
            yield _short(path)


_BODY = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","reason":"%s","code":%d}'
_REPLIES = {
    Fault.CONFLICT: (409, _BODY % (b"injected", b"Conflict", 409)),
    Fault.TOO_MANY: (429, _BODY % (b"injected", b"TooManyRequests", 429)),
    Fault.INTERNAL: (500, _BODY % (b"injected", b"InternalError", 500)),
}


def _dead() -> BaseException:
    return TransportError("the process is dead", sent=False)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Interposer:
    """Wraps a transport of the runtime's client; same methods.

    Args:
        inner: the transport.
        on_kill: called when the manager is to die.
        fault: what happens.
        at: where: a place, or the number of a write, from 1.
        names: of the run.
        author: says who the manager is.
        now: the time of the stage.
        death: what a request of a dead manager raises.
        armed: whether the story has begun: writes before are neither numbered nor struck.
    """

    def __init__(
        self,
        inner: Any,
        on_kill: Callable[[], None],
        fault: Fault | None = None,
        at: int | Place = 0,
        names: Names | None = None,
        *,
        author: Callable[[], str] = str,
        now: Callable[[], datetime] = utc_now,
        death: Callable[[], BaseException] = _dead,
        armed: bool = True,
    ) -> None:
        self.inner = inner
        self.writes: list[Write] = []
        self.dead = False
        self.armed = armed
        self.struck = threading.Event()
        self.struck_at: datetime | None = None
        self.active_at = time.monotonic()
        self._on_kill = on_kill
        self._fault = fault
        self._at = at
        self._names = names or Names("")
        self._author = author
        self._now = now
        self._death = death
        self._seen: dict[str, int] = {}
        self._number = 0
        self._lock = threading.Lock()

    def request(self, method: str, target: str, **kwargs: Any) -> Any:
        if self.dead:
            raise self._death()
        if "/leases" in target or "/events" in target:
            return self.inner.request(method, target, **kwargs)
        self.active_at = time.monotonic()
        if method == "GET":
            return self.inner.request(method, target, **kwargs)
        body = kwargs.get("body") or b""
        with self._lock:
            if self.dead:
                raise self._death()
            place = self._place(method, target, body) if self.armed else None
            strikes = place is not None and self._fault is not None and self._at in (self._number, place)
            if strikes and self._fault in KILLS:
                self.dead = True
        write = Write(method, target, body, place)
        if not strikes:
            return self._forward(write, kwargs)
        return self._strike(write, kwargs)

    def _place(self, method: str, target: str, body: bytes) -> Place:
        self._number += 1
        signature = self._names.signature(method, target, body)
        self._seen[signature] = self._seen.get(signature, 0) + 1
        return Place(signature, self._seen[signature])

    def _forward(self, write: Write, kwargs: dict[str, Any]) -> Any:
        reply = self.inner.request(write.method, write.path, **kwargs)
        answer = orjson.loads(reply.body) if reply.status < 300 else {}
        version = answer.get("metadata", {}).get("resourceVersion", "")
        self.writes.append(replace(write, status=reply.status, version=version, author=self._author()))
        return reply

    def _strike(self, write: Write, kwargs: dict[str, Any]) -> Any:
        try:
            match self._fault:
                case Fault.KILL_BEFORE:
                    self._on_kill()
                    raise self._death()
                case Fault.KILL_AFTER:
                    self._forward(write, kwargs)
                    self._on_kill()
                    raise self._death()
                case Fault.REPLY_LOST:
                    self._forward(write, kwargs)
                    raise TransportError("the connection was reset")
                case _:
                    reply = self.inner.request("GET", "/version", **{**kwargs, "body": None})
                    status, body = _REPLIES[self._fault]
                    return type(reply)(status, reply.headers, body)
        finally:
            self.struck_at = self._now()
            self.struck.set()

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.stream(*args, **kwargs)

    def close(self) -> None:
        self.inner.close()
