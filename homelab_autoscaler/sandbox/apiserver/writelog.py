"""The record of every committed write: who changed what, when, under which revision.

Tests judge a program by what it wrote. Reads, refused writes, dry runs and writes that changed nothing are not in it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call
    from homelab_autoscaler.sandbox.apiserver.store import Change, Key


@dataclass(frozen=True, slots=True)
class Write:
    """One committed write.

    Attributes:
        revision: the resourceVersion that it made.
        time: sandbox time.
        user: who asked.
        agent: the client's User-Agent, up to the first slash.
        verb: create, update, patch, delete, deletecollection. An eviction is a create with subresource `eviction`.
        method: the HTTP method.
        group: API group of the path; empty for core.
        resource: plural, as in the path.
        subresource: empty for the object itself.
        change: what happened to the object.
    """

    revision: int
    time: datetime
    user: str
    agent: str
    verb: str
    method: str
    group: str
    resource: str
    subresource: str
    key: Key
    change: Change

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED."""
        return self.change.type

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for cluster-scoped ones."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """The object's name."""
        return self.key.name

    @property
    def before(self) -> JsonObject | None:
        """The object before the write."""
        return self.change.previous.load() if self.change.previous else None

    @property
    def after(self) -> JsonObject:
        """The object after the write; for a deletion its last state."""
        return self.change.stored.load()

    @property
    def fields(self) -> tuple[str, ...]:
        """Dotted paths of the fields that differ, without what every write changes by itself."""
        before = self.before if self.change.previous else {}
        return tuple(sorted(_differences(before, self.after, "")))

    def to_json(self) -> JsonObject:
        """As the HTTP endpoint shows it."""
        return {
            "revision": self.revision,
            "time": self.time.isoformat(),
            "user": self.user,
            "agent": self.agent,
            "verb": self.verb,
            "method": self.method,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
            "type": self.type,
            "fields": list(self.fields),
        }


_SILENT = {"metadata.resourceVersion", "metadata.managedFields", "metadata.generation"}


def _differences(old: object, new: object, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            where = f"{path}.{key}" if path else key
            if where not in _SILENT:
                yield from _differences(old.get(key), new.get(key), where)
    elif old != new:
        yield path


class WriteLog:
    """The latest writes, oldest first."""

    def __init__(self, size: int = 10_000) -> None:
        self._writes: deque[Write] = deque(maxlen=size)
        self._total = 0
        self._subscribers: list[Callable[[Write], None]] = []

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def dropped(self) -> int:
        """How many older writes the log no longer has; a test that counts should see 0 here."""
        return self._total - len(self._writes)

    def __iter__(self) -> Iterator[Write]:
        return iter(list(self._writes))

    def add(self, call: Call, key: Key, change: Change, time: datetime) -> None:
        """Record a commit."""
        request = call.request
        write = Write(
            change.revision,
            time,
            call.user.name,
            call.manager,
            call.verb,
            request.method,
            call.resource.group,
            call.resource.plural,
            call.target.subresource,
            key,
            change,
        )
        self._writes.append(write)
        self._total += 1
        for subscriber in self._subscribers:
            subscriber(write)

    def subscribe(self, callback: Callable[[Write], None]) -> None:
        """Call back for each further write, on the server's loop, before the writer has its answer."""
        self._subscribers.append(callback)

    def since(self, revision: int) -> list[Write]:
        """The writes after a revision."""
        return [write for write in self if write.revision > revision]

    def by(self, user: str) -> list[Write]:
        """The writes of one user."""
        return [write for write in self if write.user == user]

    def clear(self) -> None:
        """Forget everything."""
        self._writes.clear()
        self._total = 0
