"""Same name, other machine; same machine, other node: kinds provider-id and node-identity."""

import pytest

from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Node, NodeClaim, SlotCondition
from homelab_autoscaler.provider.pool import NodeRef
from homelab_autoscaler.runtime import MergePatch
from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec


@pytest.mark.parametrize("adopt", [False, True])
def test_a_machine_that_ran_before_its_slot_existed_is_adopted_or_switched_off_by_the_stated_rule(cluster, adopt):
    cluster.group(adoptRunningMachines=adopt)
    cluster.machine(on=True, declare=False)
    cluster.until("it joins", lambda: cluster.node() is not None and cluster.node().condition("Ready").status == "True")
    cluster.client.create_json(Node, cluster.slot_body("m"), "lab")
    cluster.run(30)
    assert cluster.commands() == []
    cluster.run(600)
    if adopt:
        assert [(str(claim.spec.call), str(claim.phase)) for claim in cluster.claims()] == [("Adopt", "ready")]
        assert cluster.target() == 1
        assert cluster.commands() == []
    else:
        assert cluster.commands() == ["off"]
        assert cluster.power() == "off"
        assert cluster.slot().status.phase == "off"


@pytest.mark.parametrize("foreign", ["", "k3s://node-x", "::not an id::", "homelab://lab/m/", "HOMELAB://LAB/M/1"])
def test_a_node_of_nobody_answers_no_group_whatever_its_provider_id_and_pods_still_get_a_machine(cluster, foreign):
    cluster.machine()
    cluster.run(1)
    pool, _ = cluster.provider()
    assert pool.group_of(NodeRef("stranger", foreign)) is None
    assert cluster.increase()


def test_every_instance_is_named_by_its_nodes_own_id_and_finds_its_group(cluster):
    cluster.machine("a", provider_id="k3s://node-a")
    cluster.machine("b")
    cluster.ready("a")
    cluster.ready("b")
    pool, _ = cluster.provider()
    view = pool.view("pool")
    ids = sorted(instance.id for instance in view.instances)
    assert ids == sorted(cluster.node(name).spec.provider_id for name in "ab")
    assert len(set(ids)) == view.target == 2
    assert all(pool.group_of(NodeRef(one, one)) is not None for one in ids)


def test_a_machine_that_is_refused_by_the_cluster_is_told_apart_from_one_that_never_came_on(cluster):
    cluster.machine(join_refused=True)
    cluster.keep_asking(1, 1500)
    assert cluster.commands() == ["on", "off"] * 3
    failed = [claim for claim in cluster.claims() if str(claim.phase) == "failed"]
    assert all("did not register" in claim.status.message for claim in failed)
    assert cluster.condition(cluster.slot(), SlotCondition.EXHAUSTED)


def test_a_second_machine_under_the_same_name_makes_nobody_believe_that_the_first_is_off(cluster):
    cluster.machine()
    claim = cluster.ready()
    twin = MachineSpec("twin", NodeSpec("node-m"), Behaviour().changed({"boot_seconds": 1.0}), initially_on=True)
    cluster.in_loop(lambda: cluster.plane.fleet.add(twin) and None)
    cluster.run(60)
    cluster.unclaim(claim)
    cluster.run(1500)
    assert cluster.power() == "off"
    assert cluster.fresh(claim).committed, "the node is still Ready: somebody has to look"
    assert "3 shutdown Jobs" in cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN).message
    assert cluster.commands().count("off") == 3
    assert cluster.node() is not None


@pytest.mark.parametrize("kept", [False, True])
def test_a_node_left_by_an_earlier_machine_never_confuses_the_autoscaler(cluster, kept):
    cluster.group(deleteNodeObjects=not kept)
    cluster.machine()
    first = cluster.ready()
    earlier = cluster.node().spec.provider_id
    cluster.unclaim(first)
    cluster.until("gone", lambda: cluster.phase(first) == "gone")
    second = cluster.ready()
    present = cluster.node().spec.provider_id
    assert (present == earlier) is kept
    pool, scaler = cluster.provider()
    assert [instance.id for instance in pool.view("pool").instances] == [present]
    ended = scaler.delete("pool", [NodeRef("node-m", present)])
    assert [claim.uid for claim in ended] == [second.uid]
    cluster.until("gone", lambda: cluster.phase(second) == "gone")
    assert cluster.commands() == ["on", "off"] * 2


def test_the_end_of_a_superseded_claim_leaves_the_machine_of_its_successor_alone(cluster):
    cluster.machine()
    old = cluster.ready()
    cluster.run(2)
    new = cluster.claim_by_hand("by-hand")
    cluster.until("ready", lambda: cluster.phase(new) == "ready")
    assert cluster.reason(old) == "Superseded"
    cluster.unclaim(old)
    cluster.run(7200)
    assert cluster.phase(old) == "gone"
    assert cluster.phase(new) == "ready"
    assert cluster.commands() == ["on"]
    assert not cluster.node().spec.unschedulable


@pytest.mark.parametrize("what", ["scale-down", "slot"])
def test_a_node_object_goes_only_after_its_machine_is_off(cluster, what):
    """Deleting a node says that its pods are gone: a stateful one would run twice if the machine still did."""
    cluster.machine(stop_seconds=30)
    claim = cluster.ready()
    cluster.pod("db-0")
    gone = []

    def listen(change):
        if change.type == "DELETED" and change.stored.key.name == "node-m" and change.collection == "/nodes":
            gone.append(cluster.power())

    cluster.plane.server.store.listeners.append(listen)
    if what == "slot":
        cluster.client.delete(Node, "m", "lab")
    else:
        cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.run(60)
    assert gone == ["off"]


def test_a_node_that_was_deleted_and_comes_back_within_the_grace_costs_nothing(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.client.delete(CoreNode, "node-m")
    cluster.run(300)
    assert cluster.phase(claim) == "ready"
    cluster.in_loop(cluster.at("m").reboot)
    cluster.until("it registers again", lambda: cluster.node() is not None)
    cluster.run(1800)
    assert cluster.phase(claim) == "ready"
    assert cluster.slot().status.phase == "ready"
    assert cluster.commands() == ["on"]


def test_a_claim_deleted_and_made_again_under_its_name_is_another_claim(cluster):
    cluster.machine()
    first = cluster.claim_by_hand("mine")
    cluster.until("ready", lambda: cluster.phase(first) == "ready")
    cluster.client.patch(NodeClaim, "mine", "lab", MergePatch({"metadata": {"finalizers": None}}))
    cluster.client.delete(NodeClaim, "mine", "lab")
    second = cluster.claim_by_hand("mine")
    cluster.until("ready", lambda: cluster.phase(second) == "ready", within=900)
    assert cluster.commands() == ["on"]
    assert not cluster.node().spec.unschedulable
