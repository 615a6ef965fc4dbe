"""The node that runs lifecycle Jobs, on virtual time: what a power script does is data."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.kubelet.runtime import Exit, NotReadyYetError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.machines.fleet import Fleet


@dataclass(frozen=True)
class Script:
    """What happens when a lifecycle Job's container runs.

    Attributes:
        seconds: until it ends.
        sends: how often it sends its power command, at its start.
        code: exit code; None: 0 if the machine acknowledged, else 1.
        hangs: it never ends by itself, and does not hear SIGTERM.
        image_missing: the container never starts.
    """

    seconds: float = 0.5
    sends: int = 1
    code: int | None = None
    hangs: bool = False
    image_missing: bool = False


class ScriptRuntime:
    """A PodRuntime for pods whose command is `["on" or "off", machine]`.

    Attributes:
        scripts: (command, machine) to what its script does, for those that do not simply obey.
        runs: (command, machine, Job) of every container that was started.
    """

    def __init__(self, clock: SandboxClock, fleet: Fleet) -> None:
        self._clock = clock
        self._fleet = fleet
        self.scripts: dict[tuple[str, str], Script] = {}
        self.runs: list[tuple[str, str, str]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def prepare(self, pod: JsonObject) -> None:
        command, machine = pod["spec"]["containers"][0]["command"]
        while self.scripts.get((command, machine), Script()).image_missing:
            raise NotReadyYetError("no such image", waiting="ImagePullBackOff")

    async def start(self, pod: JsonObject, container: JsonObject, attempt: int) -> Any:
        del attempt
        command, machine = container["command"]
        job = pod["metadata"]["ownerReferences"][0]["name"]
        self.runs.append((command, machine, job))
        script = self.scripts.get((command, machine), Script())
        acknowledged = True
        for _ in range(script.sends):
            acknowledged = self._fleet[machine].command(command, job).acknowledged
        code = script.code if script.code is not None else int(not acknowledged)
        run = _Run(self._clock, script, code)
        if run.timer is not None:
            self.tasks.append(run.timer)
        return run

    def ready_delay(self, pod: JsonObject) -> float | None:
        del pod
        return 0.0

    async def forget(self, pod: JsonObject) -> None:
        del pod


class _Run:
    def __init__(self, clock: SandboxClock, script: Script, code: int) -> None:
        self._clock = clock
        self._script = script
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.Task[None] | None = None
        if not script.hangs:
            self.timer = asyncio.get_running_loop().create_task(self._end(script.seconds, code))

    async def _end(self, seconds: float, code: int) -> None:
        await self._clock.sleep(seconds)
        if not self._exit.done():
            self._exit.set_result(Exit(code, self._clock.now()))

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    async def stop(self, grace: float) -> None:
        if self._script.hangs:
            await self._clock.sleep(grace)
        if self.timer is not None:
            self.timer.cancel()
        if not self._exit.done():
            self._exit.set_result(Exit(137, self._clock.now()))
