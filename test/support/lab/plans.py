"""Fault plans: made from recorded clean runs, run one by one, compared with the clean run.

A plan is a fault at a place. Places are read off clean runs, so a write that is new in the product has its plans
without anybody listing it. Method: Sieve (OSDI'22), with the machine's power ledger added to its oracles.
"""

from __future__ import annotations

import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.oracle import Outcome, volatile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lab.interposer import Fault, Place
    from lab.run import Teller
    from lab.stories import Story

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


def recorded(world: Teller, story: Story, times: int = 3) -> Clean:
    """The clean runs of a story.

    Raises:
        AssertionError: a clean run did not end, violates a guarantee, or differs in counts or ledger from another.
    """
    with ThreadPoolExecutor(times if world.side_by_side else 1) as pool:
        runs = list(pool.map(lambda _: world.tell(story), range(times)))
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


def perturb(world: Teller, story: Story, clean: Clean, chosen: Sequence[Plan], at_once: int) -> list[Verdict]:
    """Run plans, several at once."""
    with ThreadPoolExecutor(at_once if world.side_by_side else 1) as pool:
        return list(pool.map(lambda plan: judge(world, story, clean, plan), chosen))


def judge(world: Teller, story: Story, clean: Clean, plan: Plan) -> Verdict:
    """Run one plan and say what is wrong with its end; no problems means that it ended like the clean run."""
    faulted = world.tell(story, plan.fault, plan.place)
    problems = [f"monitor {violation}" for violation in faulted.violations]
    if faulted.outcome is None:
        problems.append(faulted.failure)
    else:
        problems.extend(faulted.outcome.differences(clean.outcome, clean.volatile, story.benign))
    return Verdict(plan, problems, faulted.struck, faulted.seconds)
