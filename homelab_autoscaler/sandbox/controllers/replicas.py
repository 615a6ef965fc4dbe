"""Deployments and ReplicaSets, small: workloads that come back after a drain, for demos and for the autoscaler."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from homelab_api.meta import JsonObject, ResourceInfo
from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.objects import Key

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

REPLICA_SETS: Final = ResourceInfo("apps", "v1", "ReplicaSet", "replicasets")
DEPLOYMENTS: Final = ResourceInfo("apps", "v1", "Deployment", "deployments")
_LOOK_AGAIN: Final = 0.05
_HASH: Final = "pod-template-hash"


class ReplicaSetController(Controller[Key]):
    """Keeps `spec.replicas` pods. Not simulated: adoption of pods that nobody owns."""

    component = "replicaset-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._sets = self.informer(REPLICA_SETS)
        self._pods = self.informer(resources.PODS)
        self._sets.on_change(lambda _, new: self.queue.add(objects.key(new)) if new is not None else None)
        self._pods.on_change(lambda old, new: self._owned_changed(new or old))

    def _owned_changed(self, pod: JsonObject | None) -> None:
        owner = objects.controller_of(pod) if pod is not None else None
        if pod is not None and owner is not None and owner.get("kind") == "ReplicaSet":
            self.queue.add((objects.namespace(pod), str(owner["name"])))

    async def sync(self, key: Key) -> float | None:
        """Make or delete pods, then report."""
        found = self._sets.get(key)
        if found is None or objects.is_deleting(found):
            return None
        pods = _owned(self._pods.items(), found)
        active = [pod for pod in pods if not objects.is_finished_pod(pod) and not objects.is_deleting(pod)]
        wanted = int(objects.spec(found).get("replicas", 1))
        if wanted > len(active) and not await self.is_current(self._sets, found):
            return _LOOK_AGAIN
        for _ in range(wanted - len(active)):
            pod = await self._create(found)
            active.append(pod)
        # Those that serve least go first.
        active.sort(key=lambda pod: (objects.condition_is(pod, "Ready"), bool(objects.spec(pod).get("nodeName"))))
        for pod in active[: max(len(active) - wanted, 0)]:
            options = {"preconditions": {"uid": objects.uid(pod)}}
            await self.client.delete(resources.path(resources.PODS, *objects.key(pod)), options)
            await self.events.record(found, "Normal", "SuccessfulDelete", f"Deleted pod: {objects.name(pod)}")
        ready = sum(objects.condition_is(pod, "Ready") for pod in active)
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": objects.metadata(found).get("generation"),
        }
        await _store_status(self.client, REPLICA_SETS, found, status)
        return None

    async def _create(self, owner: JsonObject) -> JsonObject:
        namespace, name = objects.key(owner)
        template = objects.spec(owner)["template"]
        source = objects.metadata(template)
        meta = {
            "generateName": f"{name}-",
            "namespace": namespace,
            "labels": source.get("labels") or {},
            "annotations": source.get("annotations") or {},
            "ownerReferences": [_reference(owner)],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        pod = await self.client.create(resources.path(resources.PODS, namespace), body)
        self._pods.observe(pod)
        await self.events.record(owner, "Normal", "SuccessfulCreate", f"Created pod: {objects.name(pod)}")
        return pod


class DeploymentController(Controller[Key]):
    """Keeps one ReplicaSet per pod template; the newest gets all replicas, the others none once it is available.

    Not simulated: maxSurge, maxUnavailable, pausing, rollback, clean-up of old ReplicaSets.
    """

    component = "deployment-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._deployments = self.informer(DEPLOYMENTS)
        self._sets = self.informer(REPLICA_SETS)
        self._deployments.on_change(lambda _, new: self.queue.add(objects.key(new)) if new is not None else None)
        self._sets.on_change(lambda old, new: self._owned_changed(new or old))

    def _owned_changed(self, found: JsonObject | None) -> None:
        owner = objects.controller_of(found) if found is not None else None
        if found is not None and owner is not None and owner.get("kind") == "Deployment":
            self.queue.add((objects.namespace(found), str(owner["name"])))

    async def sync(self, key: Key) -> float | None:
        """Bring the ReplicaSets in line, then report."""
        found = self._deployments.get(key)
        if found is None or objects.is_deleting(found):
            return None
        wanted = int(objects.spec(found).get("replicas", 1))
        name = f"{key[1]}-{template_hash(objects.spec(found)['template'])}"
        sets = {objects.name(item): item for item in _owned(self._sets.items(), found)}
        if name not in sets and not await self.is_current(self._deployments, found):
            return _LOOK_AGAIN
        current = sets.pop(name, None) or await self._create(found, name, wanted)
        await self._scale(current, wanted)
        available = int(objects.status(current).get("availableReplicas") or 0)
        if available >= wanted:
            for old in sets.values():
                await self._scale(old, 0)
        total = sum(int(objects.status(item).get("replicas") or 0) for item in (current, *sets.values()))
        await _store_status(self.client, DEPLOYMENTS, found, self._status(found, current, total, wanted))
        return None

    def _status(self, found: JsonObject, current: JsonObject, total: int, wanted: int) -> JsonObject:
        reported = objects.status(current)
        available = int(reported.get("availableReplicas") or 0)
        enough = available >= wanted
        now = objects.stamp(self.clock.now())
        entry = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"{available} of {wanted} replicas are available.",
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        known = objects.condition(found, "Available")
        if known is not None and all(known.get(field) == entry[field] for field in ("status", "message")):
            entry = known
        return {
            "replicas": total,
            "updatedReplicas": int(reported.get("replicas") or 0),
            "readyReplicas": int(reported.get("readyReplicas") or 0),
            "availableReplicas": available,
            "unavailableReplicas": max(wanted - available, 0),
            "observedGeneration": objects.metadata(found).get("generation"),
            "conditions": objects.with_condition(list(objects.status(found).get("conditions") or []), entry),
        }

    async def _create(self, owner: JsonObject, name: str, replicas: int) -> JsonObject:
        namespace = objects.namespace(owner)
        spec = objects.spec(owner)
        label = {_HASH: name.rpartition("-")[2]}
        template = spec["template"]
        source = objects.metadata(template)
        labels = {**(source.get("labels") or {}), **label}
        selector = spec["selector"]
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [_reference(owner)],
            },
            "spec": {
                "replicas": replicas,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **label}},
                "template": {**template, "metadata": {**source, "labels": labels}},
            },
        }
        found = await self.client.create(resources.path(REPLICA_SETS, namespace), body)
        self._sets.observe(found)
        await self.events.record(
            owner, "Normal", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {replicas}"
        )
        return found

    async def _scale(self, found: JsonObject, replicas: int) -> None:
        before = int(objects.spec(found).get("replicas", 1))
        if before == replicas:
            return
        patch = {"spec": {"replicas": replicas}}
        self._sets.observe(
            await self.client.patch(resources.path(REPLICA_SETS, *objects.key(found)), patch, MERGE_PATCH)
        )


def template_hash(template: JsonObject) -> str:
    """Ten characters that are equal for equal pod templates."""
    text = json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _owned(items: list[JsonObject], owner: JsonObject) -> list[JsonObject]:
    uid = objects.uid(owner)
    return [item for item in items if (found := objects.controller_of(item)) is not None and found.get("uid") == uid]


def _reference(owner: JsonObject) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": owner["kind"],
        "name": objects.name(owner),
        "uid": objects.uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def _store_status(client: ApiClient, info: ResourceInfo, found: JsonObject, status: JsonObject) -> None:
    before = objects.status(found)
    if any(before.get(field, 0) != value for field, value in status.items()):
        version = objects.metadata(found)["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        await client.patch(resources.path(info, *objects.key(found), sub="status"), patch, MERGE_PATCH)
