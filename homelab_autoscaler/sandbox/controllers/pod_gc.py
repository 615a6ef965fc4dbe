"""Pod garbage collection: pods whose node is gone, and pods that are being deleted but never got a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import STRATEGIC_PATCH
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.objects import Key

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet


class PodGarbageCollector(Controller[Key]):
    """Works on pods. A node must have been missing for a while (quarantine): its Node may come back under the name."""

    component = "pod-garbage-collector"

    def __init__(
        self, client: ApiClient, clock: SandboxClock, informers: InformerSet, *, quarantine: float = 40.0
    ) -> None:
        """See Controller.

        Args:
            client: See Controller.
            clock: See Controller.
            informers: See Controller.
            quarantine: Seconds that a node must be missing before its pods go.
        """
        super().__init__(client, clock, informers)
        self._quarantine = quarantine
        self._missing: dict[str, float] = {}
        self._nodes = self.informer(resources.NODES)
        self._pods = self.informer(resources.PODS)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(lambda _, new: self.queue.add(objects.key(new)) if new is not None else None)

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        name = objects.name(cast("JsonObject", new or old))
        if new is not None:
            self._missing.pop(name, None)
            return
        for pod in self._pods.where(lambda pod: objects.spec(pod).get("nodeName") == name):
            self.queue.add(objects.key(pod))

    async def sync(self, key: Key) -> float | None:
        """Remove the pod if there is nobody who could."""
        pod = self._pods.get(key)
        if pod is None:
            return None
        node = str(objects.spec(pod).get("nodeName") or "")
        if not node:
            if objects.is_deleting(pod):
                await self._remove(pod, "")
            return None
        if self._nodes.get(("", node)) is not None:
            return None
        since = self._missing.setdefault(node, self.clock.monotonic())
        left = since + self._quarantine - self.clock.monotonic()
        if left > 0:
            return left
        answer = await self.client.request("GET", resources.path(resources.NODES, name=node))
        if answer.status != 404:
            return self._quarantine
        await self._remove(pod, f"PodGC: node no longer exists: {node}")
        return None

    async def _remove(self, pod: JsonObject, why: str) -> None:
        namespace, name = objects.key(pod)
        target = resources.path(resources.PODS, namespace, name)
        if not objects.is_finished_pod(pod):
            body: JsonObject = {"phase": "Failed"}
            if why:
                condition = {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": why,
                    "lastTransitionTime": objects.stamp(self.clock.now()),
                }
                body["conditions"] = [condition]
            patch = {"metadata": {"uid": objects.uid(pod)}, "status": body}
            await self.client.patch(f"{target}/status", patch, STRATEGIC_PATCH)
        await self.client.delete(target, {"gracePeriodSeconds": 0, "preconditions": {"uid": objects.uid(pod)}})
