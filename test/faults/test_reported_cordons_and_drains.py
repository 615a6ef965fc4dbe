"""Cordons without an owner, locks without an operation, drains without an end: kinds lock, cordon, drain-pdb."""

import pytest
from virtual.locks import lock

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Node, SlotCondition
from homelab_autoscaler.runtime import MergePatch
from homelab_autoscaler.sandbox.apiserver import Fault


def cordon(cluster):
    cluster.client.patch(CoreNode, "node-m", None, MergePatch({"spec": {"unschedulable": True}}))


def uncordon(cluster):
    cluster.client.patch(CoreNode, "node-m", None, MergePatch({"spec": {"unschedulable": None}}))


def locked(cluster):
    return {key for key in cluster.slot().metadata.annotations if "lock" in key}


@pytest.mark.parametrize("kind", ["scale-up", "scale-down"])
def test_a_lock_whose_owner_is_gone_is_taken_over_when_it_ends_and_not_before(cluster, kind):
    cluster.machine()
    cluster.run(1)
    lock(cluster, kind, 300)
    claim = cluster.claim()
    cluster.run(298)
    assert cluster.commands() == []
    assert cluster.phase(claim) == "pending"
    assert "ScaleUpDeferred" in cluster.reasons()
    cluster.until("on", lambda: cluster.commands() == ["on"], within=5)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert locked(cluster) == set()


def test_a_lock_of_the_leader_before_is_taken_over_at_once(cluster):
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-down", 300, "manager-0/0")
    cluster.claim()
    cluster.run(5)
    assert cluster.commands() == ["on"]


def test_a_shutdown_that_is_called_off_takes_its_cordon_back_before_its_lock(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    cluster.unclaim(claim)
    cluster.until("it drains", lambda: cluster.node().spec.unschedulable)
    since = cluster.plane.server.store.revision
    again = cluster.claim_by_hand("again")
    cluster.until("wanted again", lambda: not cluster.node().spec.unschedulable, within=10)
    cluster.until("ready", lambda: cluster.phase(again) == "ready")
    assert cluster.node().spec.taints == []
    assert cluster.commands() == ["on"]
    ours = [write for write in cluster.writes(since) if "homelab" in write.user and write.name in {"m", "node-m"}]
    uncordoned = next(index for index, write in enumerate(ours) if write.name == "node-m")
    unlocked = [index for index, write in enumerate(ours) if write.name == "m" and not write.subresource]
    assert uncordoned < unlocked[-1]
    assert locked(cluster) == set()


@pytest.mark.parametrize("change", ["claimed again", "still unwanted"])
def test_an_operator_that_died_after_its_cordon_knows_that_the_cordon_is_its_own(cluster, change):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    cluster.unclaim(claim)
    cluster.until("it drains", lambda: cluster.node().spec.unschedulable)
    cluster.kill()
    if change == "claimed again":
        again = cluster.claim_by_hand("again")
    cluster.run(30)
    cluster.start()
    if change == "claimed again":
        cluster.run(5)
        assert not cluster.node().spec.unschedulable
        cluster.until("ready", lambda: cluster.phase(again) == "ready")
        assert cluster.commands() == ["on"]
    else:
        cluster.until("gone", lambda: cluster.phase(claim) == "gone")
        assert cluster.commands() == ["on", "off"]


def test_a_cordon_that_an_administrator_set_during_a_boot_keeps_the_gate_shut_until_it_is_lifted(cluster):
    cluster.machine()
    claim = cluster.claim()
    cluster.until("it registers", lambda: cluster.node() is not None)
    cordon(cluster)
    cluster.run(120)
    assert cluster.phase(claim) == "booting"
    assert cluster.node().spec.unschedulable
    said = next(entry for entry in cluster.slot().status.conditions if entry.type == SlotCondition.USABLE)
    assert "cordon" in said.message
    uncordon(cluster)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=60)


def test_a_foreign_cordon_that_stays_fails_the_boot_and_is_not_lifted_by_it(cluster):
    cluster.machine()
    cluster.group(deleteNodeObjects=False)
    claim = cluster.claim()
    cluster.until("it registers", lambda: cluster.node() is not None)
    cordon(cluster)
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=300)
    assert "cordon" in cluster.fresh(claim).status.message
    cluster.until("off", lambda: cluster.power() == "off")
    cluster.run(60)
    assert cluster.node().spec.unschedulable
    assert names.ANNOTATION_CORDONED_BY not in cluster.node().metadata.annotations


@pytest.mark.parametrize("drained", [False, True])
def test_a_person_may_cordon_and_drain_a_ready_machine_and_nothing_of_ours_interferes(cluster, drained):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cordon(cluster)
    if drained:
        pod = next(entry for entry in cluster.pods() if entry.name == "app")
        cluster.client.evict(pod)
    for _ in range(10):
        cluster.operator.resync()
        cluster.run(60)
    assert cluster.node().spec.unschedulable
    assert cluster.phase(claim) == "ready"
    assert cluster.slot().status.phase == "booting"
    assert cluster.commands() == ["on"]
    uncordon(cluster)
    cluster.run(5)
    assert cluster.slot().status.phase == "ready"


def test_a_drain_that_waits_for_a_budget_says_for_which_pod(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    cluster.unclaim(claim)
    cluster.run(60)
    slot = cluster.slot()
    assert slot.status.phase == "draining"
    said = cluster.condition(slot, SlotCondition.DRAIN_BLOCKED)
    assert "lab/app" in said.message
    assert "disruption budget" in said.message
    since = cluster.plane.server.store.revision
    cluster.run(60)
    assert not [write for write in cluster.writes(since) if write.subresource == "status" and write.name == "m"]
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert not cluster.condition(cluster.slot(), SlotCondition.DRAIN_BLOCKED)


def test_a_node_object_that_is_kept_comes_back_without_our_marks(cluster):
    cluster.group(deleteNodeObjects=False)
    cluster.machine()
    first = cluster.ready()
    cluster.unclaim(first)
    cluster.until("gone", lambda: cluster.phase(first) == "gone")
    assert cluster.node().spec.unschedulable
    second = cluster.claim()
    cluster.until("booting", lambda: cluster.power() == "booting")
    cluster.run(20)
    assert cluster.phase(second) == "booting", "the old object is not the new machine"
    cluster.until("ready", lambda: cluster.phase(second) == "ready")
    node = cluster.node()
    assert not node.spec.unschedulable
    assert node.spec.taints == []
    assert names.ANNOTATION_CORDONED_BY not in node.metadata.annotations


def test_a_kubelet_that_runs_without_a_node_object_fails_one_boot_and_serves_the_next(cluster):
    cluster.machine(on=True)
    cluster.until("it joins", lambda: cluster.node() is not None)
    cluster.kill()
    cluster.client.delete(CoreNode, "node-m")
    cluster.start()
    claim = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=900)
    assert "did not register" in cluster.fresh(claim).status.message
    cluster.until("off", lambda: cluster.power() == "off", within=300)
    cluster.keep_asking(1, 300)
    assert cluster.power() == "up"
    assert [str(entry.phase) for entry in cluster.claims() if entry.live] == ["ready"]


def test_pods_of_a_dead_machine_with_a_full_budget_do_not_hold_its_claim(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.run(90)
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=300)
    assert cluster.power() == "off"


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("what", ["claim", "slot"])
def test_a_budget_that_never_allows_an_eviction_holds_a_machine_no_longer_than_the_pool_says(cluster, force, what):
    cluster.group(drain={"timeout": "3m", "force": force})
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    began = cluster.seconds
    if what == "claim":
        cluster.unclaim(claim)
    else:
        cluster.client.delete(Node, "m", "lab")
    cluster.until("the command is sent", lambda: "off" in cluster.commands())
    assert 179 <= cluster.seconds - began <= 200
    assert cluster.reasons().count("DrainForced") == 1
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands() == ["on", "off"]


def test_an_api_error_during_a_drain_is_no_drain_that_is_done(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.plane.server.faults.add(Fault(kind="error", verb="list", resource="pods", user="*manager*"))
    cluster.unclaim(claim)
    cluster.run(600)
    assert cluster.commands() == ["on"]
    assert cluster.phase(claim) == "ready"
    cluster.plane.server.faults.clear()
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands() == ["on", "off"]
    assert "DrainForced" not in cluster.reasons()
