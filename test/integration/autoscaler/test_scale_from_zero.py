"""Contract section 5: what the template must say for the first machine to be asked for."""

import pytest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions


@pytest.mark.parametrize(
    "selector",
    [
        {"kubernetes.io/os": "linux"},
        {"kubernetes.io/arch": "amd64"},
        {names.LABEL_GROUP: "lab"},
        {"disk": "ssd"},
        {"tier": "gold"},
    ],
)
def test_pods_that_select_by_label_get_a_machine(day, every_generation, selector):
    day.restart_autoscaler(generation=every_generation)
    day.group(nodeLabels={"tier": "gold"})
    day.slot("a", nodeLabels={"disk": "ssd"})
    day.pod(nodeSelector=selector)
    day.tick(loops=2)
    assert day.wanted() == ["a"]


def test_pods_that_select_a_label_that_no_machine_has_ask_for_none(day):
    day.group(slots=1)
    day.pod(nodeSelector={"zone": "moon"})
    day.tick(loops=3)
    assert day.wanted() == []
    assert day.journal("NotTriggerScaleUp")


def test_a_pod_larger_than_the_template_asks_for_no_machine(day):
    day.group(slots=1)
    day.pod("5")
    day.tick(loops=3)
    assert day.wanted() == []


def test_pods_are_packed_by_the_template(day):
    day.group(slots=3)
    for _ in range(4):
        day.pod("2")
    day.tick(loops=2)
    assert len(day.wanted()) == 2


def test_a_lasting_taint_must_be_tolerated(day):
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    day.group(slots=2, nodeTaints=[taint])
    day.pod()
    day.tick(loops=3)
    assert day.wanted() == []
    day.pod(tolerations=[{"key": "dedicated", "operator": "Exists"}])
    day.tick(loops=2)
    assert len(day.wanted()) == 1


def test_readiness_taints_do_not_keep_pods_away(day):
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    day.group(slots=1, nodeReadinessTaints=[taint], nodeTaints=[taint])
    day.pod()
    day.tick(loops=2)
    assert day.wanted() == ["lab-0"]


def test_a_machine_with_a_startup_taint_is_on_its_way_and_no_second_one_is_asked_for(day):
    key = "node.cilium.io/agent-not-ready"
    day.restart_autoscaler(startup_taints=(key,))
    day.group(slots=2)
    day.pod()
    day.until(day.wanted)
    (slot,) = day.wanted()
    day.mute.add(slot)
    day.node(slot, taints=[{"key": key, "effect": "NoExecute"}], labels={names.LABEL_GROUP: "lab"})
    day.tick(loops=5)
    assert day.wanted() == [slot]


def test_a_node_that_is_ready_but_not_yet_untainted_still_is_on_its_way(day):
    day.group(slots=2)
    day.pod()
    day.until(day.wanted)
    (slot,) = day.wanted()
    day.mute.add(slot)
    day.node(slot, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    day.tick(loops=5)
    assert day.wanted() == [slot]


def test_without_any_template_the_slots_capacity_is_used(day):
    day.group(template=None)
    day.slot("a", capacity={"cpu": "8", "memory": "16Gi"})
    day.pod("6")
    day.tick(loops=2)
    assert day.wanted() == ["a"]


def test_a_group_of_which_nothing_is_known_is_valid_and_keeps_no_other_group_from_growing(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group("unknown", slots=1, template=None)
    day.group("known", slots=1)
    day.pod()
    day.tick(loops=2)
    assert day.wanted() == ["known-0"]
    assert day.journal("TemplateFailed") == []


def test_a_gpu_group_is_asked_for_pods_with_a_gpu_and_its_nodes_count_as_ready(day):
    labels = {"nvidia.com/gpu.product": "T4"}
    template = {"capacity": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}, "labels": labels}
    day.group("plain", slots=1)
    day.group("gpu", slots=1, template=template)
    assert day.cloud.gpu_label() == "nvidia.com/gpu.product"
    assert day.cloud.gpu_types() == ["T4"]
    containers = [{"resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}]
    day.pod(containers=containers)
    day.tick(loops=2)
    assert day.wanted() == ["gpu-0"]


def test_a_live_node_replaces_the_template_once_it_is_stable(day):
    day.group(slots=2, template={"capacity": {"cpu": "2", "memory": "8Gi"}})
    day.pod("2")
    day.until(day.running)
    day.tick(120)
    asked = len(day.calls("NodeGroupTemplateNodeInfo"))
    day.tick(loops=3)
    assert len(day.calls("NodeGroupTemplateNodeInfo")) == asked
    assert day.store.get(CoreNode, "lab-0").status.capacity["cpu"] == "4"
    day.pod("4")  # fits only on what the live node has shown
    day.until(lambda: len(day.wanted()) == 2)


def test_min_size_is_enforced_only_when_the_autoscaler_is_told_to(day):
    day.group(slots=2, minSize=1)
    day.tick(loops=3)
    assert day.wanted() == []
    day.restart_autoscaler(enforce_min_size=True)
    day.tick()
    assert len(day.wanted()) == 1


def test_the_default_flags_are_the_documented_ones():
    options = AutoscalerOptions()
    times = options.times
    assert (times.scan_interval, times.max_node_provision_time, times.scale_down_unneeded_time) == (10, 900, 600)
    assert (options.ok_total_unready, options.max_total_unready_percentage, options.call_timeout) == (3, 45, 5)
