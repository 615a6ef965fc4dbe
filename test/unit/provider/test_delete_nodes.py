import threading

import pytest

from homelab_api import names
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.pool import NodeRef
from homelab_autoscaler.runtime.errors import ConflictError, TransportError


def refusal(world, refs, group="lab"):
    with pytest.raises(CallError) as caught:
        world.scaler.delete(group, refs)
    return caught.value


@pytest.fixture
def three_ready(world):
    """Three machines that are up, each node with its placeholder as providerID."""
    world.group()
    claims = []
    for slot in world.slots(3):
        claim = world.claim(slot, phase="ready", node_name=slot.name)
        world.node(slot.name, provider_id=placeholder_id(claim))
        claims.append(claim)
    return claims


def node_of(claim):
    return NodeRef(claim.slot_name, placeholder_id(claim))


def test_the_claim_of_a_node_is_marked_with_the_reason_and_the_target_drops_before_the_answer(world, three_ready):
    world.scaler.delete("lab", [node_of(three_ready[1])])
    marked = world.claims()["lab-1"]
    assert marked.marked
    assert marked.metadata.annotations[names.ANNOTATION_END_REASON] == "NodeDeleted"
    assert world.target() == 2


def test_the_target_drops_before_any_watch_event_arrives(world, three_ready):
    world.deaf = True
    world.scaler.delete("lab", [node_of(three_ready[0])])
    assert world.target() == 2
    world.catch_up()
    assert world.target() == 2


def test_a_marked_claim_stays_listed_as_deleting(world, three_ready):
    world.scaler.delete("lab", [node_of(three_ready[0])])
    assert {i.slot.name: i.state.name for i in world.instances().values()} == {
        "lab-0": "DELETING",
        "lab-1": "RUNNING",
        "lab-2": "RUNNING",
    }


def test_repeating_the_call_is_success_and_lowers_the_target_once(world, three_ready):
    for _ in range(3):
        world.scaler.delete("lab", [node_of(three_ready[0])])
    assert world.target() == 2
    assert sorted(claim.slot_name for claim in world.store.all(NodeClaim) if claim.marked) == ["lab-0"]


def test_repeating_the_call_after_the_claim_is_gone_is_success(world, three_ready):
    world.scaler.delete("lab", [node_of(three_ready[0])])
    world.store.erase(world.claims()["lab-0"])
    world.scaler.delete("lab", [node_of(three_ready[0]), world.fake(placeholder_id(three_ready[0]), "unregistered")])
    assert world.target() == 2


def test_one_node_named_twice_in_a_call_counts_once(world, three_ready):
    world.scaler.delete("lab", [node_of(three_ready[0]), world.fake(placeholder_id(three_ready[0]))])
    assert world.target() == 2


def test_parallel_calls_for_one_group_each_lower_the_target_by_their_own_node(world, three_ready):
    threads = [
        threading.Thread(target=world.scaler.delete, args=("lab", [node_of(claim)]))
        for claim in three_ready
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert world.target() == 0
    assert all(claim.marked for claim in world.store.all(NodeClaim))


def test_a_list_with_one_node_of_another_group_changes_nothing(world, three_ready):
    world.group("other")
    foreign = world.slot("elsewhere", "other")
    world.claim(foreign, phase="ready")
    error = refusal(world, [node_of(three_ready[0]), NodeRef("elsewhere", "")])
    assert error.cause is Cause.INVALID_ARGUMENT
    assert '"elsewhere"' in error.text
    assert '"other"' in error.text
    assert world.target() == 3


def test_a_node_that_was_never_ours_is_an_error_and_changes_nothing(world, three_ready):
    error = refusal(world, [node_of(three_ready[0]), NodeRef("laptop", "k3s://laptop")])
    assert error.cause is Cause.NOT_FOUND
    assert "laptop" in error.text
    assert world.target() == 3


def test_an_instance_id_that_was_never_ours_is_an_error(world, three_ready):
    assert refusal(world, [world.fake("k3s://laptop", "unregistered")]).cause is Cause.NOT_FOUND


def test_an_unregistered_instance_is_found_by_its_placeholder(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="booting")
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "unregistered")])
    assert world.claims()["lab-0"].marked
    assert world.target() == 0


def test_a_pending_claim_disappears_at_once(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot)
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "unregistered")])
    assert world.store.all(NodeClaim) == []
    assert world.instances() == {}


def test_a_foreign_provider_id_finds_the_claim_that_answers_with_it(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="ready", node_name="lab-0")
    world.node("lab-0", provider_id="k3s://lab-0")
    world.scaler.delete("lab", [NodeRef("lab-0", "k3s://lab-0")])
    assert world.target() == 0


def test_zero_or_max_groups_name_healthy_machines_by_id_alone(world):
    world.group()
    slots = world.slots(2)
    for slot in slots:
        world.claim(slot, phase="ready", node_name=slot.name)
        world.node(slot.name, provider_id=f"k3s://{slot.name}")
    world.scaler.delete("lab", [world.fake(f"k3s://{slot.name}") for slot in slots])
    assert world.target() == 0


def test_a_node_name_alone_finds_the_claim_when_there_is_no_provider_id(world):
    world.group()
    slot = world.slot("a", kubernetesNodeName="metal-a")
    world.claim(slot, phase="ready", node_name="metal-a")
    world.node("metal-a")
    world.scaler.delete("lab", [NodeRef("metal-a", "")])
    assert world.target() == 0


def test_the_node_name_recorded_by_the_claim_goes_before_the_slots_configured_one(world):
    world.group()
    slot = world.slot("a", kubernetesNodeName="new-name")
    world.claim(slot, phase="ready", node_name="old-name")
    world.scaler.delete("lab", [NodeRef("old-name", "")])
    assert world.target() == 0


def test_a_failed_boot_is_acknowledged_and_not_listed_again(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="failed", reason="StartupJobFailed")
    assert len(world.instances()) == 1
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "create-error")])
    assert world.instances() == {}
    assert not world.claims()["lab-0"].marked
    assert names.ANNOTATION_ACKNOWLEDGED in world.claims()["lab-0"].metadata.annotations
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "create-error")])


def test_acknowledging_a_failed_boot_does_not_touch_the_slots_next_claim(world):
    world.group()
    (slot,) = world.slots(1)
    failed = world.claim(slot, name="old", phase="failed", reason="StartupJobFailed", committed=False)
    world.claim(slot, name="new", phase="booting", created=world.later(60))
    world.scaler.delete("lab", [world.fake(placeholder_id(failed), "create-error")])
    assert world.target() == 1


def test_a_repeated_delete_for_a_collected_claim_does_not_touch_the_slots_next_claim(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, name="new", phase="booting")
    world.node("lab-0", ready="Unknown", provider_id="homelab://pool/lab-0/gone", created=world.later(-3600))
    world.scaler.delete("lab", [NodeRef("lab-0", "homelab://pool/lab-0/gone")])
    world.scaler.delete("lab", [world.fake("homelab://pool/lab-0/gone", "create-error")])
    assert world.target() == 1


def test_a_kept_node_object_with_an_old_provider_id_still_ends_the_present_claim(world):
    world.group(deleteNodeObjects=False)
    (slot,) = world.slots(1)
    world.claim(slot, name="new", phase="ready")
    world.node("lab-0", provider_id="homelab://pool/lab-0/first", created=world.later(-3600))
    world.scaler.delete("lab", [NodeRef("lab-0", "homelab://pool/lab-0/first")])
    assert world.target() == 0


def test_a_late_request_for_an_id_that_was_listed_before_is_success(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="ready", node_name="lab-0")
    node = world.node("lab-0", provider_id="k3s://lab-0")
    assert list(world.instances()) == ["k3s://lab-0"]
    world.store.erase(claim)
    world.store.erase(node)
    world.claim(slot, name="new")
    world.scaler.delete("lab", [world.fake("k3s://lab-0", "unregistered")])
    assert world.target() == 1


def test_a_held_machine_is_left_to_its_owner(world, three_ready):
    world.hold(world.store.all(type(world.slot_of("x")))[0])
    world.scaler.delete("lab", [node_of(three_ready[0])])
    assert not world.claims()["lab-0"].marked


@pytest.mark.parametrize("ended", [None, "failed", "completed"])
def test_a_machine_without_a_claim_is_success_with_nothing_done(world, ended):
    world.group()
    (slot,) = world.slots(1)
    if ended:
        world.claim(slot, phase=ended, reason="StartupJobFailed" if ended == "failed" else "NodeDeleted")
    world.node("lab-0", taints=[names.TAINT_TO_BE_DELETED])
    writes = list(world.store.writes)
    world.scaler.delete("lab", [NodeRef("lab-0", "")])
    assert world.store.writes == writes


def test_registered_nodes_never_go_below_min_size_even_by_parallel_calls(world, three_ready):
    world.group(minSize=2)
    outcomes = []

    def give_back(claim):
        try:
            world.scaler.delete("lab", [node_of(claim)])
            outcomes.append("ok")
        except CallError as error:
            outcomes.append(error.cause.name)

    threads = [threading.Thread(target=give_back, args=(claim,)) for claim in three_ready]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["FAILED_PRECONDITION", "FAILED_PRECONDITION", "ok"]
    assert world.target() == 2


def test_a_list_that_would_undercut_min_size_marks_none_of_it(world, three_ready):
    world.group(minSize=2)
    error = refusal(world, [node_of(claim) for claim in three_ready[:2]])
    assert "minSize is 2" in error.text
    assert world.target() == 3


def test_requests_that_never_got_a_node_may_go_below_min_size(world):
    world.group(minSize=1)
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="booting")
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "create-error")])
    assert world.target() == 0


def test_a_failed_boot_may_be_acknowledged_at_min_size(world, three_ready):
    world.group(minSize=3)
    slot = world.slot("broken")
    failed = world.claim(slot, name="failed", phase="failed", reason="StartupJobTimeout")
    world.scaler.delete("lab", [world.fake(placeholder_id(failed), "create-error")])
    assert placeholder_id(failed) not in world.instances()


def test_status_writes_in_between_do_not_fail_the_call(world, three_ready):
    world.store.faults.append(
        Fault(verb="patch", meanwhile=lambda: world.store.change(three_ready[0], {"status": {"message": "busy"}}))
    )
    world.scaler.delete("lab", [node_of(three_ready[0])])
    assert world.target() == 2


@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_a_reply_lost_after_the_write_is_success(world, three_ready, verb):
    world.store.faults.append(Fault(TransportError("reset"), verb=verb, committed=True))
    world.scaler.delete("lab", [node_of(three_ready[0])])
    assert world.target() == 2


def test_one_claim_that_cannot_be_marked_does_not_keep_the_others_and_is_named(world, three_ready):
    world.store.faults.append(Fault(ConflictError("modified", status=409), verb="patch", times=3))
    error = refusal(world, [node_of(claim) for claim in three_ready])
    assert error.cause is Cause.ABORTED
    assert three_ready[0].name in error.text
    assert world.target() == 1
    world.scaler.delete("lab", [node_of(claim) for claim in three_ready])
    assert world.target() == 0


def test_claims_that_cannot_be_read_make_the_call_unavailable(world, three_ready):
    world.store.faults.append(Fault(TransportError("refused"), verb="list"))
    assert refusal(world, [node_of(three_ready[0])]).cause is Cause.UNAVAILABLE
    assert world.target() == 3


def test_a_claim_by_hand_is_ended_when_the_autoscaler_names_its_node(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="ready", call="Manual", node_name="lab-0")
    world.node("lab-0")
    world.scaler.delete("lab", [NodeRef("lab-0", "")])
    assert world.target() == 0
