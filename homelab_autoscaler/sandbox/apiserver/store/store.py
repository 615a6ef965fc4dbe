"""Objects under one global revision, with a bounded log of changes.

Guarantees: every commit gets the next revision, in the order in which commits are made; a change reaches watchers
after the object is readable; an older state can be read as long as the log reaches back to it. Not guaranteed:
anything across threads. The store belongs to one asyncio loop and never awaits, so each call is atomic there.
"""

from __future__ import annotations

import bisect
from collections import deque
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.store.objects import Change, Key, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.store.watchers import Watcher


class ExpiredRevisionError(Exception):
    """The log no longer reaches back to the wanted revision.

    Attributes:
        wanted: the revision that was asked for.
        oldest: the oldest one that could be served.
    """

    def __init__(self, wanted: int, oldest: int) -> None:
        super().__init__(f"revision {wanted} is older than {oldest}, the oldest in the log")
        self.wanted = wanted
        self.oldest = oldest


class Collection:
    """All objects of one resource, whatever API versions show them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._objects: dict[Key, Stored] = {}
        self._order: list[Key] = []
        self.log: deque[Change] = deque()
        self.watchers: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> Stored | None:
        """The object's present state."""
        return self._objects.get(key)

    def items(self, namespace: str | None = None) -> list[Stored]:
        """The present states by namespace and name; all namespaces when None."""
        if namespace is None:
            return [self._objects[key] for key in self._order]
        start = bisect.bisect_left(self._order, Key(namespace, ""))
        found = []
        for index in range(start, len(self._order)):
            key = self._order[index]
            if key.namespace != namespace:
                break
            found.append(self._objects[key])
        return found

    def place(self, stored: Stored) -> None:
        """Put an object in without a commit: how a journal is replayed and how reads gain new defaults."""
        if stored.key not in self._objects:
            bisect.insort(self._order, stored.key)
        self._objects[stored.key] = stored

    def remove(self, key: Key) -> None:
        """Take an object out without a commit."""
        if self._objects.pop(key, None) is not None:
            del self._order[bisect.bisect_left(self._order, key)]


class Store:
    """The collections, their common revision and their common log."""

    def __init__(self, log_size: int = 10_000) -> None:
        self.revision = 1
        self._log_size = log_size
        self._collections: dict[str, Collection] = {}
        # The order of all changes: which collection's log to shorten when the whole log is full.
        self._log: deque[Change] = deque()
        # Watches and snapshots can start at this revision or later.
        self.oldest = 1
        self.listeners: list[Callable[[Change], None]] = []

    @property
    def log_size(self) -> int:
        """How many changes are kept."""
        return self._log_size

    @log_size.setter
    def log_size(self, size: int) -> None:
        self._log_size = size
        self._shorten()

    def collection(self, name: str) -> Collection:
        """The collection of that name, made at first use."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(name)
        return found

    def collections(self) -> Iterable[Collection]:
        """Every collection."""
        return self._collections.values()

    def put(self, name: str, key: Key, body: JsonObject) -> Change:
        """Commit a new state of an object; its resourceVersion is set here, in `body` too."""
        collection = self.collection(name)
        revision = self.revision + 1
        body["metadata"]["resourceVersion"] = str(revision)
        stored = Stored.of(key, revision, body)
        previous = collection.get(key)
        collection.place(stored)
        return self._commit(Change(revision, "MODIFIED" if previous else "ADDED", name, stored, previous))

    def delete(self, name: str, key: Key, last: JsonObject | None = None) -> Change:
        """Commit a removal.

        Args:
            name: the collection.
            key: which object; it must be there.
            last: the last state when it is newer than the stored one (the write that dropped the last finalizer).
        """
        collection = self.collection(name)
        previous = collection.get(key)
        if previous is None:
            raise KeyError(key)
        revision = self.revision + 1
        body = previous.load() if last is None else last
        body["metadata"]["resourceVersion"] = str(revision)
        collection.remove(key)
        return self._commit(Change(revision, "DELETED", name, Stored.of(key, revision, body), previous))

    def changes_since(self, name: str, revision: int) -> list[Change]:
        """The changes of a collection after a revision.

        Raises:
            ExpiredRevisionError: when some of them may have left the log.
        """
        if revision < self.oldest:
            raise ExpiredRevisionError(revision, self.revision)
        log = self.collection(name).log
        found = []
        for change in reversed(log):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def snapshot(self, name: str, revision: int, namespace: str | None = None) -> list[Stored]:
        """The states of a collection's objects as they were at a revision, in list order.

        Raises:
            ExpiredRevisionError: when the log does not reach back that far.
        """
        collection = self.collection(name)
        changes = self.changes_since(name, revision)
        if not changes:
            return collection.items(namespace)
        states: dict[Key, Stored] = {stored.key: stored for stored in collection.items(namespace)}
        for change in reversed(changes):
            key = change.stored.key
            if namespace is not None and key.namespace != namespace:
                continue
            if change.previous is None:
                states.pop(key, None)
            else:
                states[key] = change.previous
        return [states[key] for key in sorted(states)]

    def watch(self, name: str, watcher: Watcher) -> None:
        """Send a collection's further changes to a watcher."""
        self.collection(name).watchers.add(watcher)

    def unwatch(self, name: str, watcher: Watcher) -> None:
        """Stop doing so; not being registered is no error."""
        self.collection(name).watchers.discard(watcher)

    def forget_history(self) -> None:
        """Empty the log: no older state can be read or watched from. What compaction does to a real server."""
        for collection in self._collections.values():
            collection.log.clear()
        self._log.clear()
        self.oldest = self.revision

    def replay(self, change: Change) -> None:
        """Take up a change that was committed by an earlier process."""
        collection = self.collection(change.collection)
        if change.type == "DELETED":
            collection.remove(change.stored.key)
        else:
            collection.place(change.stored)
        self.revision = change.revision
        self._remember(collection, change)

    def _commit(self, change: Change) -> Change:
        collection = self.collection(change.collection)
        self.revision = change.revision
        self._remember(collection, change)
        # Watchers first: a listener may commit in turn, and watchers must see both in order.
        for watcher in collection.watchers:
            watcher.push(change)
        for listener in self.listeners:
            listener(change)
        return change

    def _remember(self, collection: Collection, change: Change) -> None:
        collection.log.append(change)
        self._log.append(change)
        self._shorten()

    def _shorten(self) -> None:
        while len(self._log) > self._log_size:
            oldest = self._log.popleft()
            self.collection(oldest.collection).log.popleft()
            self.oldest = oldest.revision

    def everything(self) -> Iterator[tuple[str, Stored]]:
        """Every object with its collection's name, collection by collection."""
        for name, collection in self._collections.items():
            for stored in collection.items():
                yield name, stored
