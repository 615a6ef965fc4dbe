"""The product without its threads: its assembly, with queues and timers that one loop works off."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.controllers import assemble
from homelab_autoscaler.lifecycle.lock import LockRefusedError
from homelab_autoscaler.runtime import ApiError, Client, ConflictError, Request
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, UpdateEvent
from homelab_autoscaler.runtime.handler import enqueue_mapped, enqueue_self

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject, KubeObject
    from homelab_autoscaler.controllers.assemble import AssemblyOptions
    from homelab_autoscaler.sandbox.apiserver.store import Store
    from homelab_autoscaler.settings import Settings

WATCHED = (Node, Group, NodeClaim, NodeReclaim, CoreNode, Job)
_MOST_PASSES = 2000
"""At one instant. More than that is a pass that wakes itself."""
_MOST_AT_ONCE_AGAIN = 200
"""How often in a row a pass may ask for the next one within a twentieth of a second."""


class Died(BaseException):
    """The process ends here. Nothing of the product may catch it."""


@dataclass(frozen=True)
class Said:
    """An event that the product recorded."""

    at: Any
    kind: str
    name: str
    type: str
    reason: str
    message: str


@dataclass
class Leadership:
    """Who leads, as the product sees it."""

    identity: str
    transitions: int

    def is_leader(self) -> bool:
        return True

    def check(self) -> None:
        return None


class Recorder:
    """Keeps events instead of writing them."""

    def __init__(self, clock: Any, said: list[Said]) -> None:
        self._clock = clock
        self._said = said

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, **_: Any) -> None:
        self._said.append(Said(self._clock.now(), type(obj).__name__, obj.name, type_, reason, message))


@dataclass
class Mirror:
    """What the process has seen of one kind: a cache, with its indexes computed when they are asked."""

    kind: type[KubeObject]
    objects: dict[tuple[str, str], Any] = field(default_factory=dict)
    indexers: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    transform: Callable[[JsonObject], JsonObject] | None = None

    def take(self, key: tuple[str, str], body: JsonObject) -> Any:
        """Keep what the process keeps of an object."""
        self.objects[key] = self.kind.from_json(self.transform(body) if self.transform else body)
        return self.objects[key]

    def get(self, name: str, namespace: str | None = None) -> Any:
        return self.objects.get((namespace or "", name))

    def list(self, namespace: str | None = None) -> list[Any]:
        return [found for key, found in sorted(self.objects.items()) if namespace in {None, key[0]}]

    def index_values(self, index: str) -> list[str]:
        return list(dict.fromkeys(value for found in self.list() for value in self.indexers[index](found)))

    def by_index(self, index: str, value: str) -> list[Any]:
        return [found for _, found in sorted(self.objects.items()) if value and value in self.indexers[index](found)]


class Mirrors:
    """In place of the cache."""

    def __init__(self) -> None:
        self.of = {kind: Mirror(kind) for kind in WATCHED}

    def informer(
        self, kind: type[KubeObject], *, namespace: str | None = None, indexers: Any = None, transform: Any = None
    ) -> Mirror:
        del namespace
        self.of[kind].indexers.update(indexers or {})
        self.of[kind].transform = transform or self.of[kind].transform
        return self.of[kind]

    def lister(self, kind: type[KubeObject]) -> Mirror:
        return self.of[kind]


class _Builder:
    """In place of the ControllerBuilder: connects the reconciler to the operator's loop."""

    def __init__(self, operator: Operator, name: str) -> None:
        self._operator = operator
        self._name = name
        self._watches: list[Any] = []

    def for_(self, kind: type[KubeObject], **_: Any) -> _Builder:
        self._watches.append((kind, enqueue_self))
        return self

    def watches(self, kind: type[KubeObject], mapper: Any, **_: Any) -> _Builder:
        self._watches.append((kind, enqueue_mapped(mapper)))
        return self

    def with_options(self, **_: Any) -> _Builder:
        return self

    def complete(self, reconciler: Any) -> _Builder:
        self._operator.reconcilers[self._name] = reconciler
        for kind, handler in self._watches:
            self._operator.handlers[kind].append((self._name, handler))
        return self

    def enqueue(self, request: Request) -> None:
        self._operator.enqueue(self._name, request)


class Operator:
    """One life of the operator.

    Attributes:
        held: kinds whose events do not arrive at present.
        passes: how many passes each controller has made.
        bugs: exceptions that no pass may end with, as text.
    """

    def __init__(
        self,
        store: Store,
        client: Client,
        clock: Any,
        settings: Settings,
        options: AssemblyOptions,
        leadership: Leadership,
        said: list[Said],
    ) -> None:
        self.client = client
        self.clock = clock
        self.cache = Mirrors()
        self.recorder = Recorder(clock, said)
        self.leadership = leadership
        self.reconcilers: dict[str, Any] = {}
        self.handlers: dict[type[KubeObject], list[Any]] = {kind: [] for kind in WATCHED}
        self.held: set[type[KubeObject]] = set()
        self.passes: dict[str, int] = {}
        self.bugs: list[str] = []
        self._store = store
        self._seen: dict[type[KubeObject], int] = {}
        self._queue: dict[tuple[str, Request], None] = {}
        self._timers: dict[tuple[str, Request], float] = {}
        self._failures: dict[tuple[str, Request], int] = {}
        self._hurried: dict[tuple[str, Request], int] = {}
        original = assemble.ControllerBuilder
        assemble.ControllerBuilder = _Builder  # type: ignore[assignment,misc]
        try:
            assemble.assemble(self, settings, options)  # type: ignore[arg-type]
        finally:
            assemble.ControllerBuilder = original  # type: ignore[misc]

    def enqueue(self, controller: str, request: Request) -> None:
        """Ask for a pass of a controller."""
        self._queue[controller, request] = None

    # --- the loop ---------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """Hear what happened, do what is due; seconds until something is due by itself."""
        for _ in range(_MOST_PASSES):
            self._listen()
            key = self._next()
            if key is None:
                break
            self._timers.pop(key, None)
            self._pass(key)
        else:
            raise AssertionError(f"the passes never end: {dict(self.passes)}")
        now = self.clock.monotonic()
        return None if not self._timers else max(0.0, min(self._timers.values()) - now)

    def before_turn(self) -> None:
        """Take in what there is, without any pass."""
        self._listen()

    def resync(self) -> None:
        """Wake every object of every controller, as a list does."""
        for kind in WATCHED:
            for found in self.cache.of[kind].list():
                self._tell(kind, CreateEvent(found))

    def _next(self) -> tuple[str, Request] | None:
        for key in self._queue:
            del self._queue[key]
            return key
        now = self.clock.monotonic()
        due = [(at, key) for key, at in self._timers.items() if at <= now]
        return min(due)[1] if due else None

    def _listen(self) -> None:
        for kind in WATCHED:
            if kind in self.held or self._seen.get(kind) == self._store.revision:
                continue
            self._seen[kind] = self._store.revision
            mirror = self.cache.of[kind]
            collection = self._store.collection(f"{kind.resource.group}/{kind.resource.plural}")
            present = {tuple(entry.key): entry for entry in collection.items()}
            for key in [key for key in mirror.objects if key not in present]:
                self._tell(kind, DeleteEvent(mirror.objects.pop(key)))
            for key, entry in present.items():
                known = mirror.objects.get(key)
                if known is not None and known.metadata.resource_version == str(entry.revision):
                    continue
                found = mirror.take(key, entry.load())
                self._tell(kind, CreateEvent(found) if known is None else UpdateEvent(known, found))

    def _tell(self, kind: type[KubeObject], event: Any) -> None:
        for controller, handler in self.handlers[kind]:
            for request in handler(event):
                self._queue[controller, request] = None

    def _pass(self, key: tuple[str, Request]) -> None:
        controller, request = key
        self.passes[controller] = self.passes.get(controller, 0) + 1
        try:
            wait = self._reconcile(controller, request)
            self._failures.pop(key, None)
            self._hurry(key, wait)
        except ConflictError:
            wait = 0.05
        except LockRefusedError as refusal:
            wait = max(0.05, (refusal.until - self.clock.now()).total_seconds())
        except ApiError:
            self._failures[key] = self._failures.get(key, 0) + 1
            wait = min(60.0, 0.5 * 2.0 ** self._failures[key])
        except Exception as error:  # noqa: BLE001 - the runtime goes on after any of them, too
            self.bugs.append(f"{controller} {request}: {error!r}")
            wait = 1.0
        if wait is not None:
            due = self.clock.monotonic() + wait
            self._timers[key] = min(due, self._timers.get(key, due))

    def _hurry(self, key: tuple[str, Request], wait: float | None) -> None:
        """A pass that asks for itself at once, time and again, waits for something that is over."""
        hurried = self._hurried.get(key, 0) + 1 if wait is not None and wait <= 0.05 else 0
        self._hurried[key] = hurried
        if hurried == _MOST_AT_ONCE_AGAIN:
            self.bugs.append(f"{key[0]} {key[1]}: it wakes itself without an end")

    def _reconcile(self, controller: str, request: Request) -> float | None:
        return self.reconcilers[controller].reconcile(request).requeue_after


@contextlib.contextmanager
def holding(operator: Operator, *kinds: type[KubeObject]):
    """Keep the events of these kinds back; at the end the operator lists anew."""
    operator.held.update(kinds)
    try:
        yield
    finally:
        operator.held.difference_update(kinds)
