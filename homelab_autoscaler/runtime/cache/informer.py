"""Informer: one kind in one scope, kept in a store, told to handlers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog
from pydantic import ValidationError

from homelab_api.meta import JsonObject, KubeObject
from homelab_autoscaler.runtime.cache.delivery import Handler, Registration
from homelab_autoscaler.runtime.cache.lister import Lister
from homelab_autoscaler.runtime.cache.reflector import Reflector, ReflectorOptions, key_of
from homelab_autoscaler.runtime.cache.store import Store, Transform, is_older, strip_managed_fields
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, Event, UpdateEvent

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable, Mapping

    from homelab_autoscaler.runtime.cache.indexers import Indexer
    from homelab_autoscaler.runtime.cache.listwatch import ListWatch
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

T = TypeVar("T", bound=KubeObject)
_MIN_RESYNC = 1.0
START_PATIENCE = 5.0
_log = structlog.get_logger("homelab_autoscaler.runtime.informer")


class Informer(Generic[T]):
    """Keeps a store in step with the API server and tells handlers what changed.

    Guarantees:
      - the store has taken a change before any handler hears of it;
      - each handler hears the changes of one object in their order, and one event at a time;
      - an object that vanished while we were not looking is told as a DeleteEvent with `state_unknown`;
      - an item that is older than what the store holds of that object (a repeated event) changes nothing.

    Non-guarantees:
      - the store is behind the server by an unknown time (`silence` bounds it);
      - no order between different objects, and none between informers;
      - several changes may be told as one; delete and re-create may be told as one update with another uid.

    Events are applied by the reflector's own thread: what is not applied yet waits in the server's stream, so there
    is no second queue whose content could differ from the store's.

    An informer runs once. Handlers and indexes may be added at any time before it has stopped.

    Args:
        kind: the class of its objects.
        source: where they come from.
        clock: ages, back-off.
        namespace: what scope it covers, None for all; only told, `source` decides.
        indexers: by name.
        transform: applied once to each object before it is stored; must be idempotent and keep metadata.
        options: of the reflector.
        on_error: told of each failed list or watch.
        rng: jitter.
        resync_factor: stretches every resync period, so that the informers of a process do not replay together.
    """

    def __init__(
        self,
        kind: type[T],
        source: ListWatch,
        clock: Clock,
        *,
        namespace: str | None = None,
        indexers: Mapping[str, Indexer[T]] | None = None,
        transform: Transform | None = None,
        options: ReflectorOptions | None = None,
        on_error: Callable[[Exception], None] | None = None,
        rng: random.Random | None = None,
        resync_factor: float = 1.0,
    ) -> None:
        self.kind = kind
        self._resync_factor = resync_factor
        self.namespace = namespace
        self.store: Store[T] = Store(kind, indexers)
        self.lister: Lister[T] = Lister(self.store, self._await_start)
        self._clock = clock
        self._transform = transform
        self._reflector = Reflector(source, self, kind.resource, clock, options=options, on_error=on_error, rng=rng)
        # Serialises changes of the store with registrations, so that a new handler misses and repeats nothing.
        self._turn = threading.RLock()
        self._synced = threading.Condition()
        self._has_synced = False
        self._started = threading.Event()
        self._registrations: list[Registration[T]] = []
        self._threads: list[threading.Thread] = []
        self._stop: StopSignal | None = None
        self._stopped = False
        self.unreadable = 0
        """Objects that the model could not read; the store keeps their last readable state."""

    # --- life ---------------------------------------------------------------------------------------------

    def run(self, stop: StopSignal) -> None:
        """List, watch and deliver until stopped; returns when all its threads have ended.

        Raises:
            RuntimeError: it ran before.
        """
        with self._turn:
            if self._stop is not None:
                raise RuntimeError(f"the informer of {self.kind.resource.group_resource} was started before")
            self._stop = stop
            self._started.set()
            self._wake()
            for registration in self._registrations:
                self._start(registration, stop)
        try:
            self._reflector.run(stop)
        finally:
            with self._turn:
                self._stopped = True
                threads = list(self._threads)
            for thread in threads:
                thread.join()

    def _await_start(self) -> bool:
        """Whether it was started, within a few seconds from now."""
        return self._started.is_set() or self._wait_for(self._started.is_set, START_PATIENCE)

    def has_synced(self) -> bool:
        """True once the first list has been applied to the store (not necessarily delivered: see Registration)."""
        return self._has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float) -> bool:
        """Wait for `has_synced`; False when stopped or out of time."""
        remove = stop.on_set(self._wake)
        try:
            self._wait_for(lambda: self._has_synced or stop.is_set(), timeout)
            return self._has_synced and not stop.is_set()
        finally:
            remove()

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = self._clock.monotonic() + timeout
        with self._synced:
            while not condition():
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0:
                    return False
                self._clock.wait(self._synced, remaining)
            return True

    @property
    def silence(self) -> float:
        """Seconds since the server last said anything about this kind."""
        return self._reflector.silence

    @property
    def pending(self) -> int:
        """Events that some handler has not yet heard, summed over handlers."""
        with self._turn:
            return sum(registration.pending for registration in self._registrations)

    def transform_by(self, transform: Transform) -> None:
        """Pass every object through this function before it is read and kept.

        Raises:
            ValueError: it has another one, or has begun to keep objects.
        """
        with self._turn:
            if self._transform is transform:
                return
            resource = self.kind.resource.group_resource
            if self._transform is not None:
                raise ValueError(f"the informer of {resource} has another transform")
            if self._started.is_set():
                raise ValueError(f"the informer of {resource} was started: a transform is too late")
            self._transform = transform

    def add_indexers(self, indexers: Mapping[str, Indexer[T]]) -> None:
        """Add indexes, also over objects that are there. Raises ValueError for a name that is taken."""
        self.store.add_indexers(indexers)

    def add_handler(
        self,
        handler: Handler[T],
        *,
        name: str = "handler",
        resync_period: float | None = None,
        direct: bool = False,
    ) -> Registration[T]:
        """Tell `handler` of everything from now on; what is there already comes first, as initial CreateEvents.

        Args:
            handler: called in a thread of its own; must be quick. If it raises, it loses that event.
            name: for logs.
            resync_period: seconds between replays of the whole store as unchanged UpdateEvents; at least 1.
            direct: call it in the thread that changes the store, between two changes, instead of in its own. Only
                for a handler that takes microseconds and no lock under which this informer is used: while it runs,
                the store and all other handlers stand still.

        Raises:
            RuntimeError: the informer has stopped.
        """
        period = None if resync_period is None else max(_MIN_RESYNC, resync_period)
        registration = Registration(name, handler, self._clock, period, direct=direct)
        if period is not None:
            registration.next_resync = self._clock.monotonic() + self._resync_factor * period
        with self._turn:
            if self._stopped:
                raise RuntimeError(f"the informer of {self.kind.resource.group_resource} has stopped")
            self._registrations.append(registration)
            if self._has_synced:
                for obj in self.store.list():
                    registration.push(CreateEvent(obj, initial=True))
                registration.mark_initial()
            if self._stop is not None:
                self._start(registration, self._stop)
        return registration

    def remove_handler(self, registration: Registration[T]) -> None:
        """Tell it nothing more. Harmless when repeated."""
        with self._turn:
            if registration in self._registrations:
                self._registrations.remove(registration)
        registration.remove()

    def resync_due(self) -> float | None:
        """Seconds until some handler wants a replay, None if none ever does."""
        now = self._clock.monotonic()
        with self._turn:
            times = [r.next_resync for r in self._registrations if r.next_resync is not None]
        return None if not times else max(0.0, min(times) - now)

    def resync(self) -> None:
        """Replay the store to the handlers whose time has come. The server is not asked.

        An object of which a handler has yet to hear something newer is left out for it.
        """
        now = self._clock.monotonic()
        with self._turn:
            due = [r for r in self._registrations if r.next_resync is not None and r.next_resync <= now]
            if not due:
                return
            objects = self.store.list()
            for registration in due:
                registration.next_resync = now + self._resync_factor * (registration.resync_period or _MIN_RESYNC)
                registration.replay(objects)

    def _start(self, registration: Registration[T], stop: StopSignal) -> None:
        if registration.direct:
            return
        thread = threading.Thread(
            target=registration.run,
            args=(stop,),
            name=f"informer/{self.kind.resource.plural}/{registration.name}",
            daemon=True,
        )
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()

    def _wake(self) -> None:
        with self._synced:
            self._synced.notify_all()

    # --- Sink: called by the reflector's thread -----------------------------------------------------------

    def replace(self, keys: Collection[str], objects: Iterable[JsonObject], resource_version: str) -> None:
        """See Sink: deletes first, then every object as new or changed."""
        initial = not self._has_synced
        present = set(keys)
        with self._turn:
            for key in [key for key in self.store.keys() if key not in present]:  # noqa: SIM118 - a copy, not a view
                old = self.store.drop(key)
                if old is not None:
                    self._tell(DeleteEvent(old, state_unknown=True))
            for obj in objects:
                self._put(obj, initial=initial, from_list=True)
            self.store.set_version(resource_version, authoritative=True)
            if initial:
                for registration in self._registrations:
                    registration.mark_initial()
                with self._synced:
                    self._has_synced = True
                    self._synced.notify_all()

    def upsert(self, obj: JsonObject) -> None:
        """See Sink."""
        with self._turn:
            self._put(obj, initial=False, from_list=False)
            self.store.set_version(obj["metadata"].get("resourceVersion", ""))

    def remove(self, obj: JsonObject) -> None:
        """See Sink."""
        with self._turn:
            key = key_of(obj)
            version = obj["metadata"].get("resourceVersion", "")
            held = self.store.version_of(key)
            if held is not None and not is_older(version, held):
                old = self.store.drop(key)
                last = self._read(obj)
                if old is not None:
                    self._tell(DeleteEvent(last or old))
            self.store.set_version(version)

    def bookmark(self, resource_version: str) -> None:
        """See Sink."""
        self.store.set_version(resource_version)

    def _put(self, obj: JsonObject, *, initial: bool, from_list: bool) -> None:
        key = key_of(obj)
        version = obj["metadata"].get("resourceVersion", "")
        held = self.store.version_of(key)
        if held is not None and not from_list and is_older(version, held):
            return
        if held is not None and held == version and version:
            current = self.store.get(key)
            if current is not None and current.uid == obj["metadata"].get("uid", ""):
                if any(r.resync_period is not None for r in self._registrations):
                    self._tell(UpdateEvent(current, current))
                return
        body = strip_managed_fields(obj)
        if self._transform is not None:
            body = self._transform(body)
        model = self._read(body)
        if model is None:
            return
        old = self.store.put(key, body, model)
        self._tell(CreateEvent(model, initial=initial) if old is None else UpdateEvent(old, model))

    def _read(self, body: JsonObject) -> T | None:
        try:
            return self.kind.from_json(body)
        except ValidationError as error:
            self.unreadable += 1
            metadata = body["metadata"]
            _log.error(
                "object cannot be read and is skipped",
                resource=self.kind.resource.group_resource,
                name=metadata.get("name"),
                namespace=metadata.get("namespace"),
                fields=[f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]],
            )
            return None

    def _tell(self, event: Event[T]) -> None:
        for registration in self._registrations:
            registration.push(event)
