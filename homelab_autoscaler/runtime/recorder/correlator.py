"""Correlation of events: repeat counts, combining of similar ones, and a limit on chatter.

Pure but for the clock; used by one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from homelab_autoscaler.runtime.client.ratelimit import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.recorder.model import ObjectReference

V = TypeVar("V")
COMBINED_PREFIX = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class CorrelatorOptions:
    """Numbers of the correlation.

    Attributes:
        table_size: entries of each table; the least recently used goes.
        similar_limit: from this many different messages with otherwise equal key on they are combined.
        similar_window: seconds after which such a count starts over.
        burst: events of one object that are written at once.
        refill: seconds per further event of it.
    """

    table_size: int = 4096
    similar_limit: int = 10
    similar_window: float = 600.0
    burst: int = 25
    refill: float = 300.0


class LruTable(Generic[V]):
    """A dictionary that forgets its least recently used entries."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[object, V] = OrderedDict()

    def get(self, key: object) -> V | None:
        """The entry, None if there is none."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: object, value: V) -> None:
        """Set an entry."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def get_or_make(self, key: object, make: Callable[[], V]) -> V:
        """The entry, made when there is none."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def pop(self, key: object) -> None:
        """Forget an entry."""
        self._entries.pop(key, None)

    def items(self) -> list[tuple[object, V]]:
        """All entries, least recently used first."""
        return list(self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class Observation:
    """Something worth an event, as recorded."""

    reference: ObjectReference
    type: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to write for an observation.

    Attributes:
        key: identifies the stored event that this one repeats.
        message: the observation's, or the combined one.
        count: how often it happened, including now.
        first: when it happened first.
        stored_name: name of the event to patch; None to create one.
    """

    key: object
    message: str
    count: int
    first: datetime
    stored_name: str | None


@dataclass(slots=True)
class _Similar:
    messages: set[str]
    last: float


@dataclass(slots=True)
class _Seen:
    count: int
    first: datetime
    name: str | None


class Correlator:
    """Decides for each observation: drop it, count it, combine it, or write it."""

    def __init__(self, clock: Clock, options: CorrelatorOptions | None = None) -> None:
        self._clock = clock
        self._options = options or CorrelatorOptions()
        size = self._options.table_size
        self._buckets: LruTable[TokenBucket] = LruTable(size)
        self._similar: LruTable[_Similar] = LruTable(size)
        self._seen: LruTable[_Seen] = LruTable(size)

    def judge(self, observation: Observation) -> Verdict | None:
        """What to write, None when the object has used up its events."""
        reference = observation.reference
        who = (reference.api_version, reference.kind, reference.namespace, reference.name, reference.uid)
        what = (who, observation.type, observation.reason)
        message, key = self._combine(what, observation.message)
        bucket = self._buckets.get_or_make(
            (who, observation.type), lambda: TokenBucket(1 / self._options.refill, self._options.burst, self._clock)
        )
        if not bucket.try_take():
            return None
        seen = self._seen.get(key)
        if seen is None:
            seen = _Seen(0, observation.at, None)
            self._seen.put(key, seen)
        seen.count += 1
        return Verdict(key, message, seen.count, seen.first, seen.name)

    def stored(self, key: object, name: str) -> None:
        """The event of this key was created under this name."""
        seen = self._seen.get(key)
        if seen is not None:
            seen.name = name

    def vanished(self, verdict: Verdict, observation: Observation) -> Verdict:
        """The event that should be patched is no longer stored (events live for an hour): begin a new one."""
        self._seen.put(verdict.key, _Seen(1, observation.at, None))
        return replace(verdict, count=1, first=observation.at, stored_name=None)

    def _combine(self, what: object, message: str) -> tuple[str, object]:
        now = self._clock.monotonic()
        similar = self._similar.get(what)
        if similar is None or now - similar.last > self._options.similar_window:
            similar = _Similar(set(), now)
            self._similar.put(what, similar)
        similar.last = now
        similar.messages.add(message)
        if len(similar.messages) < self._options.similar_limit:
            return message, (what, message)
        # One event stands for all of them; it shows the newest message. Memory stays bounded by the limit.
        similar.messages.pop()
        similar.messages.add(message)
        return COMBINED_PREFIX + message, (what, None)
