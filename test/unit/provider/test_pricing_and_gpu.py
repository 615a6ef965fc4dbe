import pytest

from homelab_api import names
from homelab_api.v2alpha1 import Group
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.gpu import gpu_label, gpu_types
from homelab_autoscaler.provider.pricing import node_price, pod_price


def price(world, labels, hours=1.0, name="template-node-for-lab-123"):
    return node_price(world.pool.views(), name, labels, hours)


def test_a_template_costs_what_the_next_machine_costs_for_the_time(world):
    world.group()
    cheap = world.slot("cheap", pricing={"hourlyRate": "0.10"})
    world.slot("dear", pricing={"hourlyRate": "0.40"})
    labels = {names.LABEL_GROUP: "lab"}
    assert price(world, labels, hours=2) == pytest.approx(0.20)
    world.claim(cheap)
    assert price(world, labels) == pytest.approx(0.40)


def test_a_node_of_the_pool_costs_what_its_slot_costs(world):
    world.group()
    world.slot("cheap", pricing={"hourlyRate": "0.10"})
    world.slot("dear", pricing={"hourlyRate": "0.40"})
    assert price(world, {}, name="dear") == pytest.approx(0.40)


def test_a_group_without_pricing_is_left_out_and_not_free(world):
    world.group()
    world.slots(1)
    with pytest.raises(CallError) as caught:
        price(world, {names.LABEL_GROUP: "lab"})
    assert caught.value.cause is Cause.UNIMPLEMENTED


def test_a_price_of_zero_is_a_price(world):
    world.group()
    world.slot("sunny", pricing={"hourlyRate": "0"})
    assert price(world, {names.LABEL_GROUP: "lab"}) == 0


def test_a_node_of_no_group_is_named(world):
    world.group()
    with pytest.raises(CallError) as caught:
        price(world, {}, name="laptop")
    assert caught.value.cause is Cause.NOT_FOUND
    assert "laptop" in caught.value.text


def test_a_pod_costs_the_least_rate_of_the_pool_for_the_time(world):
    world.group()
    world.slot("a", pricing={"podRate": "0.02"})
    world.slot("b", pricing={"podRate": "0.01"})
    assert pod_price(world.pool.views(), 3.0) == pytest.approx(0.03)


def test_without_any_pricing_pods_have_no_price(world):
    world.group()
    world.slots(1)
    with pytest.raises(CallError) as caught:
        pod_price(world.pool.views(), 1.0)
    assert caught.value.cause is Cause.UNIMPLEMENTED


def gpu_group(name, *, gpu=True, labels=None):
    capacity = {"cpu": "8", **({"nvidia.com/gpu": "1"} if gpu else {})}
    template = {"capacity": capacity, "labels": labels or {}}
    return Group.from_json({"metadata": {"name": name}, "spec": {"template": template}})


def test_the_gpu_label_comes_from_the_templates_that_promise_one():
    groups = [
        gpu_group("a", labels={"nvidia.com/gpu.product": "RTX-3090", "disk": "ssd"}),
        gpu_group("b", labels={"nvidia.com/gpu.product": "T4"}),
        gpu_group("c", gpu=False, labels={"disk": "ssd"}),
    ]
    assert gpu_label(groups) == "nvidia.com/gpu.product"
    assert gpu_types(groups) == ["RTX-3090", "T4"]


def test_a_label_that_nodes_without_a_gpu_carry_too_is_not_named():
    labels = {"accelerator": "none"}
    groups = [gpu_group("a", labels=labels), gpu_group("c", gpu=False, labels=labels)]
    assert gpu_label(groups) == ""
    assert gpu_types(groups) == []


def test_a_label_that_only_some_gpu_groups_carry_is_not_named():
    assert gpu_label([gpu_group("a", labels={"gpu": "x"}), gpu_group("b")]) == ""


def test_without_a_gpu_in_any_template_there_is_no_label():
    assert gpu_label([gpu_group("a", gpu=False, labels={"gpu": "x"})]) == ""
    assert gpu_label([]) == ""
