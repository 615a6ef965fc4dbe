"""What all simulators share: informers that wake keys, one worker, retries."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.events import EventRecorder
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.workqueue import WorkQueue

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject, ResourceInfo
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import Informer, InformerSet

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger(__name__)


class Controller(ABC, Generic[K]):
    """A level-driven loop over keys.

    Subclasses register informers in their constructor and implement `sync`. A pass that raises is repeated after a
    growing pause; a conflict (409) or a vanished object (404) is an everyday matter and not logged as a failure.
    """

    component: str
    """Name in Events and logs, as the real component's."""

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """Prepare the controller.

        Args:
            client: Its own client, under its own user name.
            clock: Measures delays and dates what it writes.
            informers: Where it looks; run by whoever runs the controllers.
        """
        self.client = client
        self.clock = clock
        self.queue: WorkQueue[K] = WorkQueue(clock)
        self.events = EventRecorder(client, clock, self.component)
        self._shared = informers
        self._informers: list[Informer] = []

    def informer(self, resource: ResourceInfo) -> Informer:
        """The shared copy of a kind; `run` waits until it is there."""
        found = self._shared.get(resource)
        self._informers.append(found)
        return found

    @abstractmethod
    async def sync(self, key: K) -> float | None:
        """Bring one key nearer to what it should be.

        Returns:
            Seconds after which to look again without an event, or None.
        """

    async def is_current(self, informer: Informer, seen: JsonObject) -> bool:
        """Whether the server still has an object exactly as it was seen; if not, the copy is brought up to date.

        Asked before something is created for an owner: a copy may lag behind, and what is made for an owner that is
        gone would run until somebody finds it.
        """
        try:
            live = await self.client.get(resources.path(informer.resource, *objects.key(seen)))
        except ApiStatusError as error:
            if error.code == 404:
                return False
            raise
        informer.observe(live)
        return objects.revision(live) == objects.revision(seen)

    async def background(self) -> None:
        """Work beside the queue; nothing by default."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self._informers:
                    await informer.wait_synced()
                group.create_task(self.background())
                while True:
                    await self._work(await self.queue.get())
        finally:
            self.queue.close()

    async def _work(self, key: K) -> None:
        try:
            again = await self.sync(key)
        except (ApiStatusError, OSError) as error:
            if not isinstance(error, ApiStatusError) or error.code not in (404, 409):
                log.warning("pass failed", controller=self.component, key=str(key), error=str(error))
            self.queue.retry(key)
        except Exception:
            log.exception("pass failed", controller=self.component, key=str(key))
            self.queue.retry(key)
        else:
            self.queue.done(key)
            if again is not None:
                self.queue.add_after(key, again)
