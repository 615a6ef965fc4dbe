"""One pod on one node, from its binding to its end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import STRATEGIC_PATCH, ApiClient
from homelab_autoscaler.sandbox.kubelet.pod_status import ContainerState, pod_phase, pod_status, will_restart
from homelab_autoscaler.sandbox.kubelet.runtime import ContainerRun, Exit, NotReadyYetError, PodRuntime, StartError
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.events import EventRecorder
    from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings

log = structlog.get_logger(__name__)

_PAST_DEADLINE: Final = "Pod was active on the node longer than the specified deadline"
_FORCED_GRACE: Final = 2.0
"""Containers of a pod whose object vanished (force deletion) get this long, as a kubelet gives them."""
_LONGEST_BACKOFF_FACTOR: Final = 30


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every pod worker of a kubelet shares."""

    client: ApiClient
    clock: SandboxClock
    runtime: PodRuntime
    timings: KubeletTimings
    events: EventRecorder
    address: str


class PodWorker:
    """Runs a pod until its containers have ended or it is deleted, and reports what happens.

    `update` tells it the newest state of the object, `vanish` that the object is gone. The worker ends when there is
    nothing more to do for the pod; `run` may be cancelled at any time, like a machine that loses its power.
    """

    def __init__(self, pod: JsonObject, around: Surroundings) -> None:
        """Prepare a worker for a pod that is bound to the node."""
        self._pod = pod
        self._around = around
        self._changed = asyncio.Event()
        self._vanished = False
        self._stopping = False
        self._interrupted = False
        self._verdict: JsonObject = {}
        self._runs: dict[str, ContainerRun] = {}
        spec = objects.spec(pod)
        self._policy = str(spec.get("restartPolicy") or "Always")
        self._init = [self._state(container) for container in spec.get("initContainers") or []]
        self._main = [self._state(container) for container in spec["containers"]]
        self._posting = asyncio.Lock()

    def _state(self, container: JsonObject) -> ContainerState:
        known = next(
            (
                entry
                for field in ("containerStatuses", "initContainerStatuses")
                for entry in objects.status(self._pod).get(field) or []
                if entry.get("name") == container["name"]
            ),
            None,
        )
        state = ContainerState(container["name"], str(container.get("image") or ""))
        if known is not None and "waiting" not in (known.get("state") or {"waiting": {}}):
            # It ran before this kubelet started: the machine was rebooted under it.
            state.restarts = int(known.get("restartCount") or 0) + 1
            self._interrupted = True
        return state

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return objects.uid(self._pod)

    def update(self, pod: JsonObject) -> None:
        """The object changed."""
        self._pod = pod
        self._changed.set()

    def vanish(self) -> None:
        """The object is gone: containers are stopped and nothing is reported any more."""
        self._vanished = True
        self._changed.set()

    async def run(self) -> None:
        """See the class."""
        if not objects.is_finished_pod(self._pod):
            if self._interrupted and self._policy == "Never":
                self._stopping = True  # What ran before the reboot is lost, and nothing may start it again.
            else:
                await self._run_containers()
        await self._finish()

    async def _run_containers(self) -> None:
        life = asyncio.ensure_future(self._live())
        ending = asyncio.ensure_future(self._must_end())
        try:
            await asyncio.wait({life, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not life.done():
                if not (self._vanished or objects.is_deleting(self._pod)):
                    self._verdict = {"reason": "DeadlineExceeded", "message": _PAST_DEADLINE}
                await self._stop(life)
            if not life.cancelled():
                life.result()
        finally:
            ending.cancel()
            life.cancel()
            await asyncio.gather(ending, life, return_exceptions=True)

    async def _must_end(self) -> None:
        """Returns when the pod is being deleted, is gone, or has used up its activeDeadlineSeconds."""
        seconds = objects.spec(self._pod).get("activeDeadlineSeconds")
        limit = asyncio.ensure_future(self._around.clock.sleep(float(seconds))) if seconds is not None else None
        try:
            while not (self._vanished or objects.is_deleting(self._pod)):
                self._changed.clear()
                change = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait({change, limit} if limit else {change}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
                if limit is not None and limit.done():
                    return
        finally:
            if limit is not None:
                limit.cancel()

    async def _live(self) -> None:
        if not await self._prepare():
            return
        for container, state in zip(objects.spec(self._pod).get("initContainers") or [], self._init, strict=True):
            state.waiting = ("PodInitializing", "")
            await self._run_container(container, state, init=True)
            if state.exit is None or state.exit.code != 0:
                for main in self._main:
                    main.waiting = main.waiting or ("PodInitializing", "")
                return
        containers = objects.spec(self._pod)["containers"]
        async with asyncio.TaskGroup() as group:
            for container, state in zip(containers, self._main, strict=True):
                group.create_task(self._run_container(container, state, init=False))

    async def _prepare(self) -> bool:
        """Wait for what the pod mounts; False when it is to end before it began."""
        await self._post()
        while not self._stopping:
            try:
                await self._around.runtime.prepare(self._pod)
            except NotReadyYetError as error:
                for state in self._main:
                    state.waiting = (error.waiting, str(error))
                await self._post()
                await self._around.events.record(self._pod, "Warning", error.event, str(error))
                await self._around.clock.sleep(self._around.timings.prepare_retry)
            else:
                return not self._stopping
        return False

    async def _run_container(self, container: JsonObject, state: ContainerState, *, init: bool) -> None:
        policy = "OnFailure" if init and self._policy == "Always" else self._policy
        failures = 0
        while not self._stopping:
            await self._run_once(container, state, init=init)
            await self._post()
            ended = state.exit
            if ended is None or not self._restarts(policy, ended):
                return
            failures += 1
            base = self._around.timings.restart_backoff
            pause = 0.0 if failures == 1 else min(base * 2 ** (failures - 2), base * _LONGEST_BACKOFF_FACTOR)
            if pause:
                state.last, state.exit = ended, None
                state.waiting = ("CrashLoopBackOff", f"back-off {pause:g}s restarting failed container={state.name}")
                await self._post()
                await self._around.clock.sleep(pause)
            state.restarts += 1
            state.last, state.exit, state.waiting = ended, None, None

    def _restarts(self, policy: str, ended: Exit) -> bool:
        return not self._stopping and will_restart(policy, ended)

    async def _run_once(self, container: JsonObject, state: ContainerState, *, init: bool) -> None:
        clock = self._around.clock
        try:
            run = await self._start(container, state.restarts)
        except StartError as error:
            state.started_at = clock.now()
            state.waiting = None
            state.exit = Exit(error.exit_code, clock.now(), error.reason, error.message)
            await self._around.events.record(self._pod, "Warning", "Failed", f"Error: {error.message}")
            return
        self._runs[state.name] = run
        state.waiting, state.exit, state.ready = None, None, False
        state.started_at = clock.now()
        state.container_id = f"sandbox://{self.uid}/{state.name}/{state.restarts}"
        if not init:
            delay = self._around.runtime.ready_delay(self._pod)
            readiness = asyncio.ensure_future(self._get_ready(state, delay))
        else:
            readiness = None
        try:
            await self._post()
            state.exit = await run.wait()
        finally:
            if readiness is not None:
                readiness.cancel()
            del self._runs[state.name]
        state.ready = False

    async def _start(self, container: JsonObject, attempt: int) -> ContainerRun:
        """Start a container; one that is being started while the pod ends is ended as well."""
        starting = asyncio.ensure_future(self._around.runtime.start(self._pod, container, attempt))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(StartError):
                await (await starting).stop(0)
            raise

    async def _get_ready(self, state: ContainerState, delay: float | None) -> None:
        if delay is None:
            return
        if delay > 0:
            await self._around.clock.sleep(delay)
        state.ready = True
        await self._post()

    async def _stop(self, life: asyncio.Future[None]) -> None:
        """End the containers: within the grace period, which may shrink on the way."""
        self._stopping = True
        while not life.done():
            grace = _FORCED_GRACE if self._vanished else float(self._grace())
            self._changed.clear()
            runs = list(self._runs.values())
            if not runs:
                # Nothing runs now: a pause or a preparation is not waited for.
                life.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await life
                return
            stops: asyncio.Future[list[None]] = asyncio.gather(*(run.stop(grace) for run in runs))
            try:
                while not stops.done() and not self._vanished and float(self._grace()) >= grace:
                    await self._stopped_or_changed(stops)
                if stops.done():
                    await asyncio.wait({life})
            finally:
                stops.cancel()
                await asyncio.gather(stops, return_exceptions=True)

    async def _stopped_or_changed(self, stops: asyncio.Future[list[None]]) -> None:
        self._changed.clear()
        change = asyncio.ensure_future(self._changed.wait())
        try:
            waited: set[asyncio.Future[Any]] = {stops, change}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()

    def _grace(self) -> int:
        found = objects.metadata(self._pod).get("deletionGracePeriodSeconds")
        if found is None:
            found = objects.spec(self._pod).get("terminationGracePeriodSeconds", 30)
        return int(found)

    async def _finish(self) -> None:
        """Report the end; remove the object if it was waiting for its containers."""
        if not self._vanished and not objects.is_finished_pod(self._pod):
            self._settle_unstarted()
            await self._post(final=True)
        while not self._vanished and not objects.is_deleting(self._pod):
            # Finished, but still there: its output stays readable until somebody deletes it.
            self._changed.clear()
            await self._changed.wait()
        if not self._vanished:
            await self._remove()
            while not self._vanished:
                self._changed.clear()
                await self._changed.wait()
        await self._around.runtime.forget(self._pod)

    def _settle_unstarted(self) -> None:
        """Containers that never ran, or whose end was not seen, are reported as killed."""
        if not self._stopping:
            return
        now = self._around.clock.now()
        for state in self._main:
            if state.exit is None:
                reason, text = "ContainerStatusUnknown", "the pod was stopped before this container ended by itself"
                state.exit = Exit(137, now, reason, text)
                state.waiting = None

    async def _post(self, *, final: bool = False) -> None:
        """Write the status; a pod that is gone or another one by now needs none."""
        async with self._posting:
            if self._vanished:
                return
            failed_init = any(state.exit is not None and state.exit.code != 0 for state in self._init)
            if final and (failed_init or self._verdict):
                phase = "Failed"
            else:
                phase = pod_phase(self._policy, self._main, stopping=final or self._stopping)
                if phase in objects.FINISHED_PHASES and not final:
                    # The last word is spoken once, after everything has ended.
                    return
            body = pod_status(
                self._pod,
                self._main,
                self._init,
                phase=phase,
                address=self._around.address,
                now=self._around.clock.now(),
            )
            patch = {"metadata": {"uid": self.uid}, "status": {**body, **(self._verdict if final else {})}}
            target = resources.path(resources.PODS, *objects.key(self._pod), sub="status")
            await self._until_answered(target, patch)

    async def _until_answered(self, target: str, patch: JsonObject) -> None:
        """A status that could not be delivered is sent again: nobody else knows how the containers ended."""
        pause = 0.05
        while not self._vanished:
            try:
                self._take(await self._around.client.patch(target, patch, STRATEGIC_PATCH))
            except (ApiStatusError, OSError) as error:
                if isinstance(error, ApiStatusError) and error.code in (404, 422):
                    log.debug("pod status refused", pod=target, error=str(error))
                    return
                log.info("pod status not delivered", pod=target, error=str(error))
                await self._around.clock.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return

    def _take(self, answer: JsonObject) -> None:
        if objects.revision(answer) > objects.revision(self._pod):
            self._pod = answer
            if objects.is_deleting(answer):
                self._changed.set()

    async def _remove(self) -> None:
        target = resources.path(resources.PODS, *objects.key(self._pod))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        pause = 0.05
        while not self._vanished:
            try:
                await self._around.client.delete(target, options)
            except (ApiStatusError, OSError) as error:
                if isinstance(error, ApiStatusError) and error.code == 404:
                    return
                await self._around.clock.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return
