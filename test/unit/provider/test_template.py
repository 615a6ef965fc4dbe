from decimal import Decimal

import pytest

from homelab_api import names
from homelab_api.v2alpha1 import Group
from homelab_autoscaler.provider.template import quantity, template_node


def group(**spec):
    spec.setdefault("nodeReadinessTaints", [])
    return Group.from_json({"metadata": {"name": "lab", "namespace": "pool"}, "spec": spec})


def amounts(resources):
    return {name: value.string for name, value in resources.items()}


def test_the_groups_template_is_what_is_promised():
    node = template_node(
        group(template={"capacity": {"cpu": "8", "memory": "32Gi"}, "allocatable": {"cpu": "7500m", "pods": "50"}}),
        [],
        [],
    )
    assert amounts(node.status.capacity) == {"cpu": "8", "memory": "32Gi", "pods": "50"}
    assert amounts(node.status.allocatable) == {"cpu": "7500m", "memory": "32Gi", "pods": "50"}


def test_without_a_template_the_least_of_the_slots_capacities_is_promised(slot_of):
    slots = [
        slot_of("a", capacity={"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"}),
        slot_of("b", capacity={"cpu": "4500m", "memory": "32G"}),
    ]
    node = template_node(group(), slots, [])
    assert amounts(node.status.allocatable) == {"cpu": "4500m", "memory": "16Gi", "pods": "110"}


def test_slots_without_a_capacity_do_not_lower_the_promise(slot_of):
    node = template_node(group(), [slot_of("a"), slot_of("b", capacity={"cpu": "8", "memory": "16Gi"})], [])
    assert amounts(node.status.allocatable)["cpu"] == "8"


def test_without_any_promise_the_smallest_registered_node_is_the_template(world):
    slot = world.slot("a")
    node = world.node("a", capacity={"cpu": "4", "memory": "8Gi"}, allocatable={"cpu": "3900m", "pods": "60"})
    template = template_node(group(), [slot], [node])
    assert amounts(template.status.allocatable) == {"cpu": "3900m", "memory": "8Gi", "pods": "60"}


def test_with_nothing_known_the_template_is_valid_and_offers_nothing():
    node = template_node(group(), [], [])
    assert amounts(node.status.allocatable) == {"cpu": "0", "memory": "0", "pods": "110"}
    assert node.SerializeToString()


def test_pods_are_always_allocatable(slot_of):
    node = template_node(group(), [slot_of("a", capacity={"cpu": "4", "memory": "8Gi"})], [])
    assert node.status.allocatable["pods"].string == "110"


def test_os_architecture_group_and_declared_labels_are_carried(slot_of):
    slots = [
        slot_of("a", nodeLabels={"disk": "ssd", "rack": "1"}),
        slot_of("b", nodeLabels={"disk": "ssd", "rack": "2"}),
    ]
    node = template_node(group(nodeLabels={"tier": "lab"}), slots, [])
    labels = dict(node.metadata.labels)
    assert labels["kubernetes.io/os"] == "linux"
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels[names.LABEL_GROUP] == "lab"
    assert labels["tier"] == "lab"
    assert labels["disk"] == "ssd"
    assert "rack" not in labels


def test_the_groups_template_can_say_another_architecture():
    node = template_node(group(template={"labels": {"kubernetes.io/arch": "arm64"}}), [], [])
    assert node.metadata.labels["kubernetes.io/arch"] == "arm64"
    assert node.status.nodeInfo.architecture == "arm64"


def test_the_architecture_of_registered_nodes_is_learnt(world):
    slot = world.slot("a")
    node = world.node("a", labels={"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"})
    assert template_node(group(), [slot], [node]).metadata.labels["kubernetes.io/arch"] == "arm64"


def taints_of(node):
    return {(taint.key, taint.value, taint.effect) for taint in node.spec.taints}


def test_taints_that_stay_are_carried_and_those_that_pass_are_not(slot_of):
    passing = [
        {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"},
        {"key": names.TAINT_TO_BE_DELETED, "effect": "NoSchedule"},
        {"key": names.TAINT_DRAINING, "effect": "NoSchedule"},
    ]
    lasting = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    slot = slot_of("a", nodeTaints=[{"key": "noisy", "effect": "PreferNoSchedule"}])
    declared = group(
        nodeTaints=[lasting, *passing],
        nodeReadinessTaints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}],
    )
    assert taints_of(template_node(declared, [slot], [])) == {
        ("dedicated", "gpu", "NoSchedule"),
        ("noisy", "", "PreferNoSchedule"),
    }


def test_taints_that_the_boot_removes_are_not_carried(slot_of):
    slot = slot_of("a", taintsToRemove=[{"key": "booting", "effect": "NoSchedule"}])
    declared = group(nodeTaints=[{"key": "booting", "effect": "NoSchedule"}])
    assert taints_of(template_node(declared, [slot], [])) == set()


def test_the_template_is_ready_and_schedulable():
    node = template_node(group(), [], [])
    assert [(c.type, c.status) for c in node.status.conditions] == [("Ready", "True")]
    assert not node.spec.unschedulable


def test_a_quantity_that_would_not_decode_is_left_out_instead_of_spoiling_the_template():
    node = template_node(group(template={"capacity": {"cpu": "16 cores", "memory": "8Gi", "x/y": ""}}), [], [])
    assert amounts(node.status.allocatable) == {"cpu": "0", "memory": "8Gi", "pods": "110"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16", "16"),
        ("3900m", "3.9"),
        ("64Gi", str(64 * 1024**3)),
        ("1.5Ki", "1536"),
        ("2e3", "2000"),
        ("5E", "5e18"),
        ("1Ei", str(1024**6)),
        ("100k", "100000"),
        ("7n", "7e-9"),
        ("12u", "12e-6"),
        ("+2", "2"),
        (".5", "0.5"),
    ],
)
def test_a_quantity_is_the_number_it_stands_for(text, number):
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "16 cores", "Gi", "1.2.3", "4GiB", "1e", "ten"])
def test_a_text_that_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)
