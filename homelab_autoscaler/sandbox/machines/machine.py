"""One simulated machine."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api.meta import JsonObject, format_time
from homelab_autoscaler.sandbox import resources, taints
from homelab_autoscaler.sandbox.client import MERGE_PATCH
from homelab_autoscaler.sandbox.kubelet.kubelet import Kubelet
from homelab_autoscaler.sandbox.kubelet.runtime import SimulatedRuntime
from homelab_autoscaler.sandbox.machines.runtime import MachineRuntime
from homelab_autoscaler.sandbox.machines.spec import Behaviour, Firmware, MachineSpec, Power
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings
    from homelab_autoscaler.sandbox.machines.ledger import PowerLedger
    from homelab_autoscaler.sandbox.podrunner.runtime import ProcessRuntime

log = structlog.get_logger(__name__)

HAND: Final = "hand"
"""Sender of commands that a person gives at the machine."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What machines share.

    Attributes:
        clock: Sandbox time.
        ledger: Where commands are written.
        client: Makes a client for a user name.
        timings: The kubelets' pace.
        factor: By how much pods on machines run faster than usual.
        processes: Makes the runtime for pods of Jobs on a node, given its client and name; None to simulate them too.
    """

    clock: SandboxClock
    ledger: PowerLedger
    client: Callable[[str], ApiClient]
    timings: KubeletTimings
    factor: float = 1.0
    processes: Callable[[ApiClient, str], ProcessRuntime] | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the firmware answered: `result` as in the ledger, `acknowledged` whether the sender got a yes."""

    result: str
    acknowledged: bool


class Machine:
    """Metal with a firmware, an operating system and a kubelet.

    `power` is the truth, whatever the cluster believes. Use from the event loop's own thread.
    """

    def __init__(self, spec: MachineSpec, around: Surroundings) -> None:
        """A machine that is off; `start` turns it on if its spec says so."""
        self.spec = spec
        self.behaviour: Behaviour = spec.behaviour
        self._around = around
        self._power = Power.OFF
        self._history: list[tuple[datetime, Power]] = []
        self._listeners: list[Callable[[Machine], None]] = []
        self._moved = asyncio.Event()
        self._transition: asyncio.Task[None] | None = None
        self._heading: str | None = None
        self._system: asyncio.Task[None] | None = None
        self._kubelet: Kubelet | None = None
        self._runtime: MachineRuntime | None = None

    @property
    def name(self) -> str:
        """Its name at the BMC endpoint."""
        return self.spec.name

    @property
    def power(self) -> Power:
        """Where the metal is."""
        return self._power

    @property
    def is_on(self) -> bool:
        """True when it draws power."""
        return self._power is not Power.OFF

    @property
    def kubelet(self) -> Kubelet | None:
        """The running kubelet, None when there is none."""
        return self._kubelet

    @property
    def history(self) -> list[tuple[datetime, Power]]:
        """Every change of power, oldest first."""
        return list(self._history)

    def on_change(self, listener: Callable[[Machine], None]) -> None:
        """Be told after each change of power."""
        self._listeners.append(listener)

    async def wait_for(self, power: Power) -> None:
        """Wait until the machine is there; returns at once if it is."""
        while self._power is not power:
            self._moved.clear()
            await self._moved.wait()

    def start(self) -> None:
        """Let a machine that is on at the start boot."""
        if self.spec.initially_on and not self.is_on:
            self._set(Power.BOOTING)
            self._go("on", self._boot())

    # --- commands --------------------------------------------------------------------------------------------

    def command(self, command: str, sender: str) -> CommandResult:
        """A power command over the BMC; written to the ledger whatever comes of it.

        Args:
            command: `on` or `off`.
            sender: Who sent it.

        Raises:
            ValueError: any other command (not written).
        """
        if command not in ("on", "off"):
            raise ValueError(f'unknown power command "{command}": send "on" or "off"')
        result = self._decide(command)
        self._around.ledger.write(self.name, command, sender, result.result)
        log.info("power command", machine=self.name, command=command, sender=sender, result=result.result)
        return result

    async def answer_pause(self) -> None:
        """Wait as long as the management endpoint takes to answer."""
        await self._around.clock.sleep(self.behaviour.reply_delay)

    def _decide(self, command: str) -> CommandResult:
        firmware = self.behaviour.power_on if command == "on" else self.behaviour.power_off
        if firmware is Firmware.REFUSE:
            return CommandResult("refused", acknowledged=False)
        if firmware is Firmware.LIE:
            return CommandResult("ignored", acknowledged=True)
        acknowledged = firmware is not Firmware.LATE
        if self._heading == command or self._is_so(command):
            return CommandResult("unchanged", acknowledged)
        self._go(command, self._turn_on() if command == "on" else self._turn_off())
        return CommandResult("accepted", acknowledged)

    def _is_so(self, command: str) -> bool:
        """Whether the machine is where the command would bring it, and not on its way elsewhere."""
        return self._heading is None and self.is_on == (command == "on")

    # --- what happens to machines ------------------------------------------------------------------------------

    def press_button(self) -> CommandResult:
        """A person presses the power button: on if off, off if on."""
        return self.command("off" if self.is_on else "on", HAND)

    def cut_power(self) -> None:
        """The plug is pulled: off at once, nothing is said to anybody."""
        self._halt()
        self._set(Power.OFF)

    def crash(self) -> None:
        """The kernel panics: the machine stays on and says nothing any more."""
        if self.is_on:
            self._halt()
            self._set(Power.CRASHED)

    def reboot(self) -> None:
        """The operating system restarts: the kubelet goes and comes back after the boot time."""
        if self.is_on:
            self._halt()
            self._set(Power.BOOTING)
            self._go("on", self._boot())

    def change(self, behaviour: Behaviour) -> None:
        """Behave differently from now on; a boot under way keeps the times that it began with."""
        self.behaviour = behaviour
        if self._kubelet is not None:
            if behaviour.kubelet_hung or (behaviour.join_refused and not self._kubelet.agent.registered):
                self._kubelet.hang()
            else:
                self._kubelet.resume()

    async def close(self) -> None:
        """Stop simulating; like cut_power, but not part of the story."""
        tasks = [task for task in (self._transition, self._system) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lose_memory()

    # --- transitions -------------------------------------------------------------------------------------------

    def _go(self, heading: str, transition: Coroutine[None, None, None]) -> None:
        if self._transition is not None:
            self._transition.cancel()
        self._heading = heading
        task = asyncio.get_running_loop().create_task(transition, name=f"{self.name} {heading}")
        self._transition = task
        task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        if task is self._transition:
            self._transition = None
            self._heading = None
        if not task.cancelled() and task.exception() is not None:
            log.error("machine failed", machine=self.name, error=repr(task.exception()))

    def _halt(self) -> None:
        """Whatever runs on the machine ends between two instructions."""
        for task in (self._transition, self._system):
            if task is not None:
                task.cancel()
        self._transition = self._system = None
        self._heading = None
        self._lose_memory()

    def _lose_memory(self) -> None:
        """What runs on a machine ends with its power or its kernel."""
        self._kubelet = None
        if self._runtime is not None:
            self._runtime.kill()
            self._runtime = None

    async def _turn_on(self) -> None:
        await self._around.clock.sleep(self.behaviour.firmware_delay)
        if self._power is Power.UP:
            return  # an `off` that had not begun yet was called back
        self._end_system()
        await self._boot()

    async def _boot(self) -> None:
        self._set(Power.BOOTING)
        await self._around.clock.sleep(self.behaviour.boot_seconds)
        if self.behaviour.dead:
            return
        self._start_system()
        self._set(Power.UP)

    async def _turn_off(self) -> None:
        await self._around.clock.sleep(self.behaviour.firmware_delay)
        if self._power is Power.UP:
            self._set(Power.STOPPING)
            if self.behaviour.announce_shutdown and self._kubelet is not None and not self._kubelet.hung:
                with contextlib.suppress(ApiStatusError, OSError):
                    await self._kubelet.say_shutting_down()
            await self._around.clock.sleep(self.behaviour.stop_seconds)
        self._end_system()
        self._set(Power.OFF)

    def _end_system(self) -> None:
        if self._system is not None:
            self._system.cancel()
            self._system = None
        self._lose_memory()

    def _start_system(self) -> None:
        around = self._around
        node = self.spec.node_spec
        behaviour = self.behaviour
        registered = replace(node, taints=(*node.taints, *behaviour.startup_taints))
        pause = 1.0 / around.factor
        simulated = SimulatedRuntime(around.clock, start=pause, ready=pause, stop=pause)
        client = around.client(f"system:node:{node.name}")
        processes = around.processes(client, node.name) if around.processes is not None else None
        self._runtime = MachineRuntime(simulated, processes)
        kubelet = Kubelet(
            client,
            around.clock,
            registered,
            self._runtime,
            around.timings,
            wall=self._wall,
        )
        if behaviour.kubelet_hung or behaviour.join_refused:
            kubelet.hang()
        self._kubelet = kubelet
        self._system = asyncio.get_running_loop().create_task(
            self._run_system(kubelet, behaviour.startup_taints), name=f"{self.name} system"
        )

    async def _run_system(self, kubelet: Kubelet, startup_taints: tuple[JsonObject, ...]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(kubelet.run())
                if startup_taints:
                    group.create_task(self._clear_startup_taints(kubelet, startup_taints))
        except* Exception:
            log.exception("system failed", machine=self.name)

    async def _clear_startup_taints(self, kubelet: Kubelet, startup_taints: tuple[JsonObject, ...]) -> None:
        """What a network plugin's agent does once it works: take its own taint away."""
        await kubelet.agent.became_ready.wait()
        while self.behaviour.startup_taints_clear is None:
            await self._around.clock.sleep(1.0 / self._around.factor)
        await self._around.clock.sleep(self.behaviour.startup_taints_clear)
        client = self._around.client(f"sandbox:node-agent:{self.name}")
        target = resources.path(resources.NODES, name=kubelet.agent.node.name)
        cleared = {(taint["key"], taint["effect"]) for taint in startup_taints}
        while True:
            with contextlib.suppress(ApiStatusError, OSError):
                node = await client.get(target)
                left = [item for item in taints.taints_of(node) if (item["key"], item["effect"]) not in cleared]
                version = node["metadata"]["resourceVersion"]
                body = {"metadata": {"resourceVersion": version}, "spec": {"taints": left or None}}
                await client.patch(target, body, MERGE_PATCH)
                return
            await self._around.clock.sleep(0.5 / self._around.factor)

    def _wall(self) -> datetime:
        return self._around.clock.now() + timedelta(seconds=self.behaviour.clock_skew)

    def _set(self, power: Power) -> None:
        if power is self._power:
            return
        self._power = power
        self._history.append((self._around.clock.now(), power))
        self._moved.set()
        for listener in self._listeners:
            listener(self)

    def to_json(self) -> JsonObject:
        """As served over HTTP."""
        return {
            "name": self.name,
            "node": self.spec.node_spec.name,
            "power": self._power.value,
            "on": self.is_on,
            "behaviour": self.behaviour.to_json(),
            "history": [{"time": format_time(when), "power": power.value} for when, power in self._history],
        }
