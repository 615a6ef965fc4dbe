"""All machines of a sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.machines.machine import Machine, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from homelab_autoscaler.sandbox.machines.ledger import PowerLedger
    from homelab_autoscaler.sandbox.machines.spec import MachineSpec


class Fleet:
    """Machines by name. Use from the event loop's own thread."""

    def __init__(self, around: Surroundings, specs: Iterable[MachineSpec] = ()) -> None:
        """Machines from specs; `start` turns on those that are on at the start.

        Raises:
            ValueError: two machines of one name.
        """
        self._around = around
        self._machines: dict[str, Machine] = {}
        self._started = False
        for spec in specs:
            self.add(spec)

    @property
    def ledger(self) -> PowerLedger:
        """The power ledger."""
        return self._around.ledger

    def add(self, spec: MachineSpec) -> Machine:
        """One more machine; its times are divided by the sandbox's factor.

        Raises:
            ValueError: the name is taken.
        """
        if spec.name in self._machines:
            raise ValueError(f'machine "{spec.name}" is declared twice: give each machine a name of its own')
        behaviour = spec.behaviour.scaled(self._around.factor)
        machine = Machine(replace(spec, behaviour=behaviour), self._around)
        self._machines[spec.name] = machine
        if self._started:
            machine.start()
        return machine

    def __getitem__(self, name: str) -> Machine:
        """The machine of that name.

        Raises:
            KeyError: there is none; the message lists those that are.
        """
        try:
            return self._machines[name]
        except KeyError:
            known = ", ".join(sorted(self._machines)) or "none"
            raise KeyError(f'no machine "{name}": there is {known}') from None

    def __iter__(self) -> Iterator[Machine]:
        """The machines in the order of their declaration."""
        return iter(list(self._machines.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._machines)

    def start(self) -> None:
        """Let machines boot that are on at the start."""
        self._started = True
        for machine in self:
            machine.start()

    async def close(self) -> None:
        """Stop simulating."""
        await asyncio.gather(*(machine.close() for machine in self))
