"""A local copy of a collection, kept by list and watch; the sandbox's simulators decide from it.

Small on purpose: asyncio, JSON objects, no transforms. The manager has a runtime of its own; the simulators must not
share code with what they are there to test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api.meta import JsonObject, ResourceInfo
from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.objects import Key

Handler = Callable[[JsonObject | None, JsonObject | None], None]
"""Called with (old, new): new object (None, new), change (old, new), gone (old, None). Must not block."""

log = structlog.get_logger(__name__)

_FIRST_RETRY: Final = 0.05
_LONGEST_RETRY: Final = 5.0
_WATCH_SECONDS: Final = 290


class Informer:
    """Objects of one collection by (namespace, name).

    Guarantee: after `wait_synced` the copy has seen one full list; each later state of each object is seen in order,
    but not each intermediate one (a relist after a cut or a 410 shows only the last). Handlers run in the event loop,
    between two events.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: SandboxClock,
        resource: ResourceInfo,
        *,
        query: Mapping[str, str] | None = None,
        keep: Callable[[JsonObject], JsonObject] | None = None,
    ) -> None:
        """Prepare an informer; `run` starts it.

        Args:
            client: Whom to ask.
            clock: For pauses between failed attempts.
            resource: The kind, in all namespaces.
            query: Selectors, for example `{"fieldSelector": "spec.nodeName=n1"}`.
            keep: What of an object to remember; everything by default.
        """
        self._client = client
        self._clock = clock
        self.resource = resource
        self.path = resources.path(resource)
        self._query = dict(query or {})
        self._keep = keep
        self._objects: dict[Key, JsonObject] = {}
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._position = -1
        self._version = ""

    def on_change(self, handler: Handler) -> None:
        """Register a handler; it sees what is already known as new objects."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            handler(None, obj)

    def get(self, key: Key) -> JsonObject | None:
        """The object as last seen."""
        return self._objects.get(key)

    def items(self) -> list[JsonObject]:
        """All objects as last seen. They are shared: never edit one in place."""
        return list(self._objects.values())

    def where(self, wanted: Callable[[JsonObject], bool]) -> list[JsonObject]:
        """The objects that the function accepts."""
        return [obj for obj in self._objects.values() if wanted(obj)]

    async def wait_synced(self) -> None:
        """Wait for the first full list."""
        await self._synced.wait()

    def observe(self, obj: JsonObject) -> None:
        """Take over the answer to an own write, so that the next look does not act on the state before it.

        Ignored when the watch has already passed that revision: then it knows better.
        """
        if objects.revision(obj) > self._position:
            self._put(obj)

    async def run(self) -> None:
        """List and watch until cancelled; failures are retried with a growing pause."""
        pause = _FIRST_RETRY
        while True:
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
                pause = _FIRST_RETRY
            except ApiStatusError as error:
                if error.code != 410:
                    log.warning("watch failed", path=self.path, error=str(error))
                self._version = ""
            except (ConnectionError, TimeoutError, OSError) as error:
                log.debug("watch cut", path=self.path, error=repr(error))
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_RETRY)

    async def _relist(self) -> None:
        answer = await self._client.list(self.path, **self._query)
        version = str(answer["metadata"]["resourceVersion"])
        self._position = max(self._position, int(version) if version.isdecimal() else -1)
        present = {objects.key(item): _typed(item, answer) for item in answer.get("items") or []}
        for key in [key for key in self._objects if key not in present]:
            self._remove(key)
        for item in present.values():
            self._put(item)
        self._version = version
        self._synced.set()

    async def _follow(self) -> None:
        query = {**self._query, "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        async for event in self._client.watch(self.path, resource_version=self._version, query=query):
            obj: JsonObject = event["object"]
            if event["type"] == "ERROR":
                raise ApiStatusError(obj)
            self._version = str(objects.metadata(obj).get("resourceVersion") or self._version)
            self._position = max(self._position, objects.revision(obj))
            if event["type"] == "DELETED":
                known = self._objects.get(objects.key(obj))
                if known is not None and objects.revision(known) <= objects.revision(obj):
                    self._remove(objects.key(obj))
            elif event["type"] != "BOOKMARK":
                self._put(obj)

    def _put(self, obj: JsonObject) -> None:
        key = objects.key(obj)
        old = self._objects.get(key)
        if self._keep is not None:
            obj = self._keep(obj)
        if old is not None:
            if objects.uid(old) == objects.uid(obj) and 0 <= objects.revision(obj) <= objects.revision(old):
                return
            if objects.uid(old) != objects.uid(obj):
                # Deleted and made again between two looks: two objects, never one that changed.
                if objects.revision(obj) < objects.revision(old):
                    return
                self._remove(key)
                old = None
        self._objects[key] = obj
        self._tell(old, obj)

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key)
        self._tell(old, None)

    def _tell(self, old: JsonObject | None, new: JsonObject | None) -> None:
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:
                # One listener that fails must not keep the others from hearing.
                log.exception("handler failed", path=self.path)


def _typed(item: JsonObject, answer: JsonObject) -> JsonObject:
    """Items of a list of a core kind come without kind and apiVersion: give them theirs, as watch events have."""
    if "kind" in item:
        return item
    kind = str(answer.get("kind") or "").removesuffix("List")
    return {"kind": kind, "apiVersion": answer.get("apiVersion"), **item}


class InformerSet:
    """Informers that several controllers share, so that each object is kept and decoded once."""

    def __init__(self, client: ApiClient, clock: SandboxClock) -> None:
        """An empty set.

        Args:
            client: Lists and watches for everybody.
            clock: For pauses between failed attempts.
        """
        self._client = client
        self._clock = clock
        self._informers: dict[str, Informer] = {}

    def get(self, resource: ResourceInfo) -> Informer:
        """The informer of a kind, in all namespaces; made at the first call, which must come before `run`."""
        path = resources.path(resource)
        if path not in self._informers:
            self._informers[path] = Informer(self._client, self._clock, resource)
        return self._informers[path]

    async def run(self) -> None:
        """Keep all of them current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run(), name=f"informer {informer.path}")
