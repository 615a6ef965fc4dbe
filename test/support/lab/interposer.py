"""Stands between a manager and its API server and breaks things at chosen writes.

A write is any request but GET, without Leases and Events: those are not part of any write order. Writes are counted
from 1. A kill makes every later request of that manager fail: for the API server that is a process that died.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.runtime.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(StrEnum):
    """What happens at a write."""

    KILL_BEFORE = "killed before the write"
    KILL_AFTER = "killed after the write was committed"
    REPLY_LOST = "reply lost after the commit"
    CONFLICT = "409"
    TOO_MANY = "429"
    INTERNAL = "500"


@dataclass(frozen=True)
class Write:
    """A write as it went over the wire."""

    method: str
    path: str
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


_BODY = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","reason":"%s","code":%d}'
_REPLIES = {
    Fault.CONFLICT: (409, _BODY % (b"injected", b"Conflict", 409)),
    Fault.TOO_MANY: (429, _BODY % (b"injected", b"TooManyRequests", 429)),
    Fault.INTERNAL: (500, _BODY % (b"injected", b"InternalError", 500)),
}


class Interposer:
    """Wraps a transport of the runtime's client; same methods."""

    def __init__(self, inner: Any, on_kill: Callable[[], None], fault: Fault | None = None, at: int = 0) -> None:
        self.inner = inner
        self.writes: list[Write] = []
        self.dead = False
        self.struck = threading.Event()
        self._on_kill = on_kill
        self._fault = fault
        self._at = at
        self._lock = threading.Lock()

    def request(self, method: str, target: str, **kwargs: Any) -> Any:
        if self.dead:
            raise TransportError("the process is dead", sent=False)
        if method == "GET" or "/leases" in target or "/events" in target:
            return self.inner.request(method, target, **kwargs)
        with self._lock:
            if self.dead:
                raise TransportError("the process is dead", sent=False)
            self.writes.append(Write(method, target, kwargs.get("data") or kwargs.get("body") or b""))
            strikes = len(self.writes) == self._at and self._fault is not None
            if strikes and self._fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
                self.dead = True
        if not strikes:
            return self.inner.request(method, target, **kwargs)
        return self._strike(method, target, kwargs)

    def _strike(self, method: str, target: str, kwargs: dict[str, Any]) -> Any:
        try:
            match self._fault:
                case Fault.KILL_BEFORE:
                    self._on_kill()
                    raise TransportError("the process is dead", sent=False)
                case Fault.KILL_AFTER:
                    self.inner.request(method, target, **kwargs)
                    self._on_kill()
                    raise TransportError("the process is dead")
                case Fault.REPLY_LOST:
                    self.inner.request(method, target, **kwargs)
                    raise TransportError("the connection was reset")
                case _:
                    reply = self.inner.request(
                        "GET", "/version", **{**kwargs, "body": None} if "body" in kwargs else {}
                    )
                    status, body = _REPLIES[self._fault]
                    return type(reply)(status, reply.headers, body)
        finally:
            self.struck.set()

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.stream(*args, **kwargs)

    def close(self) -> None:
        self.inner.close()
