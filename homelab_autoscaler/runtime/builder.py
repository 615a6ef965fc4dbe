"""ControllerBuilder: says in a few lines which objects a controller reconciles and what wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from homelab_api.meta import KubeObject
from homelab_autoscaler.runtime.controller import ConsistencyGate, Controller, Engine
from homelab_autoscaler.runtime.handler import EventMapper, enqueue_mapped, enqueue_owner, enqueue_self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from homelab_autoscaler.runtime.channel import Channel
    from homelab_autoscaler.runtime.manager import Manager
    from homelab_autoscaler.runtime.predicate import Predicate
    from homelab_autoscaler.runtime.queue import RateLimiter
    from homelab_autoscaler.runtime.reconcile import Reconciler, Request

T = TypeVar("T", bound=KubeObject)
DEFAULT_RESYNC = 10 * 3600.0


class ControllerBuilder:
    """Builds one controller and adds it to a manager.

    Args:
        manager: runs it.
        name: unique in the process; label in metrics and logs.
    """

    def __init__(self, manager: Manager, name: str) -> None:
        self._manager = manager
        self._name = name
        self._kind: type[KubeObject] | None = None
        self._watches: list[tuple[type[KubeObject], EventMapper, Predicate | None, str | None]] = []
        self._channels: list[tuple[Channel[Any], EventMapper, Predicate | None]] = []
        self._workers = 1
        self._reconcile_timeout: float | None = 60.0
        self._rate_limiter: RateLimiter[Request] | None = None
        self._needs_leader = True
        self._gate = manager.options.read_your_writes
        self._resync_period: float | None = DEFAULT_RESYNC

    def for_(
        self, kind: type[T], predicate: Predicate | None = None, *, namespace: str | None = None
    ) -> ControllerBuilder:
        """The kind that is reconciled: its own events wake it.

        Raises:
            ValueError: called twice.
        """
        if self._kind is not None:
            raise ValueError(f"controller {self._name}: for_ was called before, with {self._kind.__name__}")
        self._kind = kind
        self._watches.append((kind, enqueue_self, predicate, namespace))
        return self

    def owns(
        self,
        kind: type[KubeObject],
        *,
        owner: type[KubeObject] | None = None,
        controller_only: bool = True,
        predicate: Predicate | None = None,
        namespace: str | None = None,
    ) -> ControllerBuilder:
        """Dependants that wake their owner.

        Args:
            kind: of the dependants.
            owner: kind of the owner; None for the reconciled kind.
            controller_only: only the owner that is marked as controller.
            predicate: which events count.
            namespace: watch only there.

        Raises:
            ValueError: no owner was given and `for_` was not called.
        """
        owner = owner or self._kind
        if owner is None:
            raise ValueError(f"controller {self._name}: owns needs an owner, or for_ before it")
        self._watches.append((kind, enqueue_owner(owner, controller_only=controller_only), predicate, namespace))
        return self

    def watches(
        self,
        kind: type[T],
        map_object: Callable[[T], Iterable[Request]],
        predicate: Predicate | None = None,
        *,
        namespace: str | None = None,
    ) -> ControllerBuilder:
        """Other objects that wake whatever `map_object` names; asked for both states of an update."""
        self._watches.append((kind, enqueue_mapped(map_object), predicate, namespace))
        return self

    def channel(
        self, channel: Channel[Any], mapper: EventMapper = enqueue_self, predicate: Predicate | None = None
    ) -> ControllerBuilder:
        """Events from outside the API; by default each wakes the object that it is about."""
        self._channels.append((channel, mapper, predicate))
        return self

    def with_options(
        self,
        *,
        workers: int = 1,
        reconcile_timeout: float | None = 60.0,
        rate_limiter: RateLimiter[Request] | None = None,
        needs_leader: bool = True,
        resync_period: float | None = DEFAULT_RESYNC,
        read_your_writes: bool | None = None,
    ) -> ControllerBuilder:
        """Options of the controller; times in seconds.

        Args:
            workers: passes at the same time, of different objects.
            reconcile_timeout: after which a pass sends nothing more; None for no limit.
            rate_limiter: back-off of failing objects; by default 5 ms doubling to 1000 s.
            needs_leader: run only while leading.
            resync_period: wake everything so often, give or take a tenth, behind real changes: a safety net, not a
                poller, ten hours by default; None for never.
            read_your_writes: see ConsistencyGate; None takes the manager's option.
        """
        self._workers = workers
        self._reconcile_timeout = reconcile_timeout
        self._rate_limiter = rate_limiter
        self._needs_leader = needs_leader
        self._resync_period = resync_period
        self._gate = self._manager.options.read_your_writes if read_your_writes is None else read_your_writes
        return self

    def complete(self, reconciler: Reconciler) -> Controller:
        """Make the controller, register its informers and add it to the manager.

        Raises:
            ValueError: it watches nothing, or its name is taken.
        """
        if not (self._watches or self._channels):
            raise ValueError(f"controller {self._name} watches nothing: call for_, watches or channel")
        manager = self._manager
        engine = Engine(
            self._name,
            reconciler,
            manager.clock,
            manager.cache,
            manager.metrics,
            kind=self._kind.resource.kind if self._kind else "",
            workers=self._workers,
            reconcile_timeout=self._reconcile_timeout,
            rate_limiter=self._rate_limiter,
            sync_timeout=manager.options.cache_sync_timeout,
            gate=ConsistencyGate(manager.cache, self._kind) if self._gate else None,
        )
        for kind, mapper, predicate, namespace in self._watches:
            informer: Any = manager.cache.informer(kind, namespace=namespace)
            engine.watch(informer, mapper, predicate, self._resync_period)
        for channel, mapper, predicate in self._channels:
            engine.listen(channel, mapper, predicate)
        manager.add(engine, needs_leader=self._needs_leader)
        return engine
