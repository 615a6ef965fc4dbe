"""Fault injection: what a network, a busy API server or a cache can do to a client, on demand and repeatable.

A fault names the requests that it hits and what happens to them. Given the same seed and the same order of requests the
same ones are hit. Rules are tried in the order in which they were added; several may hit one request (latency and then
an error, for example). Latencies are real time, because they stand for the network and not for the cluster.
"""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import random
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

import orjson

from homelab_autoscaler.sandbox.apiserver.request import ApiResponse
from homelab_autoscaler.sandbox.status import ApiStatusError, details_of, failure, stale

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call
    from homelab_autoscaler.sandbox.apiserver.store import Store

FaultKind = Literal[
    "latency",
    "conflict",
    "too-many-requests",
    "error",
    "drop-reply",
    "reset",
    "stale-read",
    "watch-cut",
    "watch-stall",
    "watch-expired",
    "duplicate-event",
    "delay-event",
]
KINDS: tuple[str, ...] = get_args(FaultKind)
_WATCH_KINDS = {"watch-cut", "watch-stall", "watch-expired", "duplicate-event", "delay-event"}
_REASONS = {
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
    410: "Expired",
    403: "Forbidden",
    401: "Unauthorized",
}
_WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule.

    What happens (`kind`):
        latency: the request starts `seconds` later.
        conflict: 409 as for a stale resourceVersion; nothing is done.
        too-many-requests: 429 with Retry-After `retry_after`.
        error: `code` (500, 503, 504 …); nothing is done.
        drop-reply: the request is carried out, then the connection is closed without an answer.
        reset: the connection is closed and nothing is done.
        stale-read: get and list answer as of `revisions` commits ago, as far as the event log reaches.
        watch-cut: the stream ends after `events` more lines.
        watch-stall: after `events` lines the stream stays open and silent for `seconds`.
        watch-expired: after `events` lines the stream ends with a 410 ERROR event.
        duplicate-event: a line is sent twice.
        delay-event: a line is held back for `seconds`, and all later ones behind it.

    Which requests: every given pattern must match (shell patterns). `resource` is `nodes` or `group/plural`.

    How often: the first `after` matches are spared; then each is hit with `probability`, `count` times at most.
    For duplicate-event and delay-event this counts lines, for everything else requests.
    """

    kind: FaultKind
    verb: str = "*"
    resource: str = "*"
    subresource: str = "*"
    namespace: str = "*"
    name: str = "*"
    user: str = "*"
    agent: str = "*"
    after: int = 0
    count: int | None = None
    probability: float = 1.0
    seconds: float = 0.0
    code: int = 500
    message: str = "injected fault"
    retry_after: int = 1
    events: int = 0
    revisions: int = 1

    def __post_init__(self) -> None:
        """Refuse rules that make no sense.

        Raises:
            ValueError: naming the field, its value and what is possible.
        """
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} is not known: use one of {', '.join(KINDS)}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability {self.probability} must be between 0 and 1")
        for name in ("after", "seconds", "events", "revisions", "retry_after"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} must not be negative")
        if self.count is not None and self.count < 1:
            raise ValueError(f"count {self.count} must be at least 1; leave it out for no limit")
        if not 400 <= self.code <= 599:
            raise ValueError(f"code {self.code} must be an HTTP error, 400 to 599")

    @classmethod
    def of(cls, body: JsonObject) -> Fault:
        """Read a rule from JSON.

        Raises:
            ValueError: for unknown fields and values that make no sense.
        """
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(body) - known)
        if unknown:
            raise ValueError(f"field {unknown[0]!r} is not known: use some of {', '.join(sorted(known))}")
        if "kind" not in body:
            raise ValueError(f"kind is missing: use one of {', '.join(KINDS)}")
        for item in fields(cls):
            if item.name in body:
                _check_type(item.name, body[item.name])
        return cls(**body)

    def matches(self, call: Call) -> bool:
        """Whether the rule is about such a request."""
        target = call.target
        resource = call.resource
        return (
            fnmatch.fnmatchcase(call.verb, self.verb)
            and (
                fnmatch.fnmatchcase(resource.plural, self.resource)
                or fnmatch.fnmatchcase(f"{resource.group}/{resource.plural}", self.resource)
            )
            and fnmatch.fnmatchcase(target.subresource, self.subresource)
            and fnmatch.fnmatchcase(target.namespace or "", self.namespace)
            and fnmatch.fnmatchcase(target.name, self.name)
            and fnmatch.fnmatchcase(call.user.name, self.user)
            and fnmatch.fnmatchcase(call.manager, self.agent)
        )


_TEXTS = {"kind", "verb", "resource", "subresource", "namespace", "name", "user", "agent", "message"}


def _check_type(name: str, value: Any) -> None:
    if name in _TEXTS:
        right = isinstance(value, str)
    elif name in {"probability", "seconds"}:
        right = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        right = (isinstance(value, int) and not isinstance(value, bool)) or (name == "count" and value is None)
    if not right:
        raise ValueError(f"{name} {value!r} has the wrong type")


class _Armed:
    """A rule with its counters."""

    def __init__(self, identity: int, fault: Fault) -> None:
        self.identity = identity
        self.fault = fault
        self.seen = 0
        self.hits = 0

    def strikes(self, chance: random.Random) -> bool:
        """Whether this match is hit; counts it."""
        if self.fault.count is not None and self.hits >= self.fault.count:
            return False
        self.seen += 1
        if self.seen <= self.fault.after:
            return False
        if self.fault.probability < 1 and chance.random() >= self.fault.probability:
            return False
        self.hits += 1
        return True


class Faults:
    """The rules in force."""

    def __init__(self, store: Store, seed: int = 0) -> None:
        self._store = store
        self._chance = random.Random(seed)  # noqa: S311  (repeatability is the point)
        self._identities = itertools.count(1)
        self._armed: list[_Armed] = []
        self._released = asyncio.Event()

    def seed(self, seed: int) -> None:
        """Start the random sequence again."""
        self._chance.seed(seed)

    def add(self, fault: Fault) -> int:
        """Put a rule in force; returns its number."""
        armed = _Armed(next(self._identities), fault)
        self._armed.append(armed)
        return armed.identity

    def remove(self, identity: int) -> bool:
        """Take a rule out; False when it is not there. Stalled watches go on."""
        before = len(self._armed)
        self._armed = [armed for armed in self._armed if armed.identity != identity]
        self._release()
        return len(self._armed) != before

    def clear(self) -> None:
        """Take all rules out."""
        self._armed.clear()
        self._release()

    def hits(self, identity: int) -> int:
        """How often a rule has struck."""
        return next((armed.hits for armed in self._armed if armed.identity == identity), 0)

    def limit_log(self, size: int) -> None:
        """Keep only so many changes: watches and snapshots that reach further back get 410."""
        self._store.log_size = size

    def forget_history(self) -> None:
        """Empty the event log: every watch that starts from an older version gets 410 once."""
        self._store.forget_history()

    def to_json(self) -> list[JsonObject]:
        """The rules with their counters."""
        return [
            {"id": armed.identity, "seen": armed.seen, "hits": armed.hits, **asdict(armed.fault)}
            for armed in self._armed
        ]

    def _release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    # Requests

    async def around(self, call: Call, proceed: Callable[[], Awaitable[ApiResponse]]) -> ApiResponse:
        """Carry a request out, or what the rules make of it."""
        if not self._armed:
            return await proceed()
        drop = False
        for armed in list(self._armed):
            fault = armed.fault
            if fault.kind in _WATCH_KINDS or fault.kind == "stale-read" or not fault.matches(call):
                continue
            if fault.kind == "conflict" and call.verb not in _WRITES:
                continue
            if not armed.strikes(self._chance):
                continue
            if fault.kind == "latency":
                await asyncio.sleep(fault.seconds)
            elif fault.kind == "drop-reply":
                drop = True
            elif fault.kind == "reset":
                return ApiResponse(0, abort=True)
            else:
                raise _error(call, fault)
        response = await proceed()
        if drop:
            if response.stream is not None:
                await _close(response.stream)
            return ApiResponse(0, abort=True)
        if response.stream is not None and call.verb == "watch":
            response.stream = self._stream(call, response.stream)
        return response

    def read_revision(self, call: Call) -> int | None:
        """The older revision that a read is answered from; None for the present."""
        for armed in self._armed:
            fault = armed.fault
            if fault.kind == "stale-read" and fault.matches(call) and armed.strikes(self._chance):
                return max(self._store.revision - fault.revisions, self._store.oldest)
        return None

    # Watches

    async def _stream(self, call: Call, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A watch's lines with what the rules do to them."""
        ending: list[tuple[_Armed, int]] = []
        judged: set[int] = set()
        sent = 0
        try:
            async for chunk in stream:
                if not self._armed:
                    yield chunk
                    sent += chunk.count(b"\n")
                    continue
                for line in chunk.splitlines(keepends=True):
                    self._judge(call, judged, ending, sent)
                    end = await self._before(ending, sent)
                    if end is not None:
                        if end:
                            yield end
                        return
                    copies = await self._copies(call)
                    yield line * copies
                    sent += 1
                self._judge(call, judged, ending, sent)
                end = await self._before(ending, sent)
                if end is not None:
                    if end:
                        yield end
                    return
        finally:
            await _close(stream)

    def _judge(self, call: Call, judged: set[int], ending: list[tuple[_Armed, int]], sent: int) -> None:
        """Decide once per rule and stream whether the stream's end is in its hands."""
        for armed in self._armed:
            fault = armed.fault
            if armed.identity in judged or fault.kind not in {"watch-cut", "watch-stall", "watch-expired"}:
                continue
            judged.add(armed.identity)
            if fault.matches(call) and armed.strikes(self._chance):
                ending.append((armed, sent + fault.events))

    async def _before(self, ending: list[tuple[_Armed, int]], sent: int) -> bytes | None:
        """What comes instead of the next line: None for nothing, bytes to end the stream with."""
        for item in list(ending):
            armed, limit = item
            fault = armed.fault
            if sent < limit:
                continue
            if fault.kind == "watch-cut":
                return b""
            if fault.kind == "watch-expired":
                status = failure(410, "Expired", "too old resource version: injected fault").status
                return b'{"type":"ERROR","object":' + orjson.dumps(status) + b"}\n"
            ending.remove(item)
            released = self._released
            try:
                async with asyncio.timeout(fault.seconds or None):
                    await released.wait()
            except TimeoutError:
                pass
        return None

    async def _copies(self, call: Call) -> int:
        copies = 1
        for armed in self._armed:
            fault = armed.fault
            if fault.kind not in {"duplicate-event", "delay-event"} or not fault.matches(call):
                continue
            if armed.strikes(self._chance):
                if fault.kind == "duplicate-event":
                    copies = 2
                else:
                    await asyncio.sleep(fault.seconds)
        return copies


async def _close(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _error(call: Call, fault: Fault) -> ApiStatusError:
    resource = call.resource
    if fault.kind == "conflict":
        return stale(resource.plural, resource.group, call.target.name)
    if fault.kind == "too-many-requests":
        details = {"retryAfterSeconds": fault.retry_after}
        return failure(429, "TooManyRequests", "Too many requests, please try again later.", details)
    reason = _REASONS.get(fault.code, "")
    details = details_of(resource.plural, resource.group, call.target.name)
    if fault.code == 504:
        details["retryAfterSeconds"] = fault.retry_after
    return failure(fault.code, reason, fault.message, details)
