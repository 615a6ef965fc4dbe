"""WATCH: a stream of changes from a given version on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import orjson

from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import Representation, negotiate
from homelab_autoscaler.sandbox.apiserver.presentation.tables import partial, table
from homelab_autoscaler.sandbox.apiserver.request import ApiResponse
from homelab_autoscaler.sandbox.apiserver.semantics.options import ListOptions, list_options, revision
from homelab_autoscaler.sandbox.apiserver.semantics.reading import Selection, expired
from homelab_autoscaler.sandbox.apiserver.store import Change, ExpiredRevisionError, Stored, Watcher
from homelab_autoscaler.sandbox.status import not_acceptable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource

# Without timeoutSeconds a real server ends a watch after a random time between 30 and 60 minutes.
_DEFAULT_TIMEOUT = 3600.0
_BOOKMARK_PERIOD = 60.0
# A last bookmark comes so long before the end, so that the client can start again from a recent version.
_BOOKMARK_BEFORE_END = 2.0
# Chunks larger than this are split, so that one watch does not hold the loop.
_BATCH = 500


class Watching:
    """The watch path of one server."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._open: set[Watcher] = set()

    @property
    def open(self) -> int:
        """How many watches are running."""
        return len(self._open)

    def close_all(self) -> None:
        """End every watch: the server stops."""
        for watcher in list(self._open):
            watcher.close()

    def watch(self, call: Call) -> ApiResponse:
        """Start a watch.

        Raises:
            ApiStatusError: for parameters that make no sense.
        """
        options = list_options(call.request)
        selection = Selection.of(call, options)
        representation = negotiate(call.request.headers.get("accept", ""))
        if representation.format != "json":
            raise not_acceptable()
        view = _View(call.resource, representation, call.request.parameter("includeObject"), self._plane)
        version = options.resource_version
        start: int | None = None
        if version and version != "0":
            start = revision(version, watching=True)
        store = self._plane.store
        # From here to the registration nothing is awaited: no change can fall between the two.
        first: list[bytes] = []
        failed = False
        if start is None or options.initial_events:
            if start is not None and start > store.revision:
                start = None
            if options.initial_events is not False:
                states = store.collection(call.resource.collection).items(selection.namespace)
                first = [view.added(item) for item in states if selection.matches(item)]
            start = store.revision
            if options.initial_events:
                first.append(view.bookmark(start, initial=True))
        else:
            try:
                missed = store.changes_since(call.resource.collection, start)
                first = [line for change in missed if (line := view.line(change, selection))]
            except ExpiredRevisionError as error:
                first = [_line("ERROR", expired(error).status)]
                failed = True
            else:
                start = max(start, store.revision)
        watcher = Watcher()
        if not failed:
            store.watch(call.resource.collection, watcher)
            self._open.add(watcher)
        collection = call.resource.collection
        lines = self._run(watcher, options, selection, view, first, failed=failed)
        return ApiResponse(200, stream=_Stream(lines, lambda: self._end(collection, watcher)))

    def _end(self, collection: str, watcher: Watcher) -> None:
        self._plane.store.unwatch(collection, watcher)
        self._open.discard(watcher)

    async def _run(
        self,
        watcher: Watcher,
        options: ListOptions,
        selection: Selection,
        view: _View,
        first: list[bytes],
        *,
        failed: bool,
    ) -> AsyncGenerator[bytes, None]:
        for at in range(0, len(first), _BATCH):
            yield b"".join(first[at : at + _BATCH])
        if failed:
            return
        timeout = options.timeout if options.timeout is not None else _DEFAULT_TIMEOUT
        end = time.monotonic() + timeout
        mark = self._next_mark(end) if options.bookmarks else end
        while not watcher.closed:
            now = time.monotonic()
            if now >= end:
                return
            if not await watcher.wait(min(mark, end) - now):
                if options.bookmarks and time.monotonic() >= mark:
                    yield view.bookmark(self._plane.store.revision)
                    mark = self._next_mark(end)
                continue
            changes = watcher.take()
            lines = [line for change in changes if (line := view.line(change, selection))]
            if lines:
                yield b"".join(lines)
            if watcher.overflowed:
                return
            if options.bookmarks and time.monotonic() >= mark:
                # A bookmark must not promise what waits to be sent.
                behind = watcher.pending and bool(changes)
                yield view.bookmark(changes[-1].revision if behind else self._plane.store.revision)
                mark = self._next_mark(end)
            # Under a stream of changes the loop still gets its turn.
            await asyncio.sleep(0)

    @staticmethod
    def _next_mark(end: float) -> float:
        now = time.monotonic()
        before_end = end - _BOOKMARK_BEFORE_END
        if before_end > now + 0.05:
            return min(now + _BOOKMARK_PERIOD, before_end)
        return end + 1


class _Stream:
    """A watch's chunks. Closing it ends the watch even when nobody has taken a chunk yet."""

    def __init__(self, chunks: AsyncGenerator[bytes, None], end: Callable[[], None]) -> None:
        self._chunks = chunks
        self._end = end

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except BaseException:
            # The end of the stream, or of whoever reads it.
            self._end()
            raise

    async def aclose(self) -> None:
        """End the watch."""
        self._end()
        await self._chunks.aclose()


class _View:
    """How one watch shows changes."""

    def __init__(self, resource: Resource, representation: Representation, include: str, plane: Plane) -> None:
        self._resource = resource
        self._form = representation.form
        self._include = include
        self._plane = plane
        self._headings = True
        self._cache_key = (resource.api_version, self._form)
        self._plain = not self._form and resource.from_storage is None

    def added(self, stored: Stored) -> bytes:
        """The line of an object that is there at the start."""
        if self._plain:
            return b'{"type":"ADDED","object":' + stored.raw + b"}\n"
        return self._encode("ADDED", self._plane.load(self._resource, stored))

    def line(self, change: Change, selection: Selection) -> bytes | None:
        """The line of a change, as somebody with this selection sees it; None when it is none of theirs."""
        if selection.namespace is not None and change.stored.key.namespace != selection.namespace:
            return None
        kind: str = change.type
        stored = change.stored
        if not selection.everything:
            before = change.previous is not None and selection.matches(change.previous)
            after = change.type != "DELETED" and selection.matches(change.stored)
            if not before and not after:
                return None
            if change.type == "MODIFIED":
                kind = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
                if kind == "DELETED" and change.previous is not None:
                    return self._left(change.previous, change.revision)
        if self._form == "Table":
            return self._encode(kind, self._plane.load(self._resource, stored))
        if self._plain:
            # Cheap enough to be put together for each watcher, and not worth keeping as long as the log.
            return b'{"type":"' + kind.encode() + b'","object":' + stored.raw + b"}\n"
        key = (kind, *self._cache_key)
        line = change.lines.get(key)
        if line is None:
            line = change.lines[key] = self._encode(kind, self._plane.load(self._resource, stored))
        return line

    def _left(self, previous: Stored, version: int) -> bytes:
        """An object that stopped matching: its last matching state, under the version of the change."""
        body = self._plane.load(self._resource, previous)
        body["metadata"]["resourceVersion"] = str(version)
        return self._encode("DELETED", body)

    def _encode(self, kind: str, body: JsonObject) -> bytes:
        if self._form == "Table":
            metadata = {"resourceVersion": body["metadata"].get("resourceVersion", "")}
            body = table(
                self._resource,
                [body],
                metadata,
                self._plane.clock.now(),
                self._include,
                headings=self._headings,
            )
            self._headings = False
        elif self._form:
            body = partial(body)
        return _line(kind, body)

    def bookmark(self, version: int, *, initial: bool = False) -> bytes:
        """A line that says how far the client has come."""
        metadata: JsonObject = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind, api_version = self._resource.kind, self._resource.api_version
        if self._form == "Table":
            shown: JsonObject = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(version)},
                "columnDefinitions": None,
                "rows": [],
            }
            return _line("BOOKMARK", shown)
        if self._form:
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        return _line("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": metadata})


def _line(kind: str, body: JsonObject) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + orjson.dumps(body) + b"}\n"
