"""Workloads, the clean run that plans are made from, and the comparison of a faulted run with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lab.process import LEASE, LabManager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.interposer import Fault
    from lab.pool import Pool
    from lab.world import World


class Workload(Protocol):
    """A story that begins with a machine that is off and ends with one."""

    def __call__(self, pool: Pool, machine: str) -> None: ...


@dataclass
class Outcome:
    """What a run left behind, as far as it must not depend on faults."""

    slot: dict[str, object] | None
    claims: list[str]
    unfinished_jobs: list[str]
    node: bool
    ledger: list[str]
    writes: list[str] = field(default_factory=list, compare=False)

    def summary(self) -> str:
        """What is compared, for a failing test."""
        return f"{self.slot} claims={self.claims} jobs={self.unfinished_jobs} node={self.node} ledger={self.ledger}"


def run(world: World, workload: Workload, fault: Fault | None = None, at: int = 0) -> Outcome:
    """Tell the story to a manager that is broken at its write number `at` and, if it died of that, started again."""
    pool = world.pool()
    machine = world.machine(pool)
    manager = LabManager(world.kubeconfig, pool.namespace, pool.settings, fault, at).start()
    lives = [manager]
    guard = Reviver(lives, world.kubeconfig, pool)
    original = pool.until

    def until(what, holds, limit=90):
        def alive():
            guard.revive()
            return holds()

        original(what, alive, limit)

    pool.until = until
    try:
        workload(pool, machine)
        settled(pool, machine)
    finally:
        pool.until = original
        for life in lives:
            life.close()
    slot = pool.slot_or_none(machine)
    node_name = f"node-{machine}"
    return Outcome(
        slot=None
        if slot is None
        else {
            "phase": slot.status.phase,
            "power": slot.status.power_state,
            "lock": {key for key in slot.metadata.annotations if "lock" in key},
            "last": (slot.status.last_claim.phase, slot.status.last_claim.reason) if slot.status.last_claim else None,
        },
        claims=[claim.name for claim in pool.claims() if claim.live or claim.committed],
        unfinished_jobs=[job.name for job in pool.jobs() if not job.finished],
        node=pool.node(node_name) is not None,
        ledger=world.commands(machine),
        writes=[str(write).replace(pool.namespace, "lab") for write in lives[0].interposer.writes],
    )


def plans(clean: Outcome, faults: Sequence[Fault], *, reports: bool) -> list[tuple[Fault, int]]:
    """Every fault at every write of a clean run.

    Args:
        clean: the recorded run.
        faults: what may happen.
        reports: also at writes of mere reports (status of slots and groups), from which nothing is decided.
    """
    numbered = enumerate(clean.writes, start=1)
    return [
        (fault, number)
        for number, write in numbered
        for fault in faults
        if reports or not (write.endswith("/status") and ("/nodes/" in write or "/groups/" in write))
    ]


def perturb(
    world: World, workload: Workload, clean: Outcome, chosen: Sequence[tuple[Fault, int]], at_once: int
) -> list[str]:
    """Run plans, several at once; returns a line for each that did not end like the clean run."""

    def one(plan: tuple[Fault, int]) -> str:
        fault, number = plan
        place = f"{fault} at write {number} ({clean.writes[number - 1]})"
        try:
            outcome = run(world, workload, fault, number)
        except AssertionError as error:
            return f"{place}: {error}"
        return "" if outcome == clean else f"{place}:\n  clean   {clean.summary()}\n  faulted {outcome.summary()}"

    with ThreadPoolExecutor(at_once) as pool:
        return [line for line in pool.map(one, chosen) if line]


class Reviver:
    """Starts a new manager when the present one died, as a Deployment would."""

    def __init__(self, lives: list[LabManager], kubeconfig: str, pool: Pool) -> None:
        self._lives = lives
        self._kubeconfig = kubeconfig
        self._pool = pool

    def revive(self) -> None:
        if not self._lives[-1].killed:
            return
        self._lives[-1].join()
        self._pool.hand_over_lease(LEASE)
        self._lives.append(LabManager(self._kubeconfig, self._pool.namespace, self._pool.settings).start())


def settled(pool: Pool, machine: str) -> None:
    """Wait until everything that follows from the story is over: quiescence."""
    pool.until("no live or committed claim", lambda: not [c for c in pool.claims() if c.live or c.committed])
    pool.until("no unfinished Job", lambda: all(job.finished for job in pool.jobs()))
    pool.until("no node object", lambda: pool.node(f"node-{machine}") is None)
    if pool.slot_or_none(machine) is None:
        return
    pool.until("the slot reports off", lambda: pool.slot(machine).status.phase == "off")
    pool.until("no lock", lambda: not [key for key in pool.slot(machine).metadata.annotations if "/lock" in key])
