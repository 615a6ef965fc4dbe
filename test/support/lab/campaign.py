"""The whole set of fault plans, on several control planes at once: `make faults`.

`python -m lab.campaign` tells the stories to managers with threads on true time, `--virtual` on virtual time.

Prints a table as the papers do (story by fault: plans, failures, seconds), then every failing plan with what gave it
away. A failing plan is run once more, so that the report can tell what repeats. Exit code 1 if any plan failed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

from virtual.telling import VirtualWorld

from lab.interposer import Fault
from lab.plans import Clean, Verdict, one_of_each_kind, perturb, plans, recorded
from lab.stories import STORIES
from lab.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.plans import Plan
    from lab.run import Teller

CHUNK = 8
_world: Teller | None = None


@dataclass
class Judged:
    """A plan's verdicts: of the first run, and of the second one if the first failed."""

    story: str
    verdict: Verdict
    again: Verdict | None

    @property
    def failed(self) -> bool:
        return bool(self.verdict.problems)


def _open(virtual: bool) -> None:  # noqa: FBT001 - the pool passes arguments by position
    global _world  # noqa: PLW0603 - one control plane for each process of the pool
    if virtual:
        _world = VirtualWorld()
        return
    stack = contextlib.ExitStack()
    _world = stack.enter_context(World(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))))
    Finalize(None, stack.close, exitpriority=1)


def _record(story: str) -> Clean:
    assert _world is not None
    return recorded(_world, _named(story))


def _judge(story: str, clean: Clean, chosen: Sequence[Plan], at_once: int) -> list[Judged]:
    assert _world is not None
    verdicts = perturb(_world, _named(story), clean, chosen, at_once)
    failing = [verdict.plan for verdict in verdicts if verdict.problems]
    second = {verdict.plan: verdict for verdict in perturb(_world, _named(story), clean, failing, 1)} if failing else {}
    return [Judged(story, verdict, second.get(verdict.plan)) for verdict in verdicts]


def _named(name: str):
    return next(story for story in STORIES if story.name == name)


def run(arguments: argparse.Namespace) -> list[Judged]:
    """Record the stories, run their plans; tells on stderr how far it is."""
    names = [story.name for story in STORIES if not arguments.story or story.name in arguments.story]
    faults = [fault for fault in Fault if not arguments.fault or fault.name in arguments.fault]
    at_once = 1 if arguments.virtual else arguments.at_once
    found: list[Judged] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        arguments.processes, mp_context=context, initializer=_open, initargs=(arguments.virtual,)
    ) as pool:
        cleans = dict(zip(names, pool.map(_record, names), strict=True))
        tasks = []
        for name, clean in cleans.items():
            chosen = plans(clean, faults, reports=arguments.reports, uncertain=arguments.reports)
            if arguments.kinds:
                chosen = one_of_each_kind(chosen, arguments.seed)
            chosen = [plan for plan in chosen if plan.share(arguments.seed) < arguments.sample]
            tasks += [
                pool.submit(_judge, name, clean, chosen[start : start + CHUNK], at_once)
                for start in range(0, len(chosen), CHUNK)
            ]
        for number, task in enumerate(as_completed(tasks), start=1):
            judged = task.result()
            found += judged
            sys.stderr.writelines(f"\r{entry.story}: {entry.verdict}\n" for entry in judged if entry.failed)
            failed = sum(judged.failed for judged in found)
            sys.stderr.write(f"\r{number}/{len(tasks)} chunks, {len(found)} plans, {failed} failed")
    sys.stderr.write("\n")
    return found


def table(found: Sequence[Judged]) -> Iterator[str]:
    """Story by fault: plans, failures, seconds of all its runs together."""
    yield (
        f"{'story':<28}"
        + "".join(f"{fault.name.lower():>22}" for fault in Fault)
        + f"{'plans':>8}{'failed':>8}{'s':>8}"
    )
    for story in dict.fromkeys(judged.story for judged in found):
        mine = [judged for judged in found if judged.story == story]
        yield f"{story:<28}" + "".join(_cell(mine, fault) for fault in Fault) + _sum(mine)
    yield f"{'all':<28}" + "".join(_cell(found, fault) for fault in Fault) + _sum(found)


def _cell(found: Sequence[Judged], fault: Fault) -> str:
    mine = [judged for judged in found if judged.verdict.plan.fault is fault]
    seconds = sum(judged.verdict.seconds for judged in mine)
    return f"{f'{len(mine)} / {sum(judged.failed for judged in mine)} / {seconds:.0f}':>22}"


def _sum(found: Sequence[Judged]) -> str:
    seconds = sum(judged.verdict.seconds for judged in found)
    return f"{len(found):>8}{sum(judged.failed for judged in found):>8}{seconds:>8.0f}"


def _judges(found: Sequence[Judged]) -> Counter[str]:
    """What gave failing plans away: end state, counts, ledger, a monitor, or no end at all."""
    words = {"state": "end state", "counts": "counts", "ledger": "ledger", "monitor": "monitor"}
    return Counter(
        word for judged in found for word in {words.get(line.split()[0], "no end") for line in judged.verdict.problems}
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="lab.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--story", action="append", choices=[story.name for story in STORIES])
    parser.add_argument("--fault", action="append", choices=[fault.name for fault in Fault])
    parser.add_argument("--virtual", action="store_true", help="on virtual time, without threads")
    parser.add_argument("--processes", type=int, default=2, help="control planes at once (2)")
    parser.add_argument("--at-once", type=int, default=4, help="stories at once on each of them (4)")
    parser.add_argument("--no-reports", dest="reports", action="store_false", help="not at writes of mere reports")
    parser.add_argument("--kinds", action="store_true", help="of equal writes of several rounds only one")
    parser.add_argument("--sample", type=float, default=1.0, help="part of the plans, from 0 to 1 (1)")
    parser.add_argument("--seed", default="0", help="which part")
    started = time.monotonic()
    found = run(parser.parse_args())
    _say("plans / failed / seconds\n" + "\n".join(table(found)))
    failing = [judged for judged in found if judged.failed]
    missed = [judged for judged in found if not judged.verdict.struck]
    _say(f"\n{len(found)} plans, {len(failing)} failed, {len(missed)} found nothing to strike, "
          f"{time.monotonic() - started:.0f} s; given away by: {dict(_judges(failing)) or 'nothing'}")  # fmt: skip
    for judged in failing:
        repeats = judged.again is not None and bool(judged.again.problems)
        _say(f"\n{judged.story}, {'repeats' if repeats else 'does not repeat'}: {judged.verdict}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
