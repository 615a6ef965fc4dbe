"""Taint eviction: pods leave nodes with NoExecute taints that they do not tolerate, or no longer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

from homelab_autoscaler.sandbox import objects, resources, taints
from homelab_autoscaler.sandbox.client import STRATEGIC_PATCH
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.objects import Key

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet


class TaintEvictionController(Controller[Key]):
    """Works on pods. A pod with tolerationSeconds goes that long after the taint was added (timeAdded).

    A taint without timeAdded counts from the moment it was seen. Budgets are not asked, as upstream.
    """

    component = "taint-eviction-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._seen: dict[tuple[str, str], float] = {}
        self._nodes = self.informer(resources.NODES)
        self._pods = self.informer(resources.PODS)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        node = cast("JsonObject", new or old)
        if new is None or (old is not None and taints.taints_of(old) == taints.taints_of(new)):
            return
        for pod in self._pods.where(lambda pod: objects.spec(pod).get("nodeName") == objects.name(node)):
            self.queue.add(objects.key(pod))

    def _pod_changed(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and objects.spec(new).get("nodeName"):
            self.queue.add(objects.key(new))

    async def sync(self, key: Key) -> float | None:
        """Delete the pod if its time on the node is over."""
        pod = self._pods.get(key)
        if pod is None or objects.is_deleting(pod) or objects.is_finished_pod(pod):
            return None
        node = self._nodes.get(("", str(objects.spec(pod).get("nodeName") or "")))
        if node is None:
            return None
        no_execute = [taint for taint in taints.taints_of(node) if taint.get("effect") == "NoExecute"]
        self._forget(objects.name(node), no_execute)
        if not no_execute:
            return None
        allowed = taints.allowed_seconds(no_execute, taints.tolerations_of(pod))
        if allowed is None:
            return None
        left = allowed - self._age(objects.name(node), no_execute)
        if allowed > 0 and left > 0:
            return left
        await self._evict(pod)
        return None

    def _age(self, node: str, no_execute: list[JsonObject]) -> float:
        """Seconds since the first of the taints was added."""
        ages: list[float] = []
        for taint in no_execute:
            added = objects.parse_time(taint.get("timeAdded"))
            if added is not None:
                ages.append((self.clock.now() - added) / timedelta(seconds=1))
            else:
                seen = self._seen.setdefault((node, str(taint["key"])), self.clock.monotonic())
                ages.append(self.clock.monotonic() - seen)
        return max(ages)

    def _forget(self, node: str, no_execute: list[JsonObject]) -> None:
        present = {str(taint["key"]) for taint in no_execute}
        for known in [known for known in self._seen if known[0] == node and known[1] not in present]:
            del self._seen[known]

    async def _evict(self, pod: JsonObject) -> None:
        namespace, name = objects.key(pod)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": objects.stamp(self.clock.now()),
        }
        await self.events.record(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {namespace}/{name}")
        patch = {"metadata": {"uid": objects.uid(pod)}, "status": {"conditions": [condition]}}
        await self.client.patch(resources.path(resources.PODS, namespace, name, "status"), patch, STRATEGIC_PATCH)
        options = {"preconditions": {"uid": objects.uid(pod)}}
        await self.client.delete(resources.path(resources.PODS, namespace, name), options)
