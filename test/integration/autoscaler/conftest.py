"""A day with the small autoscaler: it speaks real gRPC with mTLS to a provider over a memory store.

Machines, kubelets, scheduler and the operator's controllers are a few lines of simulation on virtual time, so that a
test can make any of them late, silent or broken.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.claim.testing import MemoryStore
from homelab_autoscaler.provider.testing import serve
from homelab_autoscaler.runtime.errors import NotFoundError
from homelab_autoscaler.runtime.patch import MergePatch
from homelab_autoscaler.runtime.testing import FakeClock
from homelab_autoscaler.sandbox.autoscaler.cloud import Cloud
from homelab_autoscaler.sandbox.autoscaler.generation import Generation
from homelab_autoscaler.sandbox.autoscaler.loop import Autoscaler
from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions, Times
from homelab_autoscaler.sandbox.scheduling.fit import choose, state_of


class MemoryCluster:
    """Nodes from the store, pods from a dictionary."""

    def __init__(self, store, clock):
        self.store = store
        self.clock = clock
        self.pods_by_name = {}
        self.blocked = set()

    def nodes(self):
        return [node.to_json() for node in self.store.all(CoreNode)]

    def pods(self):
        return list(self.pods_by_name.values())

    def change_node(self, node, taints, *, unschedulable):
        spec = {"taints": taints or None}
        if unschedulable is not None:
            spec["unschedulable"] = unschedulable
        try:
            self.store.patch(CoreNode, node["metadata"]["name"], None, MergePatch({"spec": spec}))
        except NotFoundError:
            return False
        return True

    def evict(self, pod):
        name = pod["metadata"]["name"]
        if name in self.blocked:
            return False
        self.pods_by_name.pop(name, None)
        return True


class Day:
    """The pool, the machines, the pods and the autoscaler."""

    def __init__(self, store, clock, served, channel, options):
        self.store = store
        self.clock = clock
        self.served = served
        self.cluster = MemoryCluster(store, clock)
        self.options = options
        self.channel = channel
        self.boot_time = 60.0
        self.off_time = 30.0
        self.broken = set()
        self.mute = set()
        self.not_ready = set()
        self.provider_ids = {}
        self.delete_nodes = True
        self._numbers = itertools.count()
        self._booted_at = {}
        self._off_at = {}
        self.restart_autoscaler()

    def restart_autoscaler(self, **changes):
        """A new process: everything it remembered is gone."""
        if changes:
            self.options = replace(self.options, **changes)
        self.cloud = Cloud(self.channel, self.options)
        self.autoscaler = Autoscaler(self.cluster, self.cloud, self.clock, self.options)

    # --- declaring ----------------------------------------------------------------------------------------------

    def group(self, name="lab", slots=0, **spec):
        spec.setdefault("nodeReadinessTaints", [])
        spec.setdefault("template", {"capacity": {"cpu": "4", "memory": "8Gi"}})
        self.store.put(Group.from_json({"metadata": {"name": name, "namespace": "pool"}, "spec": spec}))
        for number in range(slots):
            self.slot(f"{name}-{number}", name)

    def slot(self, name, group="lab", **spec):
        body = {
            "metadata": {"name": name, "namespace": "pool", "labels": {names.LABEL_GROUP: group}},
            "spec": {
                "kubernetesNodeName": name,
                "startupPodSpec": {"image": "wol"},
                "shutdownPodSpec": {"image": "ssh"},
                **spec,
            },
        }
        return self.store.put(Node.from_json(body))

    def pod(self, cpu="3", *, name=None, owner=True, **spec):
        name = name or f"pod-{next(self._numbers)}"
        self.cluster.pods_by_name[name] = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "creationTimestamp": format_time(self.clock.now()),
                "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
                if owner
                else [],
            },
            "spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}], **spec},
            "status": {"phase": "Pending"},
        }
        return name

    def node(self, name, *, ready="True", provider_id="", taints=(), labels=None, cpu="4", created=None):
        stamp = created or self.clock.now()
        body = {
            "metadata": {"name": name, "creationTimestamp": stamp, "labels": labels or {}},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {
                "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": stamp}],
            },
        }
        return self.store.put(CoreNode.from_json(body))

    # --- the simulated rest of the world ------------------------------------------------------------------------

    def work(self):
        """The operator and the machines, as far as time has come."""
        now = self.clock.monotonic()
        for claim in self.store.all(NodeClaim):
            if claim.marked:
                self._go_down(claim, now)
            elif claim.phase == "failed" and claim.committed:
                self._reverse(claim, now)
            elif claim.phase == "pending":
                self._booted_at[claim.uid] = now + self.boot_time
                boot = {"status": {"phase": "booting", "startedAt": format_time(self.clock.now())}}
                self.store.change(claim, {"metadata": {"finalizers": [names.FINALIZER_MACHINE]}, **boot})
            elif claim.phase == "booting" and now >= self._booted_at[claim.uid]:
                self._come_up(claim)

    def _come_up(self, claim):
        slot = claim.slot_name
        if slot in self.broken:
            self.store.change(claim, {"status": {"phase": "failed", "reason": "StartupJobFailed"}})
            self._digest(claim, "failed")
        elif slot not in self.mute:
            provider_id = self.provider_ids.get(slot, placeholder_id(claim))
            ready = "False" if slot in self.not_ready else "True"
            if not any(node.name == slot for node in self.store.all(CoreNode)):
                self.node(slot, provider_id=provider_id, ready=ready, labels={names.LABEL_GROUP: claim.spec.group})
            if slot not in self.not_ready:
                self.store.change(claim, {"status": {"phase": "ready", "nodeName": slot}})

    def _reverse(self, claim, now):
        """The shutdown of a boot that failed: until it is over, the slot is not free."""
        if now >= self._off_at.setdefault(claim.uid, now + self.off_time):
            self.store.change(claim, {"metadata": {"finalizers": None}})

    def _digest(self, claim, phase):
        last = {"name": claim.name, "uid": claim.uid, "phase": phase, "finishedAt": format_time(self.clock.now())}
        slot = self.store.get(Node, claim.slot_name, "pool")
        self.store.change(slot, {"status": {"lastClaim": last}})

    def _go_down(self, claim, now):
        if now < self._off_at.setdefault(claim.uid, now + self.off_time):
            return
        for node in self.store.all(CoreNode):
            if node.name == claim.slot_name and self.delete_nodes:
                self.store.erase(node)
                for name, pod in list(self.cluster.pods_by_name.items()):
                    if pod["spec"].get("nodeName") == node.name:
                        del self.cluster.pods_by_name[name]
        self._digest(claim, "completed")
        self.store.erase(claim)

    def schedule(self):
        """Bind pods that fit; tell the others so."""
        pods = self.cluster.pods()
        for pod in pods:
            if pod["spec"].get("nodeName"):
                continue
            states = []
            for node in self.cluster.nodes():
                own = [other for other in pods if other["spec"].get("nodeName") == node["metadata"]["name"]]
                ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
                if ready:
                    states.append(state_of(node, own))
            state, _why = choose(pod, states)
            if state is None:
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                pod["status"]["conditions"] = [condition]
            else:
                pod["spec"]["nodeName"] = state.node["metadata"]["name"]
                pod["status"] = {"phase": "Running"}

    def tick(self, seconds=None, loops=1):
        """Let time pass, the world react, and the autoscaler loop."""
        for _ in range(loops):
            self.clock.step(seconds if seconds is not None else self.options.times.scan_interval)
            self.work()
            self.schedule()
            self.autoscaler.loop_once()

    def until(self, condition, *, loops=400):
        """Tick until the condition holds; fails if it never does."""
        for _ in range(loops):
            if condition():
                return
            self.tick()
        raise AssertionError(f"it never happened; journal: {[(e.kind, e.about, e.text) for e in self.journal()[-20:]]}")

    # --- looking ------------------------------------------------------------------------------------------------

    def claims(self):
        return self.store.all(NodeClaim)

    def wanted(self):
        return sorted(claim.slot_name for claim in self.claims() if claim.wants_machine)

    def ready_nodes(self):
        return sorted(node.name for node in self.store.all(CoreNode))

    def journal(self, kind=None):
        return [entry for entry in self.autoscaler.memory.journal if kind in {None, entry.kind}]

    def calls(self, method=None):
        return [call for call in self.cloud.calls if method in {None, call.method}]

    def running(self):
        return sorted(name for name, pod in self.cluster.pods_by_name.items() if pod["status"]["phase"] == "Running")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def options():
    times = Times(
        scan_interval=20.0,
        scale_down_unneeded_time=200.0,
        scale_down_delay_after_add=200.0,
        scale_down_unready_time=400.0,
    )
    return AutoscalerOptions(times=times)


@pytest.fixture(params=list(Generation), ids=lambda generation: generation.value)
def every_generation(request):
    return request.param


@pytest.fixture
def day(clock, options):
    store = MemoryStore(clock)
    with serve(store, clock=clock) as served, served.channel() as channel:
        yield Day(store, clock, served, channel, options)
