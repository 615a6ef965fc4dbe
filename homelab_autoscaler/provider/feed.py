"""Keeps a PoolIndex up to date from the manager's informers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from homelab_api.core import CoreNode, Job
from homelab_api.meta import KubeObject
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, UpdateEvent

if TYPE_CHECKING:
    from homelab_autoscaler.provider.index import PoolIndex
    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.event import Event
    from homelab_autoscaler.runtime.stop import StopSignal

T = TypeVar("T", bound=KubeObject)


class Feed:
    """Handlers on the informers of everything that an answer depends on.

    Args:
        cache: where the informers are; its watches are shared with the controllers.
        index: what is fed.
        namespace: of the pool; None for all.
    """

    def __init__(self, cache: Cache, index: PoolIndex, namespace: str | None) -> None:
        self._index = index
        pool_kinds: tuple[type[KubeObject], ...] = (Group, Node, NodeClaim, NodeReclaim, Job)
        informers = [cache.informer(kind, namespace=namespace) for kind in pool_kinds]
        informers.append(cache.informer(CoreNode))
        self._registrations = [informer.add_handler(self._take, name="provider") for informer in informers]

    def wait_for_sync(self, stop: StopSignal, timeout: float, clock: Clock) -> bool:
        """Wait until everything that exists has been taken in; False when stopped or out of `timeout` seconds."""
        deadline = clock.monotonic() + timeout
        return all(entry.wait_for_sync(stop, deadline - clock.monotonic()) for entry in self._registrations)

    def _take(self, event: Event[T]) -> None:
        match event:
            case CreateEvent():
                self._index.put(event.object)
            case UpdateEvent():
                if event.old.uid != event.new.uid:
                    self._index.remove(event.old)
                self._index.put(event.new)
            case DeleteEvent():
                self._index.remove(event.object)
            case _:
                pass
