"""Where a reflector gets objects from: a listing and a watch of one kind and scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from homelab_autoscaler.runtime.client.paths import collection_path, with_query
from homelab_autoscaler.runtime.client.transport import Reply
from homelab_autoscaler.runtime.errors import from_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject, ResourceInfo
    from homelab_autoscaler.runtime.client.transport import Transport
    from homelab_autoscaler.runtime.clock import Clock

LIST_TIMEOUT = 60.0
INACTIVITY = 75.0
"""Seconds of silence on a watch that count as a dead connection: a little over the server's minute of bookmarks."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    items: list[JsonObject]
    resource_version: str
    continue_token: str = ""


class WatchEvent(NamedTuple):
    """One item of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (then `object` is a Status)."""

    type: str
    object: JsonObject


class Watch(Protocol):
    """An open watch."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """Items as they come; ends when the server or `close` ends the watch. Raises ApiError when it breaks."""
        ...

    def close(self) -> None:
        """End it, from any thread."""
        ...


class ListWatch(Protocol):
    """A source of objects. `testing.FakeSource` is one without a server."""

    def list(self, *, resource_version: str, limit: int, continue_token: str) -> ListPage:
        """One page; `resource_version` "" is a quorum read, "0" any version, else "not older than". Raises ApiError."""
        ...

    def watch(self, *, resource_version: str, timeout_seconds: int, initial_events: bool) -> Watch:
        """Open a watch. Raises ApiError.

        Args:
            resource_version: where to go on from.
            timeout_seconds: after which the server ends it.
            initial_events: a streaming list: ADDED for what exists, then a bookmark that says so.
        """
        ...


class ApiListWatch(ListWatch):
    """Objects of one kind of an API server, in one namespace or in all."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        resource: ResourceInfo,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        inactivity: float = INACTIVITY,
        list_timeout: float = LIST_TIMEOUT,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._path = collection_path(resource, namespace)
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._inactivity = inactivity
        self._list_timeout = list_timeout

    def list(self, *, resource_version: str, limit: int, continue_token: str) -> ListPage:
        """See ListWatch."""
        query = {
            **self._selectors,
            "limit": limit or None,
            "continue": continue_token or None,
            # A continue token carries its own version; the server refuses both together.
            "resourceVersion": None if continue_token else resource_version or None,
        }
        reply = self._transport.request("GET", with_query(self._path, query), timeout=self._list_timeout)
        if reply.status >= 400:
            raise from_reply(reply.status, reply.body, reply.headers, self._clock.now())
        body = orjson.loads(reply.body)
        metadata = body.get("metadata") or {}
        return ListPage(body.get("items") or [], metadata.get("resourceVersion", ""), metadata.get("continue") or "")

    def watch(self, *, resource_version: str, timeout_seconds: int, initial_events: bool) -> Watch:
        """See ListWatch."""
        query: dict[str, str | int | bool | None] = {
            **self._selectors,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version or None,
            "timeoutSeconds": timeout_seconds,
        }
        if initial_events:
            query |= {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}
        opened = self._transport.stream(with_query(self._path, query), inactivity=self._inactivity)
        if isinstance(opened, Reply):
            raise from_reply(opened.status, opened.body, opened.headers, self._clock.now())
        return _LineWatch(opened)


class _LineWatch(Watch):
    """Watch items as JSON lines. A line that is no item becomes an item of type "", for the reflector to skip."""

    def __init__(self, stream: _Lines) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[WatchEvent]:
        for line in self._stream.lines():
            try:
                item = orjson.loads(line)
            except orjson.JSONDecodeError:
                yield WatchEvent("", {})
                continue
            if isinstance(item, dict) and isinstance(item.get("object"), dict):
                yield WatchEvent(str(item.get("type")), item["object"])
            else:
                yield WatchEvent("", {})

    def close(self) -> None:
        self._stream.close()


class _Lines(Protocol):
    def lines(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...
