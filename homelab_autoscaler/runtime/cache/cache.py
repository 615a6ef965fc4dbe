"""Cache: all informers of a process."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from homelab_api.meta import KubeObject
from homelab_autoscaler.runtime.cache.informer import Informer
from homelab_autoscaler.runtime.cache.listwatch import INACTIVITY, ApiListWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from homelab_autoscaler.runtime.cache.indexers import Indexer
    from homelab_autoscaler.runtime.cache.lister import Lister
    from homelab_autoscaler.runtime.cache.listwatch import ListWatch
    from homelab_autoscaler.runtime.cache.reflector import ReflectorOptions
    from homelab_autoscaler.runtime.cache.store import Transform
    from homelab_autoscaler.runtime.client import Transport
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

T = TypeVar("T", bound=KubeObject)
_log = structlog.get_logger("homelab_autoscaler.runtime.cache")
_RESYNC_CHECK = 30.0
RESYNC_SPREAD = 0.1
"""Share by which the resync periods of the informers of a cache differ at most from what was asked for."""


class Cache:
    """Informers by kind and namespace; one of each, shared by everyone who wants it.

    Nothing is cached by accident: a lister of a kind that nobody registered is an error, not a new watch of the
    whole cluster.

    Args:
        transport: connections to the API server.
        clock: of all informers.
        options: of all reflectors.
        make_source: how to get objects of a kind; the default asks the API server. Tests give fake sources.
        on_error: told (kind, error) of each failed list or watch.
        inactivity: seconds of silence on a watch that count as a dead connection.
        rng: jitter.
    """

    def __init__(
        self,
        transport: Transport | None,
        clock: Clock,
        *,
        options: ReflectorOptions | None = None,
        make_source: Callable[[type[KubeObject], str | None], ListWatch] | None = None,
        on_error: Callable[[type[KubeObject], Exception], None] | None = None,
        inactivity: float = INACTIVITY,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._options = options
        self._make_source = make_source or self._api_source
        self._on_error = on_error
        self._inactivity = inactivity
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._lock = threading.Lock()
        self._informers: dict[tuple[type[KubeObject], str | None], Informer[Any]] = {}
        self._threads: list[threading.Thread] = []
        self._stop: StopSignal | None = None

    def informer(
        self,
        kind: type[T],
        *,
        namespace: str | None = None,
        indexers: Mapping[str, Indexer[T]] | None = None,
        transform: Transform | None = None,
    ) -> Informer[T]:
        """The informer of a kind, made by the first call. One that is made after the start starts at once.

        Args:
            kind: which objects.
            namespace: only of this namespace; None for all.
            indexers: added to the ones it has; the very same function under the same name is no second one.
            transform: by whichever call has one, before the start.

        Raises:
            ValueError: another index function has that name, there is another transform, or it came after the start.
        """
        with self._lock:
            key = (kind, namespace)
            informer: Informer[T] | None = self._informers.get(key)
            if informer is not None:
                if transform is not None:
                    informer.transform_by(transform)
                known = informer.store.indexers()
                informer.add_indexers({n: f for n, f in (indexers or {}).items() if known.get(n) is not f})
                return informer
            on_error = self._on_error
            informer = Informer(
                kind,
                self._make_source(kind, namespace),
                self._clock,
                namespace=namespace,
                indexers=indexers,
                transform=transform,
                options=self._options,
                on_error=None if on_error is None else lambda error: on_error(kind, error),
                rng=random.Random(self._rng.random()),  # noqa: S311 - jitter needs no secrecy
                resync_factor=self._rng.uniform(1 - RESYNC_SPREAD, 1 + RESYNC_SPREAD),
            )
            self._informers[key] = informer
            if self._stop is not None:
                self._start(informer, self._stop)
            return informer

    def lister(self, kind: type[T], *, namespace: str | None = None) -> Lister[T]:
        """Reads of a kind that has an informer; `namespace` picks one if there are several.

        Raises:
            LookupError: no informer of that kind was registered, or several and none was picked.
        """
        return self.registered(kind, namespace=namespace).lister

    def registered(self, kind: type[T], *, namespace: str | None = None) -> Informer[T]:
        """The informer of a kind that someone registered. Raises LookupError as `lister`."""
        with self._lock:
            found = [informer for (k, ns), informer in self._informers.items() if k is kind and namespace in {None, ns}]
            if (kind, namespace) in self._informers:
                return self._informers[(kind, namespace)]
        name = kind.resource.group_resource
        if not found:
            raise LookupError(f"nothing watches {name}: call cache.informer({kind.__name__}) before reading it")
        if len(found) > 1:
            raise LookupError(f"{name} is watched in several namespaces: say which one to read")
        return found[0]

    def covering(self, kind: type[KubeObject], namespace: str) -> Informer[Any] | None:
        """The informer that sees objects of that kind in that namespace, if there is one."""
        with self._lock:
            return self._informers.get((kind, None)) or self._informers.get((kind, namespace))

    def informers(self) -> list[Informer[Any]]:
        """All informers."""
        with self._lock:
            return list(self._informers.values())

    def wait_for_sync(self, stop: StopSignal, timeout: float) -> bool:
        """Wait until every informer has applied its first list; False when stopped or out of `timeout` seconds."""
        deadline = self._clock.monotonic() + timeout
        return all(i.wait_for_sync(stop, deadline - self._clock.monotonic()) for i in self.informers())

    def unsynced(self) -> list[str]:
        """Names of the kinds whose first list is not there yet."""
        return [i.kind.resource.group_resource for i in self.informers() if not i.has_synced()]

    def silence(self) -> float:
        """Seconds since the least recently heard kind was heard of: how old the cache may be."""
        return max((informer.silence for informer in self.informers()), default=0.0)

    def run(self, stop: StopSignal) -> None:
        """Run all informers until stopped; returns when their threads have ended.

        Raises:
            RuntimeError: it ran before.
        """
        with self._lock:
            if self._stop is not None:
                raise RuntimeError("the cache was started before")
            self._stop = stop
            for informer in self._informers.values():
                self._start(informer, stop)
        self._resync_until(stop)
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _resync_until(self, stop: StopSignal) -> None:
        while not stop.is_set():
            due = [seconds for informer in self.informers() if (seconds := informer.resync_due()) is not None]
            if self._clock.sleep(min([*due, _RESYNC_CHECK]), stop):
                return
            for informer in self.informers():
                informer.resync()

    def _start(self, informer: Informer[Any], stop: StopSignal) -> None:
        thread = threading.Thread(
            target=informer.run, args=(stop,), name=f"informer/{informer.kind.resource.plural}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _api_source(self, kind: type[KubeObject], namespace: str | None) -> ListWatch:
        if self._transport is None:
            raise ValueError("a cache without a transport needs make_source")
        return ApiListWatch(
            self._transport, self._clock, kind.resource, namespace=namespace, inactivity=self._inactivity
        )
