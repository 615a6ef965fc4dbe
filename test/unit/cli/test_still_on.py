"""Which machines a person should not believe to be off."""

import pytest

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.cli.snapshot import Snapshot
from homelab_autoscaler.cli.still_on import still_on

GROUP = Group.from_json({"metadata": {"name": "rack"}, "spec": {}})
KEEPS_NODES = Group.from_json({"metadata": {"name": "rack"}, "spec": {"deleteNodeObjects": False}})
DOUBTED = {"conditions": [{"type": "PowerUnknown", "status": "True"}]}


def slot(name="a", **status):
    pod = {"image": "power"}
    return Node.from_json(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"infra.homecluster.dev/group": "rack"}},
            "spec": {"kubernetesNodeName": f"node-{name}", "startupPodSpec": pod, "shutdownPodSpec": pod},
            "status": status,
        }
    )


def node(name="node-a", ready="True", **labels):
    status = {"conditions": [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown"}]}
    return CoreNode.from_json({"metadata": {"name": name, "labels": labels}, "status": status})


def claim(phase="booting", *, committed=True, **status):
    finalizers = ["infra.homecluster.dev/machine"] if committed else []
    return NodeClaim.from_json(
        {
            "metadata": {"name": "c", "uid": "uid-c", "finalizers": finalizers},
            "spec": {"slotRef": {"name": "a"}, "call": "Manual", "group": "rack"},
            "status": {"phase": phase, **status},
        }
    )


def shutdown_job(condition):
    owner = {"apiVersion": "x/v1", "kind": "NodeClaim", "name": "c", "uid": "uid-c", "controller": True}
    metadata = {"name": "j", "labels": {"type": "shutdown"}, "ownerReferences": [owner]}
    return Job.from_json({"metadata": metadata, "status": {"conditions": [{"type": condition, "status": "True"}]}})


def listed(**objects):
    found = still_on(Snapshot(**{kind: tuple(every) for kind, every in ({"groups": [GROUP]} | objects).items()}))
    return [(machine.slot, machine.node, machine.power) for machine in found]


def test_a_machine_whose_node_is_ready_is_on_whoever_wants_it():
    assert listed(slots=[slot()], nodes=[node()]) == [("a", "node-a", "on")]


def test_a_slot_without_a_node_is_off():
    assert listed(slots=[slot()]) == []
    assert listed(slots=[slot()], claims=[claim("pending", committed=False)]) == []


@pytest.mark.parametrize("phase", ["booting", "failed"])
def test_a_machine_that_was_asked_to_start_may_be_on_until_a_shutdown_proved_it_off(phase):
    doubtful = [("a", "node-a", "maybe")]
    assert listed(slots=[slot()], claims=[claim(phase)]) == doubtful
    assert listed(slots=[slot()], claims=[claim(phase)], jobs=[shutdown_job("Failed")]) == doubtful
    assert listed(slots=[slot()], claims=[claim(phase)], jobs=[shutdown_job("Complete")]) == []


def test_a_machine_whose_shutdown_was_never_proven_may_be_on():
    assert listed(slots=[slot(**DOUBTED)]) == [("a", "node-a", "maybe")]


def test_a_machine_whose_node_fell_silent_may_be_on():
    assert listed(slots=[slot()], nodes=[node(ready="Unknown")]) == [("a", "node-a", "maybe")]


def test_a_pool_that_keeps_nodes_of_machines_that_are_off_lists_only_what_went_by_itself():
    gone = slot(lastClaim={"name": "c", "uid": "u", "phase": "failed", "reason": "MachineGone"})
    silent = {"groups": [KEEPS_NODES], "nodes": [node(ready="Unknown")]}
    assert listed(slots=[slot()], **silent) == []
    assert listed(slots=[gone], **silent) == [("a", "node-a", "maybe")]


def test_the_node_that_a_claim_was_committed_to_counts_after_a_rename():
    assert listed(slots=[slot()], claims=[claim("ready", nodeName="old")], nodes=[node("old")]) == [("a", "old", "on")]


def test_a_node_of_ours_that_no_slot_names_any_more_is_listed_and_others_are_not():
    ours = {"infra.homecluster.dev/node": "a"}
    assert listed(nodes=[node(**ours), node("other")]) == [("", "node-a", "on")]
    assert listed(nodes=[node(ready="Unknown", **ours)]) == [("", "node-a", "maybe")]


def test_machines_that_surely_are_on_come_first():
    silent = node("node-a", ready="Unknown")
    assert [name for name, *_ in listed(slots=[slot("a"), slot("b")], nodes=[silent, node("node-b")])] == ["b", "a"]
