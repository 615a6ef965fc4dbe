"""Leader election on a Lease, as client-go does it, so that both can compete for one lease.

Time is measured here, by the monotonic clock, from the moment at which a change of the lease was *observed*: clocks of
different machines are never compared. A faster or slower clock still shortens or stretches the margins.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import structlog

from homelab_api.core import Lease, LeaseSpec
from homelab_api.meta import JsonObject, ObjectMeta, format_micro_time
from homelab_autoscaler.runtime.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from homelab_autoscaler.runtime.leaderelection.leadership import Leadership, LeadershipLost
from homelab_autoscaler.runtime.leaderelection.options import JITTER, LeaderElectionOptions
from homelab_autoscaler.runtime.patch import MergePatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

_log = structlog.get_logger("homelab_autoscaler.runtime.election")


class LeaderElector:
    """Competes for one Lease.

    Needs the rights get, create and patch on that Lease.

    **Election is not fencing.** At most one process *believes* that it leads as long as clocks run at about one
    speed, but a request that an old leader sent can arrive after a new one began. See Leadership.

    Args:
        client: of its own (connections, limiter, no retries), so that load cannot starve the renewals.
        clock: time.
        options: which lease, and numbers.
        namespace: of the lease.
        on_slow_path: told when a renewal needed a read first.
        rng: jitter.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        options: LeaderElectionOptions,
        namespace: str,
        *,
        on_slow_path: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.leadership = Leadership(clock, options.identity, options.renew_deadline)
        self._client = client
        self._clock = clock
        self._options = options
        self._namespace = namespace
        self._on_slow_path = on_slow_path
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._observed: Lease | None = None
        self._observed_at = 0.0

    def acquire(self, stop: StopSignal) -> bool:
        """Try until this process leads; False when stopped before."""
        log = _log.bind(lease=f"{self._namespace}/{self._options.name}", identity=self._options.identity)
        log.info("waiting to lead")
        while not stop.is_set():
            if self._try():
                log.info("leading", transitions=self.leadership.transitions)
                return True
            if self._clock.sleep(self._options.retry_period * (1 + JITTER * self._rng.random()), stop):
                break
        return False

    def hold(self, stop: StopSignal) -> None:
        """Renew until stopped.

        Raises:
            LeadershipLost: no renewal succeeded within the renew deadline, or another process holds the lease.
        """
        while not self._clock.sleep(self._options.retry_period, stop):
            renewed = self._try()
            if not renewed and (self._taken_by_other() or not self.leadership.is_leader()):
                self.leadership.resign()
                holder = self._holder() or "nobody known"
                raise LeadershipLost(
                    f"lost the lease {self._namespace}/{self._options.name}: not renewed within "
                    f"{self._options.renew_deadline:g} s (holder: {holder})"
                )

    def release(self) -> bool:
        """Give the lease back, after all guarded work has stopped; True if it is free now.

        Repeats on conflict until the renew deadline; then others have to wait for it to run out.
        """
        if not self.leadership.is_leader():
            return False
        self.leadership.resign()
        end = self._clock.monotonic() + self._options.renew_deadline
        now = self._clock.now()
        while self._clock.monotonic() < end:
            try:
                lease = self._client.get(Lease, self._options.name, self._namespace)
                if lease.spec.holder_identity != self._options.identity:
                    return False
                self._patch(
                    lease,
                    {
                        "holderIdentity": "",
                        "leaseDurationSeconds": 1,
                        "renewTime": format_micro_time(now),
                        "acquireTime": format_micro_time(now),
                        "leaseTransitions": lease.spec.lease_transitions or 0,
                    },
                )
            except ConflictError:
                continue
            except NotFoundError:
                return True
            except ApiError as error:
                _log.warning("lease not released", error=str(error))
                self._clock.sleep(min(1.0, self._options.retry_period))
                continue
            return True
        return False

    # --- one try ------------------------------------------------------------------------------------------

    def _try(self) -> bool:
        started = self._clock.monotonic()
        try:
            return self._try_fast(started) or self._try_slow(started)
        except ApiError as error:
            _log.warning("election request failed", error=str(error))
            return False

    def _try_fast(self, started: float) -> bool:
        """Renew from memory, without reading first."""
        lease = self._observed
        if lease is None or not self.leadership.is_leader() or lease.spec.holder_identity != self._options.identity:
            return False
        try:
            renewed = self._patch(lease, {"renewTime": format_micro_time(self._clock.now())})
        except (ConflictError, NotFoundError):
            return False
        self._won(renewed, started)
        return True

    def _try_slow(self, started: float) -> bool:
        if self.leadership.is_leader() and self._on_slow_path is not None:
            self._on_slow_path()
        try:
            lease = self._client.get(Lease, self._options.name, self._namespace)
        except NotFoundError:
            return self._create(started)
        self._observe(lease)
        mine = lease.spec.holder_identity == self._options.identity
        if lease.spec.holder_identity and not mine and not self._expired(lease):
            return False
        now = self._clock.now()
        spec: JsonObject = {
            "holderIdentity": self._options.identity,
            "leaseDurationSeconds": max(1, round(self._options.lease_duration)),
            "renewTime": format_micro_time(now),
        }
        if not mine:
            spec["acquireTime"] = format_micro_time(now)
            spec["leaseTransitions"] = (lease.spec.lease_transitions or 0) + 1
        try:
            taken = self._patch(lease, spec)
        except (ConflictError, NotFoundError):
            return False
        self._won(taken, started)
        return True

    def _create(self, started: float) -> bool:
        now = self._clock.now()
        lease = Lease(
            metadata=ObjectMeta(name=self._options.name, namespace=self._namespace),
            spec=LeaseSpec(
                holder_identity=self._options.identity,
                lease_duration_seconds=max(1, round(self._options.lease_duration)),
                acquire_time=now,
                renew_time=now,
                lease_transitions=self.leadership.transitions,
            ),
        )
        try:
            created = self._client.create(lease)
        except AlreadyExistsError:
            return False
        self._won(created, started)
        return True

    def _patch(self, lease: Lease, spec: JsonObject) -> Lease:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return self._client.patch(Lease, self._options.name, self._namespace, MergePatch(body))

    def _won(self, lease: Lease, started: float) -> None:
        self._observe(lease)
        # The request's begin, not its end: the server may have taken it at once and answered late.
        self.leadership.renewed(started, lease.spec.lease_transitions or 0)

    def _observe(self, lease: Lease) -> None:
        if self._observed is None or self._observed.spec != lease.spec:
            self._observed_at = self._clock.monotonic()
        self._observed = lease

    def _expired(self, lease: Lease) -> bool:
        duration = float(lease.spec.lease_duration_seconds or self._options.lease_duration)
        return self._clock.monotonic() - self._observed_at >= duration

    def _holder(self) -> str | None:
        return None if self._observed is None else self._observed.spec.holder_identity

    def _taken_by_other(self) -> bool:
        holder = self._holder()
        return bool(holder) and holder != self._options.identity
