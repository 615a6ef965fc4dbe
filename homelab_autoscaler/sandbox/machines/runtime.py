"""The container runtime of a simulated machine: pods of Jobs really run there, everything else exists only as time.

A Job's pod may be scheduled onto any node that fits, also onto a machine. Its command must run there as well as on the
host node, and die with the machine's power: that is what tells a well-placed lifecycle Job from one that sits on the
machine which it turns off. A workload's pod, on the other hand, names an image that nobody here has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.kubelet.runtime import ContainerRun, PodRuntime, SimulatedRuntime
    from homelab_autoscaler.sandbox.podrunner.runtime import ProcessRuntime


class MachineRuntime:
    """Implements PodRuntime by handing each pod to the runtime that suits it."""

    def __init__(self, simulated: SimulatedRuntime, processes: ProcessRuntime | None) -> None:
        """Choose between two runtimes; without processes everything is simulated."""
        self._simulated = simulated
        self._processes = processes

    def _for(self, pod: JsonObject) -> PodRuntime:
        owner = objects.controller_of(pod)
        if self._processes is not None and owner is not None and owner.get("kind") == "Job":
            return self._processes
        return self._simulated

    async def prepare(self, pod: JsonObject) -> None:
        """See PodRuntime."""
        await self._for(pod).prepare(pod)

    async def start(self, pod: JsonObject, container: JsonObject, attempt: int) -> ContainerRun:
        """See PodRuntime."""
        return await self._for(pod).start(pod, container, attempt)

    def ready_delay(self, pod: JsonObject) -> float | None:
        """See PodRuntime."""
        return self._for(pod).ready_delay(pod)

    async def forget(self, pod: JsonObject) -> None:
        """See PodRuntime."""
        await self._for(pod).forget(pod)

    def kill(self) -> None:
        """The power is gone, and with it whatever ran."""
        if self._processes is not None:
            self._processes.kill()
