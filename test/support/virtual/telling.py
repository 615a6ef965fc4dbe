"""Tells a story to the operator on virtual time: one loop, no threads, the same steps in every run.

What is left out beside `lab.telling`: the runtime's threads, queues, caches and its election. What is gained: a plan
takes a fraction of a second of one processor, so that the whole set of plans is run with every change.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog
from lab import monitors
from lab.interposer import Interposer, Names
from lab.monitors.base import History, TargetRead
from lab.oracle import outcome
from lab.pool import Pool
from lab.record import Command, Power, Record, change_of
from lab.run import CANARY, Run
from lab.stories import everything_is_over

from homelab_api.core import Secret
from homelab_autoscaler.provider.failure import CallError
from virtual.cluster import NAMESPACE, Cluster
from virtual.operator import Died

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.interposer import Fault, Place
    from lab.stories import Story

    from homelab_autoscaler.runtime import Client
    from homelab_autoscaler.sandbox.apiserver.request import User

MACHINE = "lab-m"
QUIET = 330.0
"""Seconds without a write that count as the end of a clean story: longer than the idle resync."""
QUIET_AFTER_FAULT = 130.0
"""The same after a fault, where it only has to outlast what an operation waits for: two minutes of settling."""
RESTART = 2.0
"""Seconds until a dead operator's successor has begun."""


class PerturbedCluster(Cluster):
    """A cluster whose operator's first life is broken at one write."""

    def __init__(self, fault: Fault | None, at: int | Place, *, armed: bool) -> None:
        super().__init__()
        self.names = Names(NAMESPACE)
        self.interposers: list[Interposer] = []
        self.record = Record(NAMESPACE)
        self._fault, self._at, self._armed = fault, at, armed

    def _client(self, user: User, clock: Any) -> Client:
        client = super()._client(user, clock)
        if user.name != "system:serviceaccount:homelab:manager":
            return client
        first = not self.interposers
        author = f"manager-{self._lives}/{self._lives}"
        interposer = Interposer(
            client.transport,
            lambda: None,
            self._fault if first else None,
            self._at,
            self.names if first else Names(NAMESPACE),
            author=lambda: author,
            now=self.time.now,
            death=Died,
            armed=self._armed,
        )
        self.interposers.append(interposer)
        client.transport = interposer  # type: ignore[assignment]
        return client

    def listen(self) -> None:
        """Record what happens from now on."""
        self.plane.server.writes.subscribe(self._wrote)

    def _wrote(self, write: Any) -> None:
        change = change_of(write)
        ours = change is not None and (write.namespace == NAMESPACE or change.name == f"node-{MACHINE}")
        if change is not None and ours:
            self.record.add(change, moves=change.kind not in {"lease", "event"})

    def operator_writes(self) -> int:
        """How many writes all lives of the operator have made."""
        return sum(len(life.writes) for life in self.interposers)

    def died(self) -> bool:
        return self.interposers[-1].dead


class VirtualPool(Pool):
    """The pool of a virtual cluster: its waits let time pass, and begin the life of a successor."""

    def __init__(self, cluster: PerturbedCluster) -> None:
        self.clock = cluster.clock
        self.client = cluster.client
        self.namespace = NAMESPACE
        self.settings = cluster.settings
        self.targets: list[TargetRead] = []
        self._cluster = cluster

    def until(self, what: str, holds: Callable[[], bool], limit: float = 7200) -> None:
        end = self.clock.monotonic() + limit
        moved = self._cluster.record.changed
        moved.set()
        while True:
            self._revive()
            if moved.is_set():
                moved.clear()
                self._ask(settled=False)
                if holds():
                    return
            assert self.clock.monotonic() < end, f"not within {limit:g} s: {what}\n{self._cluster.describe()}"
            self._cluster.run(1)

    def rest(self, seconds: float = 5.0) -> None:
        """Wait until the operator has not written for so long."""
        for _ in range(20):
            self._revive()
            before = self._cluster.operator_writes()
            self._cluster.run(seconds)
            if not self._cluster.died() and self._cluster.operator_writes() == before:
                self._ask(settled=True)
                return
        raise AssertionError(f"never comes to rest\n{self._cluster.describe()}")

    def _revive(self) -> None:
        if self._cluster.died():
            self._cluster.run(RESTART)
            self._cluster.restart()

    def _ask(self, *, settled: bool) -> None:
        if self._cluster.died():
            return
        try:
            self.targets.append(TargetRead(self.clock.now(), self._cluster.target(), settled))
        except CallError:
            return


class VirtualWorld:
    """Where stories are told on virtual time."""

    side_by_side = False

    def tell(self, story: Story, fault: Fault | None = None, at: int | Place = 0) -> Run:
        """See Teller."""
        began = time.process_time()
        config = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
        try:
            return self._tell(story, fault, at, began)
        finally:
            structlog.configure(**config)

    def _tell(self, story: Story, fault: Fault | None, at: int | Place, began: float) -> Run:
        failure, ended_at = "", None
        with PerturbedCluster(fault, at, armed=story.before is None) as cluster:
            cluster.listen()
            pool = VirtualPool(cluster)
            secret = {"metadata": {"name": "bmc", "namespace": NAMESPACE}}
            cluster.client.create_json(
                Secret, {**secret, "data": Secret.encode({"password": CANARY.encode()})}, NAMESPACE
            )
            cluster.start()
            cluster.machine(MACHINE, slot=_slot(), boot_seconds=10.0, **story.machine)
            if story.slot.get("startup") == "fails":
                cluster.script("on", MACHINE, sends=0, code=1)
            if story.before is not None:
                story.before(pool, MACHINE)
                pool.rest()
                cluster.interposers[0].armed = True
            try:
                story.tell(pool, MACHINE)
                (story.ends or everything_is_over)(pool, MACHINE)
                pool.rest(QUIET if fault is None else QUIET_AFTER_FAULT)
                ended_at = cluster.time.now()
            except AssertionError as error:
                failure = str(error)
                if cluster.operator is not None:
                    cluster.operator.bugs.clear()
            record = cluster.record
            for entry in cluster.plane.ledger.entries():
                record.add(Command.of(entry))
            for changed_at, power in cluster.at(MACHINE).history:
                record.add(Power(changed_at, MACHINE, power.value))
        first = cluster.interposers[0]
        history = History(
            entries=record.entries(),
            settings=cluster.settings,
            wire=[write for life in cluster.interposers for write in life.writes],
            targets=pool.targets,
            logs=[said.message for said in cluster.said],
            struck_at=first.struck_at,
            ended_at=ended_at,
            canary=CANARY,
            converged_within=timedelta(hours=2),
        )
        return Run(
            outcome=None if failure else outcome(record, cluster.names),
            places=[write.place for write in first.writes if write.place is not None],
            violations=monitors.check(history),
            failure=failure,
            struck=first.struck.is_set(),
            seconds=time.process_time() - began,
        )


def _slot() -> dict[str, object]:
    volumes = [{"name": "bmc", "mountPath": "/etc/bmc", "secretName": "bmc"}]

    def pod(command: str) -> dict[str, object]:
        kept = {"ttlSecondsAfterFinished": 86400, "volumes": volumes}
        return {"image": "power", "command": [command, MACHINE], **kept}

    return {"startupPodSpec": pod("on"), "shutdownPodSpec": pod("off")}
