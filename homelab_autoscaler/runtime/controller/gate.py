"""Read your writes: no pass starts on a cache that has not yet seen what the last pass of that object wrote.

The cache lags behind. A pass that reads it right after a write of its own would decide from the past: create
again, or take back. So every write during a pass is noted with its resourceVersion, and the next pass of the same
object waits until the informer of the written kind is at least that far.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from homelab_autoscaler.runtime.cache import is_older, object_key

if TYPE_CHECKING:
    from contextvars import Token

    from homelab_api.meta import KubeObject
    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.client import Client, Write
    from homelab_autoscaler.runtime.reconcile import Request


class _Owner(NamedTuple):
    gate: ConsistencyGate
    request: Request


_current: ContextVar[_Owner | None] = ContextVar("reconciling", default=None)


class Recording:
    """What `ConsistencyGate.recording` gives."""

    __slots__ = ("_owner", "_token")

    def __init__(self, owner: _Owner) -> None:
        self._owner = owner

    def __enter__(self) -> Self:
        self._token: Token[_Owner | None] = _current.set(self._owner)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


@dataclass(slots=True)
class _Pending:
    """What the cache has to show: for each (kind, namespace) a version, and objects that must be gone."""

    uid: str
    versions: dict[tuple[type[KubeObject], str], tuple[str, int]]
    deleted: dict[tuple[type[KubeObject], str], str]


class ConsistencyGate:
    """The write-version gate of one controller.

    Guarantee: `open_for` is False as long as an informer that covers the written object is behind the write.
    It opens on any news of that informer, a bookmark too. Non-guarantee: writes of other processes, of other
    objects' passes, and of kinds without an informer do not close it.

    A record ends with its object (gone from the cache, or another uid), and when a list shows that the server's
    versions went back. A version that is no number is not waited for: nothing could tell when it has come.
    """

    def __init__(self, cache: Cache, kind: type[KubeObject] | None = None) -> None:
        self._cache = cache
        self._kind = kind
        self._lock = threading.Lock()
        self._pending: dict[Request, _Pending] = {}

    def recording(self, request: Request) -> Recording:
        """A context: writes inside belong to this request's object."""
        return Recording(_Owner(self, request))

    def open_for(self, request: Request) -> bool:
        """Whether the cache has seen what earlier passes of this object wrote."""
        if not self._pending:
            return True
        with self._lock:
            pending = self._pending.get(request)
            if pending is None:
                return True
            if pending.uid != self._uid(request):
                del self._pending[request]
                return True
            self._settle(pending)
            if pending.versions or pending.deleted:
                return False
            del self._pending[request]
            return True

    def forget(self, request: Request) -> None:
        """Drop what was noted for this object."""
        with self._lock:
            self._pending.pop(request, None)

    def note(self, request: Request, write: Write) -> None:
        """Note a write that belongs to this object's pass."""
        informer = self._cache.covering(write.kind, write.namespace)
        if informer is None:
            return
        with self._lock:
            pending = self._pending.get(request)
            uid = self._uid(request)
            if pending is None or pending.uid != uid:
                pending = self._pending[request] = _Pending(uid, {}, {})
            if write.deleted and not write.resource_version:
                if write.uid:
                    pending.deleted[(write.kind, object_key(write.namespace, write.name))] = write.uid
            elif write.resource_version.isdigit():
                key = (write.kind, write.namespace)
                known = pending.versions.get(key)
                if known is None or is_older(known[0], write.resource_version):
                    pending.versions[key] = (write.resource_version, informer.store.rewinds)

    def _settle(self, pending: _Pending) -> None:
        for (kind, namespace), (version, rewinds) in list(pending.versions.items()):
            informer = self._cache.covering(kind, namespace)
            if (
                informer is None
                or informer.store.rewinds != rewinds
                or (informer.store.version and not is_older(informer.store.version, version))
            ):
                del pending.versions[(kind, namespace)]
        for (kind, key), uid in list(pending.deleted.items()):
            informer = self._cache.covering(kind, key.rpartition("/")[0])
            held = None if informer is None else informer.store.get(key)
            if held is None or held.uid != uid or held.marked:
                del pending.deleted[(kind, key)]

    def _uid(self, request: Request) -> str:
        if self._kind is None:
            return ""
        informer = self._cache.covering(self._kind, request.namespace)
        if informer is None:
            return ""
        return informer.store.uid_of(object_key(request.namespace, request.name)) or ""


def record_writes(client: Client) -> None:
    """Make a client's writes known to the gate of whichever pass makes them."""

    def observe(write: Write) -> None:
        owner = _current.get()
        if owner is not None:
            owner.gate.note(owner.request, write)

    client.on_write(observe)
