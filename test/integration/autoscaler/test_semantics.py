"""Contract section 4: what the autoscaler concludes from sizes, ids, states and time."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.sandbox.autoscaler.generation import Generation

NEW = [Generation.V1_35, Generation.V1_36]


@pytest.fixture
def running(day):
    """One machine up with a pod on it."""
    day.group(slots=3)
    day.pod("3")
    day.until(day.running)
    return day


# --- 4.1 sizes ----------------------------------------------------------------------------------------------------


def test_4_1_machines_on_their_way_are_counted_so_pods_do_not_ask_twice(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=3)
    day.pod()
    day.boot_time = 300.0
    day.tick(loops=20)
    assert len(day.wanted()) == 1
    assert [entry.text for entry in day.journal("ScaledUp")] == ["+1"]


def test_4_1_a_registered_node_that_is_not_ready_yet_still_is_on_its_way(day):
    day.group(slots=3)
    day.pod()
    day.not_ready.add("lab-0")
    day.tick(loops=20)
    assert len(day.wanted()) == 1


def test_4_1_the_target_never_follows_power_or_readiness(running):
    node = running.store.get(CoreNode, "lab-0")
    running.store.change(node, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    running.tick(loops=5)
    assert running.cloud.target_size("lab") == 1


def test_4_1_max_size_is_the_guard_after_a_restart_forgot_what_is_upcoming(day):
    day.group(slots=4, maxSize=2)
    day.pod()
    day.boot_time = 600.0
    day.tick(loops=3)
    assert len(day.wanted()) == 1
    for _ in range(3):
        day.restart_autoscaler(generation=Generation.V1_36)
        day.tick(loops=3)
    assert len(day.wanted()) == 2
    assert day.journal("FailedToScaleUp") == []


# --- 4.2 ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider_id", ["", "k3s://lab-0", "azure:///subscriptions/A/lab-0"])
def test_4_2_a_node_with_any_provider_id_is_never_taken_for_unregistered(day, provider_id):
    day.group(slots=1)
    if provider_id:
        day.provider_ids["lab-0"] = provider_id
    day.pod()
    day.until(day.running)
    day.tick(60, loops=30)
    assert day.journal("UnregisteredRemoved") == []
    assert day.running()


def test_4_2_a_provider_id_that_is_set_late_takes_the_placeholders_place(day):
    day.group(slots=1)
    day.provider_ids["lab-0"] = "k3s://lab-0"
    day.pod()
    day.until(lambda: day.autoscaler.memory.unregistered_since)
    (placeholder,) = day.autoscaler.memory.unregistered_since
    assert placeholder.startswith("homelab://pool/lab-0/")
    day.until(day.running)
    day.tick(loops=15)
    assert [instance.id for instance in day.autoscaler.memory.instances["lab"]] == ["k3s://lab-0"]
    assert day.autoscaler.memory.unregistered_since == {}


def test_4_2_each_boot_of_a_slot_has_an_id_of_its_own(day):
    day.group(slots=1)
    seen = set()
    for _ in range(2):
        name = day.pod()
        day.until(day.running)
        (claim,) = day.claims()
        seen.add(placeholder_id(claim))
        del day.cluster.pods_by_name[name]
        day.until(lambda: not day.claims())
    assert len(seen) == 2
    assert day.journal("UnregisteredRemoved") == []


# --- 4.3 states and errors ----------------------------------------------------------------------------------------


def test_4_3_a_failed_boot_frees_the_pods_for_another_group_at_once(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group("a", slots=1, template={"capacity": {"cpu": "3", "memory": "2Gi"}})
    day.group("b", slots=1)
    day.broken.add("a-0")
    day.off_time = 600.0
    day.pod("3")
    begun = day.clock.monotonic()
    day.until(lambda: "b-0" in day.wanted())
    assert [entry.about for entry in day.journal("ScaledUp")] == ["a", "b"]
    assert day.clock.monotonic() - begun < 120


def test_4_3_one_failed_boot_of_several_shrinks_the_request_and_backs_the_group_off(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group("a", slots=3)
    day.broken.add("a-0")
    day.mute.add("a-1")
    for _ in range(3):
        day.pod()
    day.until(lambda: day.journal("ScaleUpFailed"))
    (failure,) = day.journal("ScaleUpFailed")
    assert failure.about == "a"
    assert "StartupJobFailed" in failure.text
    assert "slot a-0" in failure.text
    assert day.autoscaler.memory.backed_off("a", day.clock.monotonic())
    assert day.autoscaler.memory.requests["a"].increase == 2


def test_4_3_a_failed_boot_is_cleaned_up_once_and_not_listed_again(day):
    day.group(slots=1)
    day.broken.add("lab-0")
    day.off_time = 600.0
    day.pod()
    day.until(lambda: day.calls("NodeGroupDeleteNodes"))
    day.tick(loops=4)
    assert [call.code for call in day.calls("NodeGroupDeleteNodes")] == ["OK"]
    assert day.cloud.instances("lab") == []
    assert day.journal("CreateErrorNotCleaned") == []


def test_4_3_an_acknowledgement_lost_by_a_restart_is_repeated(day):
    day.group(slots=1)
    day.broken.add("lab-0")
    day.cloud.increase("lab", 1)
    day.work()
    day.clock.step(120)
    day.work()
    day.restart_autoscaler()
    day.tick(loops=2)
    assert day.cloud.instances("lab") == []


# --- 4.4 the provision time passes --------------------------------------------------------------------------------


def test_4_4_a_machine_that_never_registers_is_given_back_and_the_pods_try_again(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=2)
    day.mute.update({"lab-0"})
    day.pod()
    day.until(lambda: day.wanted() == ["lab-0"])
    (first,) = day.claims()
    day.until(lambda: first.uid not in {claim.uid for claim in day.claims() if claim.wants_machine})
    assert day.journal("SizeNotFixed") == []
    assert day.journal("SizeFixed") == []
    day.mute.clear()
    day.until(day.running)


def test_4_4_the_negated_increase_of_three_takes_back_only_the_one_that_is_missing(day):
    day.group(slots=3, maxSize=3)
    day.mute.add("lab-2")
    pods = [day.pod() for _ in range(3)]
    day.until(lambda: day.journal("TookBack"))
    assert [entry.text for entry in day.journal("TookBack")] == ["-3"]
    assert [slot for slot in day.wanted() if slot != "lab-2"] == ["lab-0", "lab-1"]
    assert len(day.running()) == len(pods) - 1


def test_4_4_a_size_mismatch_never_lasts_because_every_claim_is_an_instance(day):
    day.group(slots=3)
    day.mute.add("lab-1")
    for _ in range(2):
        day.pod()
    day.tick(30, loops=80)
    assert day.autoscaler.memory.mismatch_since == {}
    assert day.journal("SizeNotFixed") == []


# --- 4.6, 4.7 deletion --------------------------------------------------------------------------------------------


def test_4_6_a_deletion_that_outlasts_the_autoscalers_memory_is_asked_for_again_and_counts_once(day):
    day.group(slots=2)
    kept, gone = day.pod(), day.pod()
    day.until(lambda: len(day.running()) == 2)
    day.off_time = 3600.0
    slot = day.cluster.pods_by_name[gone]["spec"]["nodeName"]
    del day.cluster.pods_by_name[gone]
    day.until(lambda: len([call for call in day.calls("NodeGroupDeleteNodes") if slot in call.about]) >= 2)
    assert {call.code for call in day.calls("NodeGroupDeleteNodes")} == {"OK"}
    assert day.cloud.target_size("lab") == 1
    assert day.running() == [kept]


def test_4_6_min_size_is_kept(day):
    day.group(slots=2, minSize=1)
    names_of_pods = [day.pod(), day.pod()]
    day.until(lambda: len(day.running()) == 2)
    for name in names_of_pods:
        del day.cluster.pods_by_name[name]
    day.tick(60, loops=60)
    assert len(day.wanted()) == 1


def test_4_7_the_group_of_a_node_stays_until_the_node_is_gone(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=1)
    name = day.pod()
    day.until(day.running)
    del day.cluster.pods_by_name[name]
    day.until(lambda: day.journal("ScaleDownStarted"))
    while day.ready_nodes():
        node = next(n for n in day.cluster.nodes() if n["metadata"]["name"] == "lab-0")
        day.cloud._group_of.clear()
        assert day.cloud.group_of(node).id == "lab"
        day.tick()


def test_4_7_a_restart_in_the_middle_of_a_deletion_loses_nothing(running):
    day = running
    day.off_time = 300.0
    day.cluster.pods_by_name.clear()
    day.until(lambda: day.journal("NodeDeleted"))
    day.restart_autoscaler()
    day.tick()
    node = day.store.get(CoreNode, "lab-0")
    assert not [taint for taint in node.spec.taints if taint.key == names.TAINT_TO_BE_DELETED]
    assert day.cloud.target_size("lab") == 0
    day.until(lambda: not day.ready_nodes())
    assert day.claims() == []


def test_4_7_a_restart_in_the_middle_of_a_boot_loses_nothing(day):
    day.group(slots=1)
    day.pod()
    day.boot_time = 300.0
    day.tick(loops=5)
    day.restart_autoscaler()
    day.until(day.running)
    assert day.wanted() == ["lab-0"]
    assert len(day.claims()) == 1


# --- 4.8 options --------------------------------------------------------------------------------------------------


def test_4_8_without_options_of_its_own_a_group_goes_by_the_flags(day):
    day.group(slots=1)
    flags = day.options.times
    options = day.cloud.group_options("lab")
    assert (options.provision_time, options.unneeded_time) == (
        flags.max_node_provision_time,
        flags.scale_down_unneeded_time,
    )
    assert options.startup_time == flags.max_node_startup_time


def test_4_8_options_are_complete_for_every_generation(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=1, scaleDownUnneededTime="3m", maxNodeProvisionTime="25m")
    options = day.cloud.group_options("lab")
    assert (options.unneeded_time, options.provision_time) == (180, 1500)
    assert options.unready_time == day.options.times.scale_down_unready_time
    assert options.utilization_threshold == day.options.utilization_threshold


def test_4_8_a_group_with_options_boots_and_shrinks(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=1, scaleDownUnneededTime="1m")
    name = day.pod()
    day.until(day.running)
    assert day.journal("UnregisteredRemoved") == []
    del day.cluster.pods_by_name[name]
    day.until(lambda: not day.ready_nodes())


def test_4_8_zero_or_max_groups_grow_and_go_as_a_whole(day):
    day.group(slots=3, zeroOrMaxNodeScaling=True)
    day.pod()
    day.until(lambda: len(day.wanted()) == 3)
    day.broken.add("lab-1")
    day.until(lambda: any(claim.phase == "failed" for claim in day.claims()))
    day.until(lambda: not day.wanted(), loops=5)


# --- 4.9, 4.10 nodes ----------------------------------------------------------------------------------------------


def test_4_9_machines_that_went_down_never_block_the_cluster(day):
    day.group(slots=6)
    for _ in range(6):
        day.pod()
    day.until(lambda: len(day.running()) == 6)
    day.cluster.pods_by_name.clear()
    day.until(lambda: not day.ready_nodes())
    day.pod()
    day.until(day.running)
    assert not [entry for entry in day.journal("LoopEnded") if "not ready for autoscaling" in entry.text]


def test_4_9_a_machine_switched_off_by_hand_is_given_back(running):
    day = running
    stamp = format_time(day.clock.now() - timedelta(hours=1))
    node = day.store.get(CoreNode, "lab-0")
    off = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": stamp}]
    day.store.change(node, {"metadata": {"creationTimestamp": stamp}, "status": {"conditions": off}})
    day.cluster.pods_by_name.clear()
    day.until(lambda: not day.wanted())


def test_4_9_a_held_machine_is_not_counted_and_not_drained(running):
    day = running
    day.store.put(
        NodeReclaim.from_json(
            {"metadata": {"name": "lab-0", "namespace": "pool"}, "spec": {"slotRef": {"name": "lab-0"}}}
        )
    )
    (claim,) = day.claims()
    day.store.change(claim, {"status": {"phase": "failed", "reason": "EmergencyReclaim"}})
    day.cluster.pods_by_name.clear()
    day.tick(60, loops=30)
    assert day.journal("ScaleDownStarted") == []
    assert day.cloud.target_size("lab") == 0
    assert day.ready_nodes() == ["lab-0"]


def test_4_10_a_cordoned_machine_makes_pods_ask_for_another(running):
    day = running
    node = day.store.get(CoreNode, "lab-0")
    day.store.change(node, {"spec": {"unschedulable": True}})
    day.pod("3")
    day.until(lambda: len(day.running()) == 2)
    assert day.wanted() == ["lab-0", "lab-1"]


def test_a_machine_by_hand_is_protected_by_the_mark_on_its_node(day):
    day.group(slots=1)
    body = {
        "metadata": {"name": "by-hand", "namespace": "pool"},
        "spec": {"slotRef": {"name": "lab-0"}, "call": "Manual", "group": "lab"},
    }
    day.store.put(NodeClaim.from_json(body))
    day.until(day.ready_nodes)
    node = day.store.get(CoreNode, "lab-0")
    day.store.change(node, {"metadata": {"annotations": {names.ANNOTATION_SCALE_DOWN_DISABLED: "true"}}})
    day.tick(60, loops=30)
    assert day.wanted() == ["lab-0"]


def test_a_slot_moved_to_another_group_moves_with_its_claim(running):
    day = running
    day.group("other")
    slot = day.store.get(Node, "lab-0", "pool")
    day.store.change(slot, {"metadata": {"labels": {names.LABEL_GROUP: "other"}}})
    day.tick(loops=3)
    assert (day.cloud.target_size("lab"), day.cloud.target_size("other")) == (0, 1)
    assert day.journal("SizeNotFixed") == []


def test_a_group_that_is_being_deleted_stays_until_its_machines_are_gone(running):
    day = running
    group = day.store.get(Group, "lab", "pool")
    day.store.change(group, {"metadata": {"deletionTimestamp": format_time(day.clock.now())}})
    day.tick()
    assert [known.id for known in day.cloud.groups()] == ["lab"]
    day.cluster.pods_by_name.clear()
    day.until(lambda: not day.ready_nodes())
    day.tick()
    assert day.cloud.groups() == []


def test_times_scale_by_one_factor(options):
    fast = options.scaled(60)
    assert fast.times.max_node_provision_time == 15
    assert fast.call_timeout == options.call_timeout
    with pytest.raises(ValueError, match="greater than 0"):
        replace(options).scaled(0)
