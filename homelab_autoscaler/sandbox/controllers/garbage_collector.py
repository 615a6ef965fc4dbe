"""The garbage collector: dependents go when all their owners are gone; foreground and orphan deletions are finished."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH, ApiClient
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.controllers.discovery import Discovery
from homelab_autoscaler.sandbox.controllers.owner_graph import FOREGROUND, ORPHAN, Entry, Identity, OwnerGraph
from homelab_autoscaler.sandbox.informer import Informer
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from homelab_api.meta import JsonObject, ResourceInfo
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

log = structlog.get_logger(__name__)

_REDISCOVER: Final = 30.0
_UNKNOWN_KIND: Final = 5.0
_SYNC_SECONDS: Final = 5.0
_IGNORED: Final = frozenset({"events", "events.events.k8s.io"})


@dataclass(frozen=True)
class _Watched:
    informer: Informer
    task: asyncio.Task[None]


class GarbageCollector(Controller[str]):
    """Works on uids. Before every delete the owners are looked up at the server; the graph only says where to look.

    Not simulated: owner references across namespaces get no Event; they count as absent, as upstream.
    """

    component = "garbage-collector-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._discovery = Discovery(client)
        self._graph = OwnerGraph()
        self._watched: dict[ResourceInfo, _Watched] = {}
        self._complete = asyncio.Event()
        self._rediscover = asyncio.Event()
        self.informer(resources.CRDS).on_change(lambda _, __: self._rediscover.set())

    async def background(self) -> None:
        """Watch every kind that can be listed, watched and deleted, also those that come later."""
        try:
            while True:
                self._rediscover.clear()
                await self._discover()
                with contextlib.suppress(TimeoutError):
                    timer = asyncio.ensure_future(self.clock.sleep(_REDISCOVER))
                    wake = asyncio.ensure_future(self._rediscover.wait())
                    try:
                        await asyncio.wait({timer, wake}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        timer.cancel()
                        wake.cancel()
        finally:
            for watched in self._watched.values():
                watched.task.cancel()

    async def _discover(self) -> None:
        try:
            found = {info for info in await self._discovery.deletable() if info.group_resource not in _IGNORED}
        except (ApiStatusError, OSError) as error:
            log.warning("discovery failed", error=str(error))
            self._rediscover.set()
            await self.clock.sleep(1.0)
            return
        broken = [info for info, watched in self._watched.items() if watched.task.done()]
        for info in [info for info in self._watched if info not in found or info in broken]:
            watched = self._watched.pop(info)
            watched.task.cancel()
            for obj in watched.informer.items():
                self._wake(self._graph.remove(objects.uid(obj)))
        started: list[Informer] = []
        for info in found - set(self._watched):
            informer = Informer(self.client, self.clock, info, keep=_metadata_only)
            informer.on_change(self._changed)
            task = asyncio.get_running_loop().create_task(informer.run(), name=f"gc {info.group_resource}")
            task.add_done_callback(self._watch_ended)
            self._watched[info] = _Watched(informer, task)
            started.append(informer)
        if started:
            # While a kind is not known yet a foreground owner could look as if nothing depended on it.
            self._complete.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    for informer in started:
                        await informer.wait_synced()
        self._complete.set()

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error("a kind is not watched any more", watch=task.get_name(), error=repr(task.exception()))
            self._rediscover.set()

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None:
            self._wake(self._graph.put(new))
        elif old is not None:
            self._wake(self._graph.remove(objects.uid(old)))

    def _wake(self, uids: set[str]) -> None:
        for uid in uids:
            self.queue.add(uid)

    async def sync(self, key: str) -> float | None:
        """Look at one object: finish its deletion, or delete it if its owners are gone."""
        await self._complete.wait()
        entry = self._graph.get(key)
        if entry is None:
            return None
        if entry.is_orphaning:
            await self._orphan(entry)
        elif entry.in_foreground:
            await self._foreground(entry)
        elif not entry.deleting and entry.owners:
            return await self._collect(entry)
        return None

    async def _orphan(self, entry: Entry) -> None:
        for dependent in self._graph.dependents(entry.identity.uid):
            await self._drop_owners(dependent.identity, {entry.identity.uid})
        await self._drop_finalizer(entry.identity, ORPHAN)

    async def _foreground(self, entry: Entry) -> None:
        blocking = self._graph.blocking(entry.identity.uid)
        if not blocking:
            await self._drop_finalizer(entry.identity, FOREGROUND)
        self._wake({dependent.identity.uid for dependent in blocking if not dependent.deleting})

    async def _collect(self, entry: Entry) -> float | None:
        live = await self._live(entry.identity)
        if live is None or objects.is_deleting(live):
            return None
        solid: list[JsonObject] = []
        waiting = dangling = 0
        for reference in objects.owners(live):
            try:
                owner = await self._owner(entry.identity, reference)
            except LookupError as error:
                # A kind that is not served now may be served later; nothing is deleted on a guess.
                log.debug("owner of unknown kind", error=str(error))
                return _UNKNOWN_KIND
            if owner is None:
                dangling += 1
            elif objects.is_deleting(owner) and FOREGROUND in objects.finalizers(owner):
                waiting += 1
            else:
                solid.append(reference)
        if not objects.owners(live) or (solid and not waiting and not dangling):
            return None
        if solid:
            gone = {str(reference["uid"]) for reference in objects.owners(live)} - {str(ref["uid"]) for ref in solid}
            await self._drop_owners(entry.identity, gone)
            return None
        await self._delete(entry, live, waiting=waiting > 0)
        return None

    async def _delete(self, entry: Entry, live: JsonObject, *, waiting: bool) -> None:
        policy = "Background"
        dependents = self._graph.dependents(entry.identity.uid)
        if waiting and dependents:
            if any(dependent.in_foreground for dependent in dependents):
                await self._unblock(entry.identity)
                live = await self.client.get(self._path(entry.identity))
            policy = "Foreground"
        elif ORPHAN in objects.finalizers(live):
            policy = "Orphan"
        elif FOREGROUND in objects.finalizers(live):
            policy = "Foreground"
        preconditions = {"uid": entry.identity.uid, "resourceVersion": objects.metadata(live)["resourceVersion"]}
        options = {"propagationPolicy": policy, "preconditions": preconditions}
        await _unless_gone(self.client.delete(self._path(entry.identity), options))

    async def _unblock(self, identity: Identity) -> None:
        """Break a circle of owners that wait for each other: this one no longer holds its owners."""
        live = await self._live(identity)
        if live is None:
            return
        references = [{**reference, "blockOwnerDeletion": False} for reference in objects.owners(live)]
        await self._patch_metadata(identity, live, {"ownerReferences": references})

    async def _owner(self, dependent: Identity, reference: JsonObject) -> JsonObject | None:
        info = await self._discovery.resource(str(reference.get("apiVersion")), str(reference.get("kind")))
        namespace = dependent.namespace if info.namespaced else None
        if info.namespaced and not namespace:
            return None
        found = await _unless_gone(self.client.get(resources.path(info, namespace, str(reference.get("name")))))
        return found if found is not None and objects.uid(found) == reference.get("uid") else None

    async def _live(self, identity: Identity) -> JsonObject | None:
        found = await _unless_gone(self.client.get(self._path(identity)))
        return found if found is not None and objects.uid(found) == identity.uid else None

    def _path(self, identity: Identity) -> str:
        info = self._discovery.known(identity.api_version, identity.kind)
        return resources.path(info, identity.namespace, identity.name)

    async def _drop_owners(self, identity: Identity, gone: set[str]) -> None:
        live = await self._live(identity)
        if live is None:
            return
        left = [reference for reference in objects.owners(live) if str(reference.get("uid")) not in gone]
        if len(left) != len(objects.owners(live)):
            await self._patch_metadata(identity, live, {"ownerReferences": left or None})

    async def _drop_finalizer(self, identity: Identity, finalizer: str) -> None:
        live = await self._live(identity)
        if live is None or finalizer not in objects.finalizers(live):
            return
        left = [item for item in objects.finalizers(live) if item != finalizer]
        await self._patch_metadata(identity, live, {"finalizers": left or None})

    async def _patch_metadata(self, identity: Identity, live: JsonObject, change: JsonObject) -> None:
        found = objects.metadata(live)
        body = {"metadata": {"uid": found["uid"], "resourceVersion": found["resourceVersion"], **change}}
        await _unless_gone(self.client.patch(self._path(identity), body, MERGE_PATCH))


def _metadata_only(obj: JsonObject) -> JsonObject:
    kept = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "finalizers", "ownerReferences")
    found = objects.metadata(obj)
    return {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": {field: found[field] for field in kept if field in found},
    }


async def _unless_gone(call: Awaitable[JsonObject]) -> JsonObject | None:
    """The answer, or None if the object is not there."""
    try:
        return await call
    except ApiStatusError as error:
        if error.code == 404:
            return None
        raise
