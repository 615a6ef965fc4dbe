"""The node lifecycle controller: a silent kubelet makes its node Unknown; conditions become taints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from homelab_autoscaler.sandbox import objects, resources, taints
from homelab_autoscaler.sandbox.client import MERGE_PATCH, STRATEGIC_PATCH
from homelab_autoscaler.sandbox.controllers.controller import Controller

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

_SILENT: Final = "Kubelet stopped posting node status."
_NEVER: Final = "Kubelet never posted node status."
_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_OWN_KEYS: Final = frozenset({taints.NOT_READY, taints.UNREACHABLE, taints.UNSCHEDULABLE, *taints.PRESSURES.values()})


@dataclass
class _Health:
    """When a node was last heard of, by our own clock: the node's clock is never trusted."""

    heard: float
    lease: str
    heartbeat: str


class NodeLifecycleController(Controller[str]):
    """Works on node names.

    A kubelet is heard of when its Lease's renewTime or its Ready heartbeat *changes*; what time they show does not
    matter, so that a machine with a wrong clock is not taken for dead.
    """

    component = "node-controller"

    def __init__(
        self,
        client: ApiClient,
        clock: SandboxClock,
        informers: InformerSet,
        *,
        grace: float = 40.0,
        startup_grace: float = 60.0,
    ) -> None:
        """See Controller.

        Args:
            client: See Controller.
            clock: See Controller.
            informers: See Controller.
            grace: Seconds of silence after which a node is Unknown.
            startup_grace: The same for a node that never posted a status.
        """
        super().__init__(client, clock, informers)
        self._grace = grace
        self._startup_grace = startup_grace
        self._health: dict[str, _Health] = {}
        self._nodes = self.informer(resources.NODES)
        self._leases = self.informer(resources.LEASES)
        self._pods = self.informer(resources.PODS)
        self._nodes.on_change(self._node_changed)
        self._leases.on_change(self._lease_changed)

    def _node_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        name = objects.name(cast("JsonObject", new or old))
        if new is None:
            self._health.pop(name, None)
            return
        self._hear(name)
        self.queue.add(name)

    def _lease_changed(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and objects.namespace(new) == resources.NODE_LEASES:
            name = objects.name(new)
            health = self._health.get(name)
            self._hear(name)
            node = self._nodes.get(("", name))
            ready = objects.condition(node, "Ready") if node is not None else None
            # A renewal of a healthy node is no reason to look at it: its next look is already due.
            if health is None or ready is None or ready.get("status") == "Unknown":
                self.queue.add(name)

    def _hear(self, name: str) -> None:
        node = self._nodes.get(("", name))
        if node is None:
            return
        lease = self._leases.get((resources.NODE_LEASES, name))
        renewed = str(objects.spec(lease).get("renewTime") or "") if lease is not None else ""
        ready = objects.condition(node, "Ready")
        # Our own "Unknown" is no sign of life.
        beat = str(ready.get("lastHeartbeatTime") or "") if ready and ready.get("status") != "Unknown" else ""
        known = self._health.get(name)
        if known is None:
            self._health[name] = _Health(self.clock.monotonic(), renewed, beat)
            return
        if (renewed and renewed != known.lease) or (beat and beat != known.heartbeat):
            known.heard = self.clock.monotonic()
        known.lease = renewed or known.lease
        known.heartbeat = beat or known.heartbeat

    async def sync(self, key: str) -> float | None:
        """Condition first, then taints, then the pods' readiness."""
        node = self._nodes.get(("", key))
        if node is None:
            return None
        health = self._health.setdefault(key, _Health(self.clock.monotonic(), "", ""))
        ready = objects.condition(node, "Ready")
        grace = self._startup_grace if ready is None else self._grace
        left = health.heard + grace - self.clock.monotonic()
        if left <= 0 and (ready is None or ready.get("status") != "Unknown"):
            node = await self._mark_unknown(node, never=ready is None)
        node = await self._sync_taints(node)
        if objects.condition(node, "Ready") is not None and not objects.condition_is(node, "Ready"):
            await self._mark_pods(key)
        return left if left > 0 else None

    async def _mark_unknown(self, node: JsonObject, *, never: bool) -> JsonObject:
        now = objects.stamp(self.clock.now())
        conditions: list[JsonObject] = objects.status(node).get("conditions") or []
        reason, message = ("NodeStatusNeverUpdated", _NEVER) if never else ("NodeStatusUnknown", _SILENT)
        for kind in _CONDITIONS:
            known = next((item for item in conditions if item.get("type") == kind), None)
            beat = (known or {}).get("lastHeartbeatTime") or objects.metadata(node).get("creationTimestamp")
            entry = {
                "type": kind,
                "status": "Unknown",
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": beat,
                "lastTransitionTime": now,
            }
            conditions = objects.with_condition(conditions, entry)
        version = objects.metadata(node)["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
        target = resources.path(resources.NODES, name=objects.name(node), sub="status")
        stored = await self.client.patch(target, patch, MERGE_PATCH)
        self._nodes.observe(stored)
        await self.events.record(
            stored, "Normal", "NodeNotReady", f"Node {objects.name(node)} status is now: NodeNotReady"
        )
        return stored

    async def _sync_taints(self, node: JsonObject) -> JsonObject:
        present = taints.taints_of(node)
        wanted = wanted_taints(node, objects.stamp(self.clock.now()))
        if wanted == present:
            return node
        version = objects.metadata(node)["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted or None}}
        stored = await self.client.patch(resources.path(resources.NODES, name=objects.name(node)), patch, MERGE_PATCH)
        self._nodes.observe(stored)
        return stored

    async def _mark_pods(self, node: str) -> None:
        """Pods of a node that is not ready are not ready either: endpoints and budgets must know."""
        now = objects.stamp(self.clock.now())
        for pod in self._pods.where(lambda pod: objects.spec(pod).get("nodeName") == node):
            if not objects.condition_is(pod, "Ready") or objects.is_finished_pod(pod):
                continue
            entry = {"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastTransitionTime": now}
            namespace, name = objects.key(pod)
            patch = {"metadata": {"uid": objects.uid(pod)}, "status": {"conditions": [entry]}}
            stored = await self.client.patch(
                resources.path(resources.PODS, namespace, name, "status"), patch, STRATEGIC_PATCH
            )
            self._pods.observe(stored)


def wanted_taints(node: JsonObject, now: str) -> list[JsonObject]:
    """The taints that a node's conditions and its cordon ask for; those of others, and their order, stay.

    Without any Ready condition nothing is known, and the not-ready taint that the server gave stays as it is.
    """
    wanted: list[JsonObject] = []
    ready = objects.condition(node, "Ready")
    if ready is not None and ready.get("status") != "True":
        key = taints.UNREACHABLE if ready.get("status") == "Unknown" else taints.NOT_READY
        wanted += [{"key": key, "effect": "NoSchedule"}, {"key": key, "effect": "NoExecute"}]
    wanted += [
        {"key": key, "effect": "NoSchedule"}
        for kind, key in taints.PRESSURES.items()
        if objects.condition_is(node, kind)
    ]
    if objects.spec(node).get("unschedulable"):
        wanted.append({"key": taints.UNSCHEDULABLE, "effect": "NoSchedule"})
    present = taints.taints_of(node)
    kept: list[JsonObject] = []
    for taint in present:
        name, effect = taint.get("key"), taint.get("effect")
        ours = name in _OWN_KEYS and not (ready is None and name in (taints.NOT_READY, taints.UNREACHABLE))
        if not ours or any((item["key"], item["effect"]) == (name, effect) for item in wanted):
            kept.append(taint)
    there = {(taint.get("key"), taint.get("effect")) for taint in kept}
    return kept + [{**taint, "timeAdded": now} for taint in wanted if (taint["key"], taint["effect"]) not in there]
