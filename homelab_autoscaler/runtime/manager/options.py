"""What a manager is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from homelab_autoscaler.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.runtime.cache import ReflectorOptions
    from homelab_autoscaler.runtime.config import ClientConfig
    from homelab_autoscaler.runtime.leaderelection import LeaderElectionOptions
    from homelab_autoscaler.runtime.stop import StopSignal


class Runnable(Protocol):
    """Something that runs until it is told to stop.

    Returning early is fine; raising stops the manager, which raises the same error.
    """

    def run(self, stop: StopSignal) -> None:
        """Run until `stop` is set."""
        ...


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Options of a Manager. Times in seconds.

    Attributes:
        config: the API server.
        clock: time, for everything in the manager.
        name: component name in events and as user agent.
        field_manager: owner of the fields that are written; None takes `name`.
        leader_election: None to lead without asking anybody.
        health_address: where probes are answered, such as `:8081`; None for nowhere.
        metrics_address: where metrics are answered, such as `:8080`; the same as `health_address` shares its server.
        graceful_timeout: for everything to stop; 0 waits for nothing, a negative one forever.
        cache_sync_timeout: for the first lists.
        cache_max_silence: readiness fails when a kind was not heard of for so long.
        events_api: form of written events: `core` (most readers) or `events.k8s.io`.
        queries_per_second: limit of requests, None for none (the server's fairness decides).
        burst: requests above that limit at once.
        pool_size: kept connections; more than watches and workers together.
        reflector: numbers of the reflectors.
        detailed_request_metrics: measure length and size of requests too, not just their number.
        read_your_writes: put passes off until the cache has seen the writes of the pass before.
        on_leadership_lost: called when the lease is lost, at once and from the election's thread. It is the outermost
            layer's way to end the process; the default None makes `run` raise LeadershipLost without grace.
    """

    config: ClientConfig
    clock: Clock = field(default_factory=SystemClock)
    name: str = "homelab-autoscaler"
    field_manager: str | None = None
    leader_election: LeaderElectionOptions | None = None
    health_address: str | None = None
    metrics_address: str | None = None
    graceful_timeout: float = 30.0
    cache_sync_timeout: float = 120.0
    cache_max_silence: float = 180.0
    events_api: Literal["core", "events.k8s.io"] = "core"
    queries_per_second: float | None = None
    burst: int = 300
    pool_size: int = 64
    reflector: ReflectorOptions | None = None
    detailed_request_metrics: bool = False
    read_your_writes: bool = True
    on_leadership_lost: Callable[[Exception], NoReturn] | None = None
