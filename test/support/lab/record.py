"""What happened in a run, from outside: every committed write, every power command, every change of true power.

The record does not ask the manager. On the embedded control plane it comes from the server's write log, on a real one
from watches; machines report their own power. Monitors and oracles read nothing else, besides the requests on the wire.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from homelab_api.core import CoreNode, Job, Lease, Pod
from homelab_api.meta import JsonObject, KubeObject, ResourceInfo
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.runtime import NotFoundError, SystemClock, TooManyRequestsError
from homelab_autoscaler.runtime.cache.listwatch import ApiListWatch, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from homelab_autoscaler.runtime import Client
    from homelab_autoscaler.sandbox.machines.ledger import LedgerEntry


class RawEvent(KubeObject):
    """core/v1."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Event", "events")


KINDS: dict[tuple[str, str], str] = {
    (kind.resource.group, kind.resource.plural): word
    for kind, word in (
        (Node, "slot"),
        (NodeClaim, "claim"),
        (NodeReclaim, "reclaim"),
        (Group, "group"),
        (CoreNode, "node"),
        (Job, "job"),
        (Pod, "pod"),
        (Lease, "lease"),
        (RawEvent, "event"),
    )
}
"""Group and plural of what is recorded, and what monitors call it."""


_WORDS = frozenset({"lease", "event"})


@dataclass(frozen=True, slots=True)
class Change:
    """One committed write.

    Attributes:
        at: when it was committed, or seen.
        version: resourceVersion after it.
        kind: one of the words of KINDS.
        before: the object before; None if it was created.
        after: the object after; None if it is gone.
    """

    at: datetime
    version: str
    kind: str
    name: str
    before: JsonObject | None
    after: JsonObject | None

    @property
    def created(self) -> bool:
        return self.before is None

    @property
    def deleted(self) -> bool:
        return self.after is None

    @property
    def uid(self) -> str:
        return str((self.after or self.before or {})["metadata"]["uid"])


@dataclass(frozen=True, slots=True)
class Command:
    """A power command that reached a machine."""

    at: datetime
    machine: str
    command: str
    sender: str
    result: str

    @classmethod
    def of(cls, entry: LedgerEntry) -> Command:
        return cls(datetime.fromisoformat(entry.time), entry.machine, entry.command, entry.sender, entry.result)


@dataclass(frozen=True, slots=True)
class Power:
    """True power of a machine changed."""

    at: datetime
    machine: str
    power: str


Entry = Change | Command | Power


@dataclass
class Record:
    """One namespace's story, in order."""

    namespace: str
    changed: threading.Event = field(default_factory=threading.Event)
    moved_at: float = field(default_factory=time.monotonic)
    _entries: list[Callable[[], Entry] | Entry] = field(default_factory=list)

    def add(self, entry: Callable[[], Entry] | Entry, *, moves: bool = True) -> None:
        """Add something that just happened; a function is called when the record is read.

        Args:
            entry: what.
            moves: it is more than a heartbeat or a word about something.
        """
        self._entries.append(entry)
        if moves:
            self.moved_at = time.monotonic()
            self.changed.set()

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """Everything so far, in the order in which it happened."""
        found = [entry() if callable(entry) else entry for entry in list(self._entries)]
        self._entries[: len(found)] = found
        return in_order(found)

    def changes(self) -> Iterator[Change]:
        return (entry for entry in self.entries() if isinstance(entry, Change))

    def objects(self) -> dict[tuple[str, str], JsonObject]:
        """What exists now, by kind and name."""
        present: dict[tuple[str, str], JsonObject] = {}
        for change in self.changes():
            if change.after is None:
                present.pop((change.kind, change.name), None)
            else:
                present[change.kind, change.name] = change.after
        return present


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """By time; changes by the server's revision, which is one row of numbers for all kinds.

    A watch tells of a change some time after it was made, and each kind has a watch of its own: of two changes the
    later one may be heard of first. Then the other had been made by that time, at the latest.
    """
    changes = sorted((entry for entry in entries if isinstance(entry, Change)), key=lambda change: -int(change.version))
    put: list[Entry] = [entry for entry in entries if not isinstance(entry, Change)]
    latest = None
    for change in changes:
        latest = change.at if latest is None else min(latest, change.at)
        put.append(change if change.at == latest else replace(change, at=latest))
    return sorted(put, key=lambda entry: (entry.at, int(entry.version) if isinstance(entry, Change) else math.inf))


def change_of(write: Any) -> Change | None:
    """A line of the embedded server's write log; None for a kind that is not recorded."""
    kind = KINDS.get((write.group, write.resource))
    if kind is None:
        return None
    gone = write.type == "DELETED"
    before = (write.before or write.after) if gone else write.before
    return Change(write.time, str(write.revision), kind, write.name, before, None if gone else write.after)


class Recorder:
    """Hands what happens in a world to the records of its namespaces.

    Attributes:
        late: by how much later than it was made a change may be recorded.
    """

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self.late = timedelta()

    def open(self, namespace: str) -> Record:
        """The record of a namespace, from now on."""
        return self._records.setdefault(namespace, Record(namespace))

    def close(self, namespace: str) -> None:
        """No more of this namespace."""
        self._records.pop(namespace, None)

    def of(self, namespace: str, name: str) -> Record | None:
        """The record that an object belongs to; a node belongs to the namespace that its name begins with."""
        found = self._records.get(namespace)
        if found is None and not namespace and name.startswith("node-"):
            found = self._records.get("-".join(name.split("-")[1:3]))
        return found

    def wrote(self, write: Any) -> None:
        """A line of the embedded server's write log; called on the server's loop."""
        kind = KINDS.get((write.group, write.resource))
        record = self.of(write.namespace, write.name)
        if kind is not None and record is not None:
            record.add(lambda: change_of(write), moves=kind not in _WORDS)


def _watch_from_now(source: ApiListWatch, patience: int = 600) -> Watch:
    """A watch from the present on, as soon as a kind that was just defined is served.

    A real server answers 404 at first, then lists and still refuses watches while its cache of the kind fills.
    """
    for _ in range(patience):
        with contextlib.suppress(NotFoundError, TooManyRequestsError):
            start = source.list(resource_version="", limit=1, continue_token="")
            return source.watch(resource_version=start.resource_version, timeout_seconds=86400, initial_events=False)
        SystemClock().sleep(0.05)
    raise AssertionError("a kind of ours is not served")


class WatchedChanges:
    """Fills a recorder from watches: for a server whose write log nobody can read."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._recorder = recorder
        recorder.late = timedelta(seconds=2)  # On a busy test machine.
        self._watches = []
        for kind in (Node, NodeClaim, NodeReclaim, Group, CoreNode, Job, Pod, Lease, RawEvent):
            source = ApiListWatch(client.transport, SystemClock(), kind.resource)
            watch = _watch_from_now(source)
            self._watches.append(watch)
            word = KINDS[kind.resource.group, kind.resource.plural]
            threading.Thread(target=self._follow, args=(word, watch), name=f"record-{word}", daemon=True).start()

    def _follow(self, kind: str, watch: Any) -> None:
        known: dict[str, JsonObject] = defaultdict(dict)
        for event in watch:
            if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
                continue
            metadata = event.object["metadata"]
            before = known.pop(metadata["uid"], None)
            if event.type != "DELETED":
                known[metadata["uid"]] = event.object
            record = self._recorder.of(metadata.get("namespace", ""), metadata["name"])
            if record is not None:
                gone = event.type == "DELETED"
                after = None if gone else event.object
                before = before or (event.object if gone else None)
                now = datetime.now(UTC)
                change = Change(now, metadata["resourceVersion"], kind, metadata["name"], before, after)
                record.add(change, moves=kind not in _WORDS)

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
