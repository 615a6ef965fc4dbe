"""Fault plans: made from recorded clean runs, run one by one, compared with the clean run.

A plan is a fault at a place. Places are read off clean runs, so a write that is new in the product has its plans
without anybody listing it. Method: Sieve (OSDI'22), with the machine's power ledger added to its oracles.
"""

from __future__ import annotations

import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from lab import monitors
from lab.interposer import Names, Place
from lab.monitors.base import History, TargetRead
from lab.oracle import Outcome, outcome, volatile
from lab.process import LEASE, LabManager
from lab.record import Command, Power
from lab.world import CANARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lab.interposer import Fault
    from lab.pool import Pool
    from lab.record import Record
    from lab.stories import Story
    from lab.world import World

QUIET = 0.5
"""Seconds without a write that count as the end of a story; longer than the lab's longest pause between two steps of
an operation that nothing announces (the finalizer's poll), and shorter than its idle resync."""
DEADLINE_SECONDS = 90.0
"""By when a story must have come to its end, whatever fault it met (guarantees L2, L3, L5). Generous, since a busy
test machine makes a story longer and not different."""


_NUMBERS = re.compile(r"(?<=claim)\d+|(?<=shutdown-)\d+")


@dataclass(frozen=True)
class Plan:
    """One fault at one place of a story."""

    fault: Fault
    place: Place

    def __str__(self) -> str:
        return f"{self.fault} at {self.place}"

    @property
    def is_of_report(self) -> bool:
        """At a write of a mere report (status of slots and groups), from which nothing is decided."""
        return "/status" in self.place.write and ("nodes/lab" in self.place.write or "groups/" in self.place.write)

    @property
    def kind(self) -> tuple[Fault, str]:
        """The same for the same write of another round: the second of three boots, the next shutdown Job."""
        return self.fault, _NUMBERS.sub("", self.place.write)

    def share(self, seed: str) -> float:
        """A number in [0, 1) that depends on the plan and the seed alone: whether it belongs to a sample."""
        return zlib.crc32(f"{seed}|{self}".encode()) / 2**32


@dataclass
class Run:
    """How a story ended.

    Attributes:
        outcome: what the oracles compare; None if it did not end.
        places: writes of the first manager, in order.
        violations: what the monitors saw.
        failure: why it did not end; "" if it did.
        struck: whether the fault happened.
        seconds: how long it took.
    """

    outcome: Outcome | None
    places: list[Place]
    violations: list[str] = field(default_factory=list)
    failure: str = ""
    struck: bool = False
    seconds: float = 0.0


@dataclass
class Clean:
    """What the clean runs of a story agree on.

    Attributes:
        outcome: of the first run.
        volatile: paths of the end state that differ between clean runs.
        certain: places that every run has.
        seen: places that some run has.
    """

    outcome: Outcome
    volatile: frozenset[str]
    certain: list[Place]
    seen: list[Place]


@dataclass
class Verdict:
    """What became of a plan."""

    plan: Plan
    problems: list[str]
    struck: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.plan}:\n  " + "\n  ".join(self.problems)


def run(world: World, story: Story, fault: Fault | None = None, at: int | Place = 0) -> Run:
    """Tell the story to a manager that is broken at one write and, if it died of that, started again.

    Raises:
        AssertionError: what came before the story did not end.
    """
    began = time.monotonic()
    pool = world.pool(settings=world.settings.model_copy(update=story.settings))
    record, names = world.recorder.open(pool.namespace), Names(pool.namespace)
    machine = world.machine(pool, slot=story.slot, **story.machine)
    lives = [
        LabManager(
            world.kubeconfig, pool.namespace, pool.settings, fault, at, names=names, armed=story.before is None
        ).start()
    ]
    failure, ended_at = "", None
    with Caretaker(lives, world.kubeconfig, pool, record) as caretaker:
        try:
            if story.before is not None:
                story.before(pool, machine)
                caretaker.rest()
                lives[0].interposer.armed = True
            try:
                story.tell(pool, machine)
                (story.ends or everything_is_over)(pool, machine)
                caretaker.rest()
                ended_at = datetime.now(UTC)
            except AssertionError as error:
                failure = str(error)
        finally:
            for life in lives:
                life.close()
            world.recorder.close(pool.namespace)
            pool.close()
    for entry in world.ledger(machine):
        record.add(Command.of(entry))
    for changed_at, power in world.powers(machine):
        record.add(Power(changed_at, machine, power))
    first = lives[0].interposer
    history = History(
        entries=record.entries(),
        settings=pool.settings,
        wire=[write for life in lives for write in life.interposer.writes],
        targets=caretaker.targets,
        logs=world.leaks,
        struck_at=first.struck_at,
        ended_at=ended_at,
        canary=CANARY,
    )
    return Run(
        outcome=None if failure else outcome(record, names),
        places=[write.place for write in first.writes if write.place is not None],
        violations=monitors.check(history),
        failure=failure,
        struck=first.struck.is_set(),
        seconds=time.monotonic() - began,
    )


def recorded(world: World, story: Story, times: int = 3) -> Clean:
    """The clean runs of a story.

    Raises:
        AssertionError: a clean run did not end, violates a guarantee, or differs in counts or ledger from another.
    """
    with ThreadPoolExecutor(times) as pool:
        runs = list(pool.map(lambda _: run(world, story), range(times)))
    outcomes = []
    for entry in runs:
        assert entry.outcome is not None, f"{story}: {entry.failure}"
        assert not entry.violations, f"{story}: {entry.violations}"
        outcomes.append(entry.outcome)
    different = volatile(outcomes)
    for other in outcomes[1:]:
        assert not other.differences(outcomes[0], different), other.differences(outcomes[0], different)
    every = [set(entry.places) for entry in runs]
    seen = list(dict.fromkeys(place for entry in runs for place in entry.places))
    certain = set.intersection(*every)
    return Clean(outcomes[0], different, [place for place in seen if place in certain], seen)


def plans(clean: Clean, faults: Iterable[Fault], *, reports: bool, uncertain: bool = False) -> list[Plan]:
    """Every fault at every place of the clean runs.

    Args:
        clean: the recorded runs.
        faults: what may happen.
        reports: also at writes of mere reports.
        uncertain: also at places that only some of the clean runs have; such a plan may find nothing to strike.
    """
    places = clean.seen if uncertain else clean.certain
    found = [Plan(fault, place) for place in places for fault in faults]
    return [plan for plan in found if reports or not plan.is_of_report]


def one_of_each_kind(chosen: Iterable[Plan], seed: str) -> list[Plan]:
    """Of plans at the same write of several rounds one, chosen by the seed."""
    kinds: dict[object, Plan] = {}
    for plan in sorted(chosen, key=lambda plan: plan.share(seed)):
        kinds.setdefault(plan.kind, plan)
    return list(kinds.values())


def perturb(world: World, story: Story, clean: Clean, chosen: Sequence[Plan], at_once: int) -> list[Verdict]:
    """Run plans, several at once."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda plan: judge(world, story, clean, plan), chosen))


def judge(world: World, story: Story, clean: Clean, plan: Plan) -> Verdict:
    """Run one plan and say what is wrong with its end; no problems means that it ended like the clean run."""
    faulted = run(world, story, plan.fault, plan.place)
    problems = [f"monitor {violation}" for violation in faulted.violations]
    if faulted.outcome is None:
        problems.append(faulted.failure)
    else:
        problems.extend(faulted.outcome.differences(clean.outcome, clean.volatile, story.benign))
    return Verdict(plan, problems, faulted.struck, faulted.seconds)


class Caretaker:
    """While it is entered, every wait of the pool also starts a new manager when the present one died.

    That is what a Deployment does. The pool's waits look at the world when something was written, not at a pace.
    """

    def __init__(self, lives: list[LabManager], kubeconfig: str, pool: Pool, record: Record) -> None:
        self._lives = lives
        self._kubeconfig = kubeconfig
        self._pool = pool
        self._record = record
        self._until, self._rest = pool.until, pool.rest
        self.targets: list[TargetRead] = []

    def __enter__(self) -> Self:
        self._pool.until, self._pool.rest = self.until, self.rest
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.until, self._pool.rest = self._until, self._rest

    def until(self, what: str, holds: Callable[[], bool], limit: float = DEADLINE_SECONDS) -> None:
        end = time.monotonic() + limit
        while True:
            self._record.changed.clear()
            self.revive()
            self._ask()
            if not self._lives[-1].killed and holds():
                return
            if time.monotonic() > end:
                raise AssertionError(f"{self._pool.namespace}: not within {limit:g} s: {what}\n{self._pool.describe()}")
            self._record.changed.wait(0.1)

    def rest(self) -> None:
        """Wait until nobody writes any more, and the manager has nothing to look at (guarantee L1)."""

        def quiet() -> bool:
            return self._lives[-1].idle_for(QUIET) and time.monotonic() - self._record.moved_at > QUIET

        self.until("nobody writes any more", quiet)
        self._ask(settled=True)

    def _ask(self, *, settled: bool = False) -> None:
        at, target = datetime.now(UTC), self._lives[-1].target("pool")
        if target is not None and not self._lives[-1].killed:
            self.targets.append(TargetRead(at, target, settled))

    def revive(self) -> None:
        if not self._lives[-1].killed:
            return
        self._lives[-1].join()
        self._pool.hand_over_lease(LEASE)
        settings, names = self._pool.settings, Names(self._pool.namespace)
        self._lives.append(LabManager(self._kubeconfig, self._pool.namespace, settings, names=names).start())


def everything_is_over(pool: Pool, machine: str) -> None:
    """Wait until nothing is left of the story but its reports."""
    pool.until("no live or committed claim", lambda: not [c for c in pool.claims() if c.live or c.committed])
    pool.until("no unfinished Job", lambda: all(job.finished for job in pool.jobs()))
    pool.until("no node object", lambda: pool.node(f"node-{machine}") is None)
    if pool.slot_or_none(machine) is None:
        return
    pool.until("the slot reports off", lambda: pool.slot(machine).status.phase == "off")
    pool.until("no lock", lambda: not [key for key in pool.slot(machine).metadata.annotations if "/lock" in key])
