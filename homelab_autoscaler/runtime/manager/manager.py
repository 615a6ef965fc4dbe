"""Manager: starts and stops everything in the right order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from homelab_autoscaler.runtime.cache import Cache
from homelab_autoscaler.runtime.client import NO_RETRY, Client, TokenBucket, Transport
from homelab_autoscaler.runtime.controller import CacheSyncError, Engine, record_writes
from homelab_autoscaler.runtime.health import HealthChecks
from homelab_autoscaler.runtime.http import HttpServer, health_route, metrics_route
from homelab_autoscaler.runtime.leaderelection import (
    LeaderElector,
    Leadership,
    LeadershipLost,
    always_leading,
    new_identity,
)
from homelab_autoscaler.runtime.manager.group import RunnableGroup
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.recorder import CoreSink, EventRecorder, SeriesSink
from homelab_autoscaler.runtime.server_clock import ServerClock

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.manager.options import ManagerOptions, Runnable
    from homelab_autoscaler.runtime.stop import StopSignal

_log = structlog.get_logger("homelab_autoscaler.runtime.manager")
_ELECTION_TOLERANCE = 5.0


class GracePeriodExceeded(Exception):  # noqa: N818 - says what happened
    """Something did not stop in time; the text names it and the period."""


class Manager:
    """Everything that one process runs: client, cache, controllers, election, probes, metrics, events.

    Start: servers for probes and metrics, webhooks, caches (until synced), runnables that need no lead, sources of
    controllers (their queues fill), election, and what needs the lead. Stop, within `graceful_timeout`: what needs no
    lead, what needs it (workers finish the pass they are in), caches, webhooks, servers; then the lease is released,
    and the recorder writes what it still has. Losing the lease skips all of that.

    Attributes:
        client: uncached requests; its writes are refused once the lead was lost.
        cache: informers; register before `run`.
        recorder: events about objects.
        clock: of everything.
        leadership: whether this process leads.
        metrics: of everything.
        checks: of the probes; add before `run`.
    """

    def __init__(self, options: ManagerOptions) -> None:
        self.options = options
        self.clock: Clock = options.clock
        self.metrics = Metrics(detailed_requests=options.detailed_request_metrics)
        self.checks = HealthChecks()
        observer = self.metrics.observe_request(options.config.host)
        lookups = self.metrics.observe_lookup(options.config.host)
        limiter = None
        if options.queries_per_second is not None:
            limiter = TokenBucket(options.queries_per_second, options.burst, self.clock)
        agent = options.name
        transport = Transport(
            options.config,
            self.clock,
            pool_size=options.pool_size,
            limiter=limiter,
            user_agent=agent,
            observer=observer,
            on_date=self.clock.heard if isinstance(self.clock, ServerClock) else None,
            lookup_observer=lookups,
        )
        self._elector = self._make_elector()
        self.leadership: Leadership = (
            self._elector.leadership if self._elector else always_leading(self.clock, new_identity())
        )
        manager_name = options.field_manager or options.name
        self.client = Client(
            options.config,
            self.clock,
            transport=transport,
            field_manager=manager_name,
            guard=self.leadership.check,
        )
        record_writes(self.client)
        # Watches and lists are not limited: the server ends what is too much, and a late watch is a stale cache.
        watching = Transport(
            options.config, self.clock, pool_size=options.pool_size, user_agent=agent, observer=observer
        )
        self.cache = Cache(watching, self.clock, options=options.reflector)
        self.metrics.watch_cache(self.cache)
        events_client = Client(
            options.config,
            self.clock,
            transport=Transport(options.config, self.clock, pool_size=2, user_agent=agent, observer=observer),
            field_manager=manager_name,
            retry=NO_RETRY,
        )
        sink = (
            CoreSink(events_client, self.clock, options.name, self.leadership.identity)
            if options.events_api == "core"
            else SeriesSink(events_client, self.clock, options.name, self.leadership.identity)
        )
        self.recorder = EventRecorder(
            sink, self.clock, on_dropped=lambda cause: self.metrics.events_dropped.labels(cause).inc()
        )
        self._clients = [self.client, events_client]
        self._transports = [watching]
        self._lock = threading.Condition()
        self._failure: Exception | None = None
        self._lost: LeadershipLost | None = None
        self._ran = False
        self._stopping = False
        self._controllers: dict[str, Engine] = {}
        self._servers = self._group("server")
        self._webhooks = self._group("webhook")
        self._caches = self._group("cache")
        self._others = self._group("runnable")
        self._leaders = self._group("leader")
        self._recorders = self._group("recorder")
        self._elections = self._group("election")
        self._default_checks()

    # --- what runs ----------------------------------------------------------------------------------------

    def add(self, runnable: Runnable, *, needs_leader: bool = True) -> None:
        """Run something with the manager; after the start it starts at once (or with the lead).

        Raises:
            GroupStopped: the manager is stopping.
            ValueError: a controller of that name was added before.
        """
        if isinstance(runnable, Engine):
            with self._lock:
                if runnable.name in self._controllers:
                    raise ValueError(f'a controller named "{runnable.name}" exists already: metrics need unique names')
                self._controllers[runnable.name] = runnable
        (self._leaders if needs_leader else self._others).add(runnable)

    def add_webhook(self, runnable: Runnable) -> None:
        """Run a webhook server: it starts before the caches and stops after them."""
        self._webhooks.add(runnable)

    # --- run ----------------------------------------------------------------------------------------------

    def run(self, stop: StopSignal) -> None:
        """Run until `stop` is set or something fails.

        Raises:
            LeadershipLost: the lease was lost. Nothing was stopped: end the process.
            GracePeriodExceeded: something did not stop in time.
            CacheSyncError: the first lists did not come in time.
            Exception: whatever a runnable raised; everything else was stopped then.
        """
        with self._lock:
            if self._ran:
                raise RuntimeError("the manager ran before")
            self._ran = True
        remove = stop.on_set(self._wake)
        try:
            try:
                self._start(stop)
                self._wait(stop)
            except LeadershipLost:
                raise
            except Exception as error:  # noqa: BLE001 - raised below, after the stop
                self._fail("start", error)
            self._raise_if_lost()
            self._shut_down()
        finally:
            remove()
        if self._failure is not None:
            raise self._failure

    def _start(self, stop: StopSignal) -> None:
        self._recorders.add(_Named("recorder", self.recorder))
        self._recorders.start()
        self.checks.freeze()
        for server in self._http_servers():
            self._servers.add(server)
        self._servers.start()
        self._webhooks.start()
        self._caches.add(_Named("informers", self.cache))
        self._caches.start()
        if not self.cache.wait_for_sync(stop, self.options.cache_sync_timeout):
            if stop.is_set():
                return
            missing = ", ".join(self.cache.unsynced())
            raise CacheSyncError(f"no complete list within {self.options.cache_sync_timeout:g} s of: {missing}")
        self._others.start()
        for engine in list(self._controllers.values()):
            engine.warm_up(stop)
        if stop.is_set():
            return
        if self._elector is None:
            self._lead()
        else:
            self._elections.add(_Election(self, self._elector))
            self._elections.start()

    def _lead(self) -> None:
        self._leaders.start()

    def _wait(self, stop: StopSignal) -> None:
        with self._lock:
            while not stop.is_set() and self._failure is None and self._lost is None:
                self.clock.wait(self._lock, None)

    def _shut_down(self) -> None:
        timeout = self.options.graceful_timeout
        deadline = None if timeout < 0 else self.clock.monotonic() + timeout
        with self._lock:
            self._stopping = True
        _log.info("stopping", grace=timeout)
        hung: list[str] = []
        for group in (self._others, self._leaders, self._caches, self._webhooks, self._servers):
            group.signal()
            hung += group.join(_left(deadline, self.clock))
            if hung and timeout != 0:
                break
        self._raise_if_lost()
        for client in self._clients[:1]:
            client.close()
        self._elections.signal()
        self._elections.join(_left(deadline, self.clock))
        if self._elector is not None and not hung:
            self._elector.release()
        self.leadership.resign()
        for group in (self._others, self._leaders, self._caches, self._webhooks, self._servers, self._recorders):
            group.signal()
        hung += self._recorders.join(_left(deadline, self.clock))
        for client in self._clients:
            client.close()
        for transport in self._transports:
            transport.close()
        if hung and timeout != 0 and self._failure is None:
            self._failure = GracePeriodExceeded(
                f"not stopped within the grace period of {timeout:g} s: {', '.join(sorted(set(hung)))}"
            )

    def lost_leadership(self, error: LeadershipLost) -> None:
        """The election's thread reports the loss of the lease."""
        self.metrics.leader.labels(self._lease_name()).set(0)
        _log.critical("leadership lost: the process ends", error=str(error))
        if self.options.on_leadership_lost is not None:
            self.options.on_leadership_lost(error)
        with self._lock:
            self._lost = error
            self._lock.notify_all()

    def acquired_leadership(self) -> None:
        """The election's thread reports that this process leads."""
        self.metrics.leader.labels(self._lease_name()).set(1)
        self._lead()

    # --- inside -------------------------------------------------------------------------------------------

    def _group(self, name: str) -> RunnableGroup:
        return RunnableGroup(name, self.clock, self._fail)

    def _fail(self, name: str, error: Exception) -> None:
        with self._lock:
            if self._stopping:
                _log.warning("failed while stopping", runnable=name, error=str(error))
                return
            if self._failure is None:
                _log.error("runnable failed: the manager stops", runnable=name, exc_info=error)
                self._failure = error
            self._lock.notify_all()

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _wake(self) -> None:
        with self._lock:
            self._lock.notify_all()

    def _lease_name(self) -> str:
        return self.options.leader_election.name if self.options.leader_election else ""

    def _make_elector(self) -> LeaderElector | None:
        election = self.options.leader_election
        if election is None:
            return None
        namespace = election.namespace or self.options.config.namespace
        if not namespace:
            raise ValueError("leader election needs a namespace: neither its options nor the client config name one")
        self.metrics.leader.labels(election.name).set(0)
        client = Client(
            self.options.config,
            self.clock,
            transport=Transport(
                self.options.config,
                self.clock,
                pool_size=1,
                user_agent=f"{self.options.name}/leader-election",
                observer=self.metrics.observe_request(self.options.config.host),
                # Renewals are the steady source of the server's time: an idle manager sends little else.
                on_date=self.clock.heard if isinstance(self.clock, ServerClock) else None,
            ),
            field_manager=self.options.field_manager or self.options.name,
            retry=NO_RETRY,
            timeout=max(1.0, election.renew_deadline / 2),
        )
        slow = self.metrics.leader_slowpath.labels(election.name)
        return LeaderElector(client, self.clock, election, namespace, on_slow_path=slow.inc)

    def _http_servers(self) -> list[HttpServer]:
        health, metrics = self.options.health_address, self.options.metrics_address
        routes = {"health": health_route(self.checks), "metrics": metrics_route(self.metrics.registry)}
        if health is not None and health == metrics:
            self.health_server = self.metrics_server = HttpServer("http", health, list(routes.values()))
            return [self.health_server]
        servers: list[HttpServer] = []
        if health is not None:
            self.health_server = HttpServer("health", health, [routes["health"]])
            servers.append(self.health_server)
        if metrics is not None:
            self.metrics_server = HttpServer("metrics", metrics, [routes["metrics"]])
            servers.append(self.metrics_server)
        return servers

    def _default_checks(self) -> None:
        def caches() -> None:
            missing = self.cache.unsynced()
            if missing:
                raise RuntimeError(f"not listed yet: {', '.join(missing)}")
            silence = self.cache.silence()
            if self.cache.informers() and silence > self.options.cache_max_silence:
                raise RuntimeError(f"nothing heard of a watched kind for {silence:.0f} s")

        def election() -> None:
            options = self.options.leader_election
            age = self.leadership.since_renewal()
            if options is not None and age is not None and age > options.lease_duration + _ELECTION_TOLERANCE:
                raise RuntimeError(f"the lease was renewed {age:.0f} s ago, yet this process still runs")

        self.checks.add_readyz("informers", caches)
        self.checks.add_healthz("leader-election", election)
        self.checks.add_healthz("ping", lambda: None)


class _Named:
    """A runnable under a name for its thread."""

    def __init__(self, name: str, runnable: Runnable) -> None:
        self.name = name
        self._runnable = runnable

    def run(self, stop: StopSignal) -> None:
        self._runnable.run(stop)


class _Election:
    """Competes, then keeps the lease."""

    name = "elector"

    def __init__(self, manager: Manager, elector: LeaderElector) -> None:
        self._manager = manager
        self._elector = elector

    def run(self, stop: StopSignal) -> None:
        if not self._elector.acquire(stop):
            return
        self._manager.acquired_leadership()
        try:
            self._elector.hold(stop)
        except LeadershipLost as error:
            self._manager.lost_leadership(error)


def _left(deadline: float | None, clock: Clock) -> float | None:
    return None if deadline is None else max(0.0, deadline - clock.monotonic())
