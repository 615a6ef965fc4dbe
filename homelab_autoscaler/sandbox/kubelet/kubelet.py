"""A whole kubelet: node agent and pod workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.events import EventRecorder
from homelab_autoscaler.sandbox.informer import Informer
from homelab_autoscaler.sandbox.kubelet.gate import Gate, GatedClient
from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings, NodeAgent, NodeSpec
from homelab_autoscaler.sandbox.kubelet.pod_worker import PodWorker, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.kubelet.runtime import PodRuntime

log = structlog.get_logger(__name__)


class Kubelet:
    """Runs until cancelled; a cancelled kubelet leaves everything as it is, like one whose machine lost its power.

    `hang` freezes it: no renewals, no status, no pod work; what is written stays. `resume` lets it go on.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: SandboxClock,
        node: NodeSpec,
        runtime: PodRuntime,
        timings: KubeletTimings | None = None,
        *,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        """Prepare a kubelet.

        Args:
            client: Under the node's own user name.
            clock: Measures time.
            node: How to register.
            runtime: Runs containers.
            timings: Its pace.
            wall: What the machine believes to be the time.
        """
        self._timings = timings or KubeletTimings()
        self._gate = Gate()
        gated = GatedClient(client, self._gate)
        self.agent = NodeAgent(gated, clock, node, self._timings, wall=wall)
        events = EventRecorder(gated, clock, "kubelet", node.name)
        self._around = Surroundings(gated, clock, runtime, self._timings, events, node.address)
        self._pods = Informer(
            gated,
            clock,
            resources.PODS,
            query={"fieldSelector": f"spec.nodeName={node.name}"},
        )
        self._pods.on_change(self._pod_changed)
        self._workers: dict[str, PodWorker] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Register, then work until cancelled."""
        await self.agent.register()
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.agent.keep_lease(), name=f"lease {self.agent.node.name}")
            group.create_task(self.agent.keep_status(), name=f"status {self.agent.node.name}")
            group.create_task(self._pods.run(), name=f"pods {self.agent.node.name}")

    def hang(self) -> None:
        """Freeze the kubelet: it says and hears nothing any more; containers go on."""
        self._gate.close()

    def resume(self) -> None:
        """Let a hung kubelet go on."""
        self._gate.open()

    @property
    def hung(self) -> bool:
        """Whether it is frozen."""
        return self._gate.closed

    async def say_shutting_down(self) -> None:
        """Graceful node shutdown: post Ready=False before the power goes."""
        self.agent.set_ready(ready=False, reason="KubeletNotReady", message="node is shutting down")
        await self.agent.post_status()

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None:
            worker = self._workers.get(objects.uid(old or {}))
            if worker is not None:
                worker.vanish()
            return
        worker = self._workers.get(objects.uid(new))
        if worker is not None:
            worker.update(new)
            return
        assert self._group is not None, "pods are only heard of while the kubelet runs"
        worker = PodWorker(new, self._around)
        self._workers[worker.uid] = worker
        self._group.create_task(self._work(worker), name=f"pod {objects.namespace(new)}/{objects.name(new)}")

    async def _work(self, worker: PodWorker) -> None:
        try:
            await worker.run()
        except Exception:
            # One pod that breaks its worker must not take the node with it.
            log.exception("pod worker failed", node=self.agent.node.name, pod=worker.uid)
        finally:
            self._workers.pop(worker.uid, None)
