"""A pool over the memory store: the index hears of every change at once, or not at all when `deaf`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Group, NodeClaim, NodeReclaim
from homelab_autoscaler.provider.index import PoolIndex
from homelab_autoscaler.provider.pool import NodeRef, Pool
from homelab_autoscaler.provider.scale import Scaler

GROUP = "lab"


@dataclass
class World:
    store: object
    index: PoolIndex
    pool: Pool
    scaler: Scaler
    clock: object
    slot_of: object
    claim_of: object
    job_of: object
    deaf: bool = False
    missed: list = field(default_factory=list)

    def hear(self, kind, obj):
        if self.deaf:
            self.missed.append((kind, obj))
        elif kind == "DELETED":
            self.index.remove(obj)
        else:
            self.index.put(obj)

    def catch_up(self):
        """The watch delivers what it held back, in order."""
        self.deaf = False
        for kind, obj in self.missed:
            self.hear(kind, obj)
        self.missed.clear()

    def group(self, name=GROUP, **spec):
        spec.setdefault("nodeReadinessTaints", [])
        return self.store.put(Group.from_json({"metadata": {"name": name, "namespace": "pool"}, "spec": spec}))

    def slot(self, name, group=GROUP, **spec):
        return self.store.put(self.slot_of(name, group, **spec))

    def slots(self, count, group=GROUP):
        return [self.slot(f"{group}-{number}", group) for number in range(count)]

    def claim(self, slot, **how):
        return self.store.put(self.claim_of(slot, **how))

    def node(self, name, *, ready="True", provider_id="", taints=(), created=None, reason="", labels=None, **status):
        conditions = [{"type": "Ready", "status": ready, "reason": reason}]
        body = {
            "metadata": {"name": name, "creationTimestamp": created or self.clock.now(), "labels": labels or {}},
            "spec": {"providerID": provider_id, "taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
            "status": {"conditions": conditions, **status},
        }
        return self.store.put(CoreNode.from_json(body))

    def hold(self, slot):
        body = {"metadata": {"name": slot.name, "namespace": "pool"}, "spec": {"slotRef": {"name": slot.name}}}
        return self.store.put(NodeReclaim.from_json(body))

    def job(self, slot, kind, **how):
        return self.store.put(self.job_of(slot, kind, **how))

    def claims(self):
        return {claim.slot_name: claim for claim in self.store.all(NodeClaim)}

    def wanted(self):
        return sorted(claim.slot_name for claim in self.store.all(NodeClaim) if claim.wants_machine)

    def target(self, group=GROUP):
        return self.pool.view(group).target

    def instances(self, group=GROUP):
        return {instance.id: instance for instance in self.pool.view(group).instances}

    def fake(self, instance_id, reason=""):
        notes = {"k8s.io/cluster-autoscaler/fake-node-reason": reason} if reason else {}
        return NodeRef(instance_id, instance_id, notes)

    def later(self, seconds):
        return self.clock.now() + timedelta(seconds=seconds)


@pytest.fixture
def world(store, clock, settings, slot_of, claim_of, job_of):
    index = PoolIndex()
    pool = Pool(index, clock, settings, "pool")
    world = World(store, index, pool, Scaler(store, pool, clock, settings), clock, slot_of, claim_of, job_of)
    store.listeners.append(world.hear)
    return world
