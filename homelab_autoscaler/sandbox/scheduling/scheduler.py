"""The scheduler's loop: one pod after the other, highest priority and oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import STRATEGIC_PATCH
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.scheduling.fit import choose, pod_requests, state_of

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

NAME: Final = "default-scheduler"
_ROUND: Final = "round"


class Scheduler(Controller[Literal["round"]]):
    """Looks at all pods without a node in one pass, whenever a pod or a node changed.

    Not simulated: preemption, preferred affinity, pod affinity, topology spread, volumes, host ports.
    """

    component = NAME

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._nodes = self.informer(resources.NODES)
        self._pods = self.informer(resources.PODS)
        self._nodes.on_change(self._node_changed)
        self._pods.on_change(self._pod_changed)

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is None or new is None or _relevant(old) != _relevant(new):
            self.queue.add(_ROUND)

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        waits = new is not None and _waits(new) and (old is None or not _waits(old))
        frees = old is not None and _occupies(old) and (new is None or not _occupies(new))
        if waits or frees:
            self.queue.add(_ROUND)

    async def sync(self, key: Literal["round"]) -> float | None:
        """Bind what fits, explain what does not."""
        del key
        waiting = self._pods.where(_waits)
        if not waiting:
            return None
        by_node: dict[str, list[JsonObject]] = {}
        for pod in self._pods.where(_occupies):
            by_node.setdefault(str(objects.spec(pod)["nodeName"]), []).append(pod)
        states = {
            objects.name(node): state_of(node, by_node.get(objects.name(node), ())) for node in self._nodes.items()
        }
        waiting.sort(key=_order)
        for pod in waiting:
            state, why = choose(pod, states.values())
            if state is None:
                await self._explain(pod, why)
                continue
            name = objects.name(state.node)
            await self._bind(pod, name)
            states[name] = state.with_pod(pod_requests(pod))
        return None

    async def _bind(self, pod: JsonObject, node: str) -> None:
        namespace, name = objects.key(pod)
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": objects.uid(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        answer = await self.client.request(
            "POST", resources.path(resources.PODS, namespace, name, "binding"), body=body
        )
        if answer.status in (404, 409):
            return  # Gone, or bound by somebody else: the watch tells.
        text = f"Successfully assigned {namespace}/{name} to {node}"
        await self.events.record(pod, "Normal", "Scheduled", text)

    async def _explain(self, pod: JsonObject, why: str) -> None:
        known = objects.condition(pod, "PodScheduled")
        if known is not None and known.get("status") == "False" and known.get("message") == why:
            return
        now = objects.stamp(self.clock.now())
        entry = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": (known or {}).get("lastTransitionTime") or now,
        }
        namespace, name = objects.key(pod)
        patch = {"metadata": {"uid": objects.uid(pod)}, "status": {"conditions": [entry]}}
        stored = await self.client.patch(
            resources.path(resources.PODS, namespace, name, "status"), patch, STRATEGIC_PATCH
        )
        self._pods.observe(stored)
        await self.events.record(pod, "Warning", "FailedScheduling", why)


def _waits(pod: JsonObject) -> bool:
    spec = objects.spec(pod)
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName") in (None, "", NAME)
        and not spec.get("schedulingGates")
        and not objects.is_deleting(pod)
        and not objects.is_finished_pod(pod)
    )


def _occupies(pod: JsonObject) -> bool:
    return bool(objects.spec(pod).get("nodeName")) and not objects.is_finished_pod(pod)


def _order(pod: JsonObject) -> tuple[int, str, str, str]:
    created = str(objects.metadata(pod).get("creationTimestamp") or "")
    return (-int(objects.spec(pod).get("priority") or 0), created, *objects.key(pod))


def _relevant(node: JsonObject) -> tuple[object, ...]:
    """What of a node can change a decision; heartbeats cannot."""
    spec, status = objects.spec(node), objects.status(node)
    return (
        spec.get("unschedulable"),
        spec.get("taints"),
        objects.labels(node),
        status.get("allocatable"),
        status.get("capacity"),
    )
