"""Contract section 7: public bug reports that can concern this provider, each by its number there."""

import threading

import pytest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.testing import serve
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError, fake_node
from homelab_autoscaler.sandbox.autoscaler.generation import Generation


def test_pitfall_1_options_never_carry_a_provision_time_of_zero(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group(slots=1, scaleDownUtilizationThreshold="0.7")
    assert day.cloud.group_options("lab").provision_time == day.options.times.max_node_provision_time
    day.pod()
    day.until(day.running)
    assert day.journal("UnregisteredRemoved") == []


@pytest.mark.parametrize("generation", [Generation.V1_35, Generation.V1_36])
def test_pitfall_2_no_options_are_returned_unless_a_group_sets_some(day, generation):
    day.restart_autoscaler(generation=generation)
    day.group(slots=1)
    assert day.cloud.group_options("lab").startup_time > 0
    assert {call.code for call in day.calls("NodeGroupGetOptions")} == {"UNIMPLEMENTED"}


@pytest.mark.parametrize("generation", [Generation.V1_35, Generation.V1_36])
@pytest.mark.parametrize("spec", [{}, {"scaleDownUnneededTime": "5m"}], ids=["flags", "options"])
def test_pitfall_2_options_make_newer_releases_take_a_starting_machine_for_unready_and_ask_again(day, generation, spec):
    # With options the startup time is 0 there, whatever a provider does; without them it is the flag's.
    day.restart_autoscaler(generation=generation)
    day.group(slots=3, **spec)
    day.not_ready.update({"lab-0"})
    day.pod()
    day.tick(loops=8)
    assert len(day.wanted()) == (2 if spec else 1)


@pytest.mark.parametrize("generation", [Generation.V1_33, Generation.V1_34])
def test_pitfall_3_an_older_autoscaler_survives_every_option(day, generation):
    day.restart_autoscaler(generation=generation)
    for field, value in {
        "scaleDownUnneededTime": "1m",
        "scaleDownUnreadyTime": "1m",
        "maxNodeProvisionTime": "20m",
        "zeroOrMaxNodeScaling": False,
    }.items():
        day.group(field.lower(), **{field: value})
        assert day.cloud.group_options(field.lower()).provision_time > 0


def test_pitfall_4_an_unmanaged_node_gets_a_group_message_with_an_empty_id(day):
    day.group(slots=1)
    request = pb.NodeGroupForNodeRequest(node=pb.ExternalGrpcNode(name="laptop"))
    answer = day.cloud._stub.NodeGroupForNode(request, timeout=5)
    assert answer.HasField("nodeGroup")
    assert answer.nodeGroup.id == ""


@pytest.mark.parametrize("generation", [Generation.V1_33, Generation.V1_34, Generation.V1_35])
def test_pitfall_5_a_machine_that_fails_in_the_middle_of_its_scale_down_keeps_its_group(day, generation):
    day.restart_autoscaler(generation=generation)
    day.group(slots=1)
    name = day.pod()
    day.until(day.running)
    del day.cluster.pods_by_name[name]
    day.until(lambda: day.journal("ScaleDownStarted"))
    (claim,) = day.claims()
    day.store.change(claim, {"status": {"phase": "failed", "reason": "MachineGone"}})
    day.tick(loops=3)  # would end in a CrashError
    assert day.journal("NodeDeleted")


def test_pitfall_6_an_id_is_never_reformatted(day):
    day.group(slots=1)
    day.provider_ids["lab-0"] = "azure:////Three/or/Four//slashes"
    day.pod()
    day.until(day.running)
    day.tick(loops=8)
    assert [i.id for i in day.cloud.instances("lab")] == ["azure:////Three/or/Four//slashes"]


def test_pitfall_7_only_the_machine_that_is_named_goes(day):
    day.group(slots=3)
    pods = [day.pod() for _ in range(3)]
    day.until(lambda: len(day.running()) == 3)
    slot = day.cluster.pods_by_name[pods[1]]["spec"]["nodeName"]
    del day.cluster.pods_by_name[pods[1]]
    day.until(lambda: len(day.wanted()) == 2)
    assert slot not in day.wanted()
    assert sorted(day.running()) == sorted([pods[0], pods[2]])


def test_pitfall_8_sizes_never_disagree_for_long_through_a_whole_day(day):
    day.group(slots=4)
    day.broken.add("lab-1")
    day.mute.add("lab-2")
    for _ in range(3):
        day.pod()
    day.tick(60, loops=40)
    day.cluster.pods_by_name.clear()
    day.tick(60, loops=20)
    assert day.journal("SizeFixed") == []
    assert day.journal("SizeNotFixed") == []
    assert day.cloud.target_size("lab") == 0


def test_pitfall_9_a_withdrawal_larger_than_what_is_missing_takes_no_machine_that_is_up(day):
    day.group(slots=3)
    for _ in range(2):
        day.pod()
    day.until(lambda: len(day.running()) == 2)
    day.mute.add("lab-2")
    day.cloud.increase("lab", 1)
    day.work()
    day.cloud.decrease("lab", -3)
    assert day.cloud.target_size("lab") == 2
    with pytest.raises(CallError, match="FAILED_PRECONDITION"):
        day.cloud.decrease("lab", -1)
    assert day.cloud.target_size("lab") == 2


@pytest.mark.parametrize("generation", [Generation.V1_33, Generation.V1_34, Generation.V1_35])
def test_pitfall_10_a_broken_group_does_not_hold_pods_with_machines_that_never_come(day, generation):
    day.restart_autoscaler(generation=generation)
    day.group("a", slots=1, template={"capacity": {"cpu": "3", "memory": "2Gi"}})
    day.group("b", slots=1)
    day.broken.add("a-0")
    day.off_time = 3600.0
    day.pod()
    day.until(lambda: "b-0" in day.wanted())
    day.until(day.running)


def test_pitfall_11_a_restarted_autoscaler_never_gets_more_than_max_size(day):
    day.group(slots=5, maxSize=1)
    day.pod()
    day.boot_time = 600.0
    for _ in range(4):
        day.restart_autoscaler()
        day.tick(loops=2)
    assert len(day.claims()) == 1


def test_pitfall_12_the_target_drops_in_delete_nodes_and_the_node_follows(day):
    day.group(slots=1)
    name = day.pod()
    day.until(day.running)
    del day.cluster.pods_by_name[name]
    day.until(lambda: day.journal("ScaleDownStarted"))
    assert day.cloud.target_size("lab") == 1
    day.until(lambda: day.journal("NodeDeleted"))
    assert day.cloud.target_size("lab") == 0
    day.until(lambda: not day.ready_nodes())


def test_pitfall_13_marks_of_a_dead_autoscaler_do_not_make_a_machine_in_deletion_usable_for_it(day):
    day.group(slots=2)
    day.off_time = 600.0
    name = day.pod()
    day.until(day.running)
    del day.cluster.pods_by_name[name]
    day.until(lambda: day.journal("NodeDeleted"))
    day.restart_autoscaler()
    day.tick()
    instances = day.cloud.instances("lab")
    assert [instance.deleting for instance in instances] == [True]
    assert day.cloud.target_size("lab") == 0


def test_pitfall_15_machines_that_nobody_wants_do_not_count_against_the_pool(day):
    day.group(slots=2)
    for number in range(2):
        day.node(f"lab-{number}", ready="Unknown", labels={names.LABEL_GROUP: "lab"})
    day.tick()
    assert day.autoscaler.scene.group_of_node == {}


def test_pitfall_16_every_group_always_has_a_template(day, every_generation):
    day.restart_autoscaler(generation=every_generation)
    day.group("empty", template=None)
    day.group("bad", slots=1, template={"capacity": {"cpu": "16 cores"}})
    for group in ("empty", "bad"):
        assert day.cloud.template(group)["status"]["allocatable"]["pods"] == "110"


def test_pitfall_18_the_template_carries_the_labels_that_real_nodes_will_have(day):
    day.group(nodeLabels={"tier": "gold"}, template={"labels": {"zone": "attic"}, "capacity": {"cpu": "4"}})
    day.slot("a", nodeLabels={"disk": "ssd"})
    labels = day.cloud.template("lab")["metadata"]["labels"]
    assert {"tier": "gold", "zone": "attic", "disk": "ssd", names.LABEL_GROUP: "lab"}.items() <= labels.items()


def test_pitfall_20_instances_only_exist_in_groups_that_are_listed(day):
    day.group(slots=1)
    day.cloud.increase("lab", 1)
    group = day.store.get(Group, "lab", "pool")
    day.store.change(group, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    day.cloud.refresh()
    assert [known.id for known in day.cloud.groups()] == ["lab"]
    (instance,) = day.cloud.instances("lab")
    assert day.cloud.group_of(fake_node(instance.id, "create-error")).id == "lab"


def test_pitfall_21_create_errors_are_cleaned_up_at_min_size(day):
    day.group(slots=2, minSize=2)
    day.broken.add("lab-0")
    day.cloud.increase("lab", 2)
    day.work()
    day.clock.step(120)
    day.work()
    day.tick(loops=2)
    assert day.journal("CreateErrorNotCleaned") == []
    assert all(instance.error is None for instance in day.cloud.instances("lab"))


def test_pitfall_22_intent_is_recorded_and_answered_before_any_machine_moves(day):
    day.group(slots=3)
    day.cloud.increase("lab", 3)
    assert {claim.phase for claim in day.claims()} == {"pending"}


def test_pitfall_23_repeating_a_deletion_in_parallel_lowers_the_target_once(day):
    day.group(slots=2)
    for _ in range(2):
        day.pod()
    day.until(lambda: len(day.running()) == 2)
    node = next(n for n in day.cluster.nodes() if n["metadata"]["name"] == "lab-0")
    threads = [threading.Thread(target=day.cloud.delete, args=("lab", [node])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert day.cloud.target_size("lab") == 1


def test_pitfall_24_a_machine_that_returns_is_not_cordoned(day):
    day.group(slots=1)
    for _ in range(2):
        name = day.pod()
        day.until(day.running)
        assert not day.store.get(CoreNode, "lab-0").spec.unschedulable
        del day.cluster.pods_by_name[name]
        day.until(lambda: not day.ready_nodes())


def test_pitfall_25_no_label_promises_a_gpu_that_a_ready_node_may_lack(day):
    day.group(slots=1, nodeLabels={"accelerator": "maybe"})
    assert day.cloud.gpu_label() == ""


def test_a_refused_deletion_unmarks_the_node_and_is_tried_again(day):
    day.group(slots=1)
    name = day.pod()
    day.until(day.running)
    del day.cluster.pods_by_name[name]
    day.until(lambda: day.journal("ScaleDownStarted"))
    day.store.faults.append(Fault(TransportError("refused"), verb="list", kind=NodeClaim, times=1))
    day.tick()
    (failed,) = day.journal("ScaleDownFailed")
    assert "UNAVAILABLE" in failed.text
    day.until(lambda: day.journal("NodeDeleted"))


def test_two_providers_racing_never_double_a_slot(day, clock):
    day.group(slots=4)
    with serve(day.store, clock=clock) as second, second.stub() as stub:
        outcomes = []

        def ask(client):
            try:
                client.NodeGroupIncreaseSize(pb.NodeGroupIncreaseSizeRequest(id="lab", delta=2), timeout=10)
                outcomes.append(True)
            except Exception:  # noqa: BLE001 - any refusal is a legal outcome of a race
                outcomes.append(False)

        threads = [threading.Thread(target=ask, args=(client,)) for client in (day.cloud._stub, stub)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    slots = [claim.slot_name for claim in day.claims() if claim.live]
    assert len(slots) == len(set(slots)) == 2 * sum(outcomes)
    assert any(outcomes)
    assert len(day.store.all(Node)) == 4
