"""FakeSource: a list/watch source without a server, which a test fills, cuts, delays and compacts."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.cache.listwatch import ListPage, ListWatch, Watch, WatchEvent
from homelab_autoscaler.runtime.cache.reflector import INITIAL_EVENTS_END, key_of
from homelab_autoscaler.runtime.errors import BadRequestError, GoneError, ServerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject, ResourceInfo


class FakeSource(ListWatch):
    """Objects of one kind with a history of changes, offered as an API server would.

    Each change gets the next version. `compact` forgets history, so that older watches get 410. Errors that a test
    puts into `list_errors` and `watch_errors` are raised by the next calls, in order. Calls are recorded in `lists`
    and `watches` (the versions asked for), `pages` (the limits) and `timeouts` (of watches), for tests about the
    conversation itself.

    Args:
        resource: the kind.
        streaming_list: whether `initial_events` is understood; else it is refused, as by an older server.
    """

    def __init__(self, resource: ResourceInfo, *, streaming_list: bool = False) -> None:
        self._resource = resource
        self._streaming_list = streaming_list
        self._lock = threading.Condition()
        self._objects: dict[str, JsonObject] = {}
        self._history: list[tuple[int, WatchEvent]] = []
        self._version = 10
        self._compacted = 0
        self._open: list[FakeWatch] = []
        self._snapshots: dict[str, tuple[list[JsonObject], int]] = {}
        self.list_errors: deque[Exception] = deque()
        self.watch_errors: deque[Exception] = deque()
        self.lists: list[str] = []
        self.watches: list[str] = []
        self.pages: list[int] = []
        self.timeouts: list[int] = []
        self.held = False

    # --- changes ------------------------------------------------------------------------------------------

    def add(self, obj: JsonObject) -> JsonObject:
        """Store an object (new or changed) and tell the watches; returns it with its version."""
        with self._lock:
            stored = self._stamp(obj)
            key = key_of(stored)
            kind = "MODIFIED" if key in self._objects else "ADDED"
            self._objects[key] = stored
            self._publish(WatchEvent(kind, stored))
            return stored

    def remove(self, namespace: str | None, name: str) -> JsonObject:
        """Delete an object and tell the watches; returns its last state, with the version of the deletion."""
        with self._lock:
            key = f"{namespace}/{name}" if namespace else name
            last = self._stamp(self._objects.pop(key))
            self._publish(WatchEvent("DELETED", last))
            return last

    def bookmark(self) -> str:
        """Tell the watches the present version without a change; returns it."""
        with self._lock:
            version = str(self._version)
            event = WatchEvent("BOOKMARK", {"kind": self._resource.kind, "metadata": {"resourceVersion": version}})
            for watch in list(self._open):
                watch.push(event)
            return version

    def touch(self) -> str:
        """Raise the version, as a change of another kind would; returns it."""
        with self._lock:
            self._version += 1
            return str(self._version)

    # --- faults -------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Forget the history up to now: a watch from before gets 410."""
        with self._lock:
            self._compacted = self._version
            self._history.clear()

    def cut(self, error: Exception | None = None) -> None:
        """End all open watches, with an error if one is given."""
        with self._lock:
            for watch in list(self._open):
                watch.end(error)
            self._open.clear()

    def emit(self, event: WatchEvent) -> None:
        """Send an item as it is to all open watches: an ERROR, nonsense, a repetition."""
        with self._lock:
            for watch in list(self._open):
                watch.push(event)

    def hold(self) -> None:
        """Keep events back from now on: the cache falls behind."""
        with self._lock:
            self.held = True

    def release(self) -> None:
        """Send what was kept back."""
        with self._lock:
            self.held = False
            for watch in list(self._open):
                watch.flush()

    def rewind(self, version: int) -> None:
        """Go back to a lower version, as a server restored from a backup."""
        with self._lock:
            self._version = version
            self._history.clear()
            self._compacted = 0

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        with self._lock:
            return len(self._open)

    @property
    def version(self) -> int:
        """The present version."""
        with self._lock:
            return self._version

    def keys(self) -> set[str]:
        """Keys of the objects that exist."""
        with self._lock:
            return set(self._objects)

    # --- ListWatch ----------------------------------------------------------------------------------------

    def list(self, *, resource_version: str, limit: int, continue_token: str) -> ListPage:
        """See ListWatch; `limit` is honoured, also at version 0."""
        with self._lock:
            self.lists.append(resource_version if not continue_token else f"continue:{continue_token}")
            self.pages.append(limit)
            if self.list_errors:
                raise self.list_errors.popleft()
            if resource_version.isdigit() and int(resource_version) > self._version:
                raise ServerTimeoutError(
                    f"Too large resource version: {resource_version}, current: {self._version}",
                    status=504,
                    reason="Timeout",
                    details={"causes": [{"reason": "ResourceVersionTooLarge"}]},
                )
            if continue_token:
                items, version = self._snapshots[continue_token]
            else:
                items, version = list(self._objects.values()), self._version
            if not limit or len(items) <= limit:
                return ListPage(items, str(version))
            token = f"after-{len(self.lists)}"
            self._snapshots[token] = (items[limit:], version)
            return ListPage(items[:limit], str(version), token)

    def watch(self, *, resource_version: str, timeout_seconds: int, initial_events: bool) -> Watch:
        """See ListWatch."""
        with self._lock:
            self.watches.append(resource_version)
            self.timeouts.append(timeout_seconds)
            if self.watch_errors:
                raise self.watch_errors.popleft()
            if initial_events and not self._streaming_list:
                raise BadRequestError("sendInitialEvents is not understood", status=400)
            watch = FakeWatch(self)
            if initial_events or resource_version in {"", "0"}:
                for obj in self._objects.values():
                    watch.push(WatchEvent("ADDED", obj))
                if initial_events:
                    annotations = {INITIAL_EVENTS_END: "true"}
                    metadata = {"resourceVersion": str(self._version), "annotations": annotations}
                    watch.push(WatchEvent("BOOKMARK", {"kind": self._resource.kind, "metadata": metadata}))
            else:
                start = int(resource_version)
                if start < self._compacted:
                    raise GoneError(f"too old resource version: {start} ({self._compacted})", status=410)
                for version, event in self._history:
                    if version > start:
                        watch.push(event)
            self._open.append(watch)
            self._lock.notify_all()
            return watch

    def wait_for_watch(self, real_timeout: float = 10.0) -> None:
        """Wait in real time until a watch is open.

        Raises:
            TimeoutError: none was opened.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: bool(self._open), real_timeout):
                raise TimeoutError("no watch was opened")

    def forget(self, watch: FakeWatch) -> None:
        """A watch was closed by its reader."""
        with self._lock:
            if watch in self._open:
                self._open.remove(watch)

    def _stamp(self, obj: JsonObject) -> JsonObject:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        metadata.setdefault("uid", f"uid-{self._version}")
        return {"apiVersion": self._resource.api_version, "kind": self._resource.kind, **obj, "metadata": metadata}

    def _publish(self, event: WatchEvent) -> None:
        self._history.append((self._version, event))
        for watch in list(self._open):
            watch.push(event)


class FakeWatch(Watch):
    """A watch of a FakeSource."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._condition = threading.Condition()
        self._events: deque[WatchEvent] = deque()
        self._held: deque[WatchEvent] = deque()
        self._error: Exception | None = None
        self._ended = False

    def push(self, event: WatchEvent) -> None:
        """Send an item."""
        with self._condition:
            (self._held if self._source.held else self._events).append(event)
            self._condition.notify_all()

    def flush(self) -> None:
        """Send what was held."""
        with self._condition:
            self._events.extend(self._held)
            self._held.clear()
            self._condition.notify_all()

    def end(self, error: Exception | None) -> None:
        """End it after what was sent; held items are lost."""
        with self._condition:
            self._error = error
            self._ended = True
            self._condition.notify_all()

    def __iter__(self) -> Iterator[WatchEvent]:
        """See Watch."""
        while True:
            with self._condition:
                while not self._events and not self._ended:
                    self._condition.wait()
                if not self._events:
                    if self._error is not None:
                        raise self._error
                    return
                event = self._events.popleft()
            yield event

    def close(self) -> None:
        """See Watch."""
        with self._condition:
            self._ended = True
            self._error = None
            self._events.clear()
            self._condition.notify_all()
        self._source.forget(self)
