"""A manager that lives in this process and can die like one: at a chosen write, without a last word."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from homelab_autoscaler.controllers.assemble import AssemblyOptions, assemble
from homelab_autoscaler.provider.failure import CallError
from homelab_autoscaler.provider.feed import Feed
from homelab_autoscaler.provider.index import PoolIndex
from homelab_autoscaler.provider.pool import Pool
from homelab_autoscaler.runtime import (
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    ServerClock,
    StopSignal,
    SystemClock,
    load_config,
)
from lab.interposer import Fault, Interposer, Names, Place

if TYPE_CHECKING:
    from homelab_autoscaler.settings import Settings

LEASE = "manager"


class LabManager:
    """One life of a manager over one namespace's pool."""

    def __init__(
        self,
        kubeconfig: str,
        namespace: str,
        settings: Settings,
        fault: Fault | None = None,
        at: int | Place = 0,
        *,
        names: Names | None = None,
        armed: bool = True,
        lease: str = LEASE,
    ) -> None:
        options = ManagerOptions(
            config=load_config(kubeconfig),
            clock=ServerClock(),
            leader_election=LeaderElectionOptions(
                name=lease, namespace=namespace, lease_duration=15, renew_deadline=10, retry_period=0.2
            ),
            graceful_timeout=20,
            on_leadership_lost=self._lost,
        )
        self.manager = Manager(options)
        self.interposer = Interposer(
            self.manager.client.transport, self._die, fault, at, names, author=self._author, armed=armed
        )
        self.manager.client.transport = self.interposer
        # The autoscaler's view, without its transport.
        self._index = PoolIndex()
        self._feed = Feed(self.manager.cache, self._index, namespace)
        self._offers = Pool(self._index, SystemClock(), settings, namespace)
        assemble(self.manager, settings, AssemblyOptions(namespace=namespace))
        self.stop = StopSignal()
        self.failure: BaseException | None = None
        self._killed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"manager-{namespace}", daemon=True)

    def start(self) -> LabManager:
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - the test judges
            self.failure = error

    def _lost(self, error: Exception) -> NoReturn:
        """The process ends at once. Here it is one of many threads: it writes no more, and stops what it started."""
        self.interposer.dead = True
        raise error

    def _die(self) -> None:
        self._killed.set()
        self.stop.set()

    def kill(self) -> None:
        """End as kill -9 does: nothing is written any more, the lease stays held."""
        self.interposer.dead = True
        self._die()
        self.join()

    def _author(self) -> str:
        leadership = self.manager.leadership
        return f"{leadership.identity}/{leadership.transitions}"

    def target(self, group: str) -> int | None:
        """The target size that Cluster Autoscaler is told; None before the provider answers."""
        if not self._feed.wait_for_sync(self.stop, 0.0, SystemClock()):
            return None
        with contextlib.suppress(CallError):
            return self._offers.view(group).target
        return None

    def idle_for(self, seconds: float) -> bool:
        """It leads, and has neither read nor written anything for so long; Leases and Events do not count."""
        leads = self.manager.leadership.is_leader()
        return leads and time.monotonic() - self.interposer.active_at > seconds

    @property
    def killed(self) -> bool:
        return self._killed.is_set()

    def close(self) -> None:
        """A clean stop."""
        self.stop.set()
        self.join()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the manager did not end"
