"""Tells a story to a manager with threads of its own, on true time, and gathers what came of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from lab import monitors
from lab.interposer import Names
from lab.monitors.base import History, TargetRead
from lab.oracle import outcome
from lab.process import LEASE, LabManager
from lab.record import Command, Power
from lab.run import CANARY, Run
from lab.stories import everything_is_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.interposer import Fault, Place
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


def tell(world: World, story: Story, fault: Fault | None = None, at: int | Place = 0) -> Run:
    """Tell the story to a manager that is broken at one write and, if it died of that, started again.

    Raises:
        AssertionError: what came before the story did not end.
    """
    began = time.monotonic()
    pool = world.pool(settings=world.settings.model_copy(update=story.settings), recorded=True)
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
        converged_within=timedelta(seconds=DEADLINE_SECONDS),
        late=world.recorder.late,
    )
    return Run(
        outcome=None if failure else outcome(record, names),
        places=[write.place for write in first.writes if write.place is not None],
        violations=monitors.check(history),
        failure=failure,
        struck=first.struck.is_set(),
        seconds=time.monotonic() - began,
    )


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
