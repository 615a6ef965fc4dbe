"""What a kubelet needs from a container runtime, and the runtime of simulated machines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock

ANNOTATION_PREFIX: Final = "sandbox.homelab-autoscaler.dev/"
RUN_SECONDS: Final = f"{ANNOTATION_PREFIX}run-seconds"
"""On a pod: its containers end by themselves after so long. Absent: they run until the pod is deleted."""
EXIT_CODE: Final = f"{ANNOTATION_PREFIX}exit-code"
"""On a pod: the exit code of containers that end by themselves; 0 by default."""
READY_SECONDS: Final = f"{ANNOTATION_PREFIX}ready-seconds"
"""On a pod: how long its containers run before they are ready; a negative number means never."""
STOP_SECONDS: Final = f"{ANNOTATION_PREFIX}stop-seconds"
"""On a pod: how long its containers take to stop; past the grace period they are killed."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended. `code` is 128 + signal for a killed one, as a container runtime reports it."""

    code: int
    finished_at: datetime
    reason: str = ""
    message: str = ""


class NotReadyYetError(Exception):
    """The pod cannot start now (a Secret or ConfigMap is missing): it is tried again.

    Attributes:
        event: Reason of the Event.
        waiting: Reason in the containers' waiting state.
    """

    def __init__(self, message: str, *, event: str = "FailedMount", waiting: str = "ContainerCreating") -> None:
        super().__init__(message)
        self.event = event
        self.waiting = waiting


class StartError(Exception):
    """A container cannot be started at all, for example because its command does not exist.

    Attributes:
        exit_code: What the container is said to have exited with: 127 or 128, as real runtimes report.
        reason: One word for `state.terminated.reason`.
        message: The cause, for people.
    """

    def __init__(self, message: str, *, exit_code: int = 128, reason: str = "StartError") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.reason = reason
        self.message = message


class ContainerRun(Protocol):
    """One container that was started."""

    async def wait(self) -> Exit:
        """Wait for its end; may be called more than once."""
        ...

    async def stop(self, grace: float) -> None:
        """Ask it to end, kill it after the grace period. Returns when it has ended."""
        ...


class PodRuntime(Protocol):
    """Runs containers."""

    async def prepare(self, pod: JsonObject) -> None:
        """Make the pod's volumes.

        Raises:
            NotReadyYetError: something is missing that may still come.
        """
        ...

    async def start(self, pod: JsonObject, container: JsonObject, attempt: int) -> ContainerRun:
        """Start one container.

        Raises:
            StartError: it cannot be started.
        """
        ...

    def ready_delay(self, pod: JsonObject) -> float | None:
        """Seconds of running until a container counts as ready; None for never."""
        ...

    async def forget(self, pod: JsonObject) -> None:
        """The pod is gone: remove what was kept for it."""
        ...


class SimulatedRuntime:
    """Containers that exist only as time: they run, become ready, end and stop when their annotations say so."""

    def __init__(self, clock: SandboxClock, *, start: float = 1.0, ready: float = 1.0, stop: float = 1.0) -> None:
        """Seconds that a container takes to start, to get ready and to stop, unless its pod's annotations differ."""
        self._clock = clock
        self._start = start
        self._ready = ready
        self._stop = stop

    async def prepare(self, pod: JsonObject) -> None:
        """Pulling images and mounting volumes takes its time."""
        del pod
        await self._clock.sleep(self._start)

    async def start(self, pod: JsonObject, container: JsonObject, attempt: int) -> ContainerRun:
        """Start the container's clock."""
        del container, attempt
        return _SimulatedRun(
            self._clock,
            run=_number(pod, RUN_SECONDS, None),
            code=int(_number(pod, EXIT_CODE, 0.0) or 0),
            stop=_number(pod, STOP_SECONDS, self._stop) or 0.0,
        )

    def ready_delay(self, pod: JsonObject) -> float | None:
        """As the annotation says."""
        seconds = _number(pod, READY_SECONDS, self._ready)
        return seconds if seconds is not None and seconds >= 0 else None

    async def forget(self, pod: JsonObject) -> None:
        """Nothing is kept."""


def _number(pod: JsonObject, annotation: str, default: float | None) -> float | None:
    text = objects.annotations(pod).get(annotation)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        return default


class _SimulatedRun:
    def __init__(self, clock: SandboxClock, *, run: float | None, code: int, stop: float) -> None:
        self._clock = clock
        self._stop = stop
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._timer = asyncio.get_running_loop().create_task(self._end_after(run, code)) if run is not None else None

    async def _end_after(self, seconds: float, code: int) -> None:
        await self._clock.sleep(seconds)
        self._end(code)

    def _end(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(Exit(code, self._clock.now()))

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    async def stop(self, grace: float) -> None:
        await self._clock.sleep(min(self._stop, grace))
        if self._timer is not None:
            self._timer.cancel()
        self._end(0 if self._stop <= grace else 137)
