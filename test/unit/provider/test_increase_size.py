import threading
from datetime import timedelta

import pytest

from homelab_api import names
from homelab_api.v2alpha1 import Call, NodeClaim
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.runtime.errors import ForbiddenError, InvalidError, TransportError, UnavailableError


def refusal(world, delta, group="lab"):
    with pytest.raises(CallError) as caught:
        world.scaler.increase(group, delta)
    return caught.value


def test_every_claim_is_created_before_the_call_is_answered_and_the_target_follows(world):
    world.group()
    world.slots(3)
    world.scaler.increase("lab", 2)
    assert len(world.wanted()) == 2
    assert world.target() == 2


def test_the_target_includes_own_claims_before_any_watch_event_arrives(world):
    world.group()
    world.slots(3)
    world.deaf = True
    world.scaler.increase("lab", 2)
    assert world.target() == 2
    assert len(world.instances()) == 2
    world.catch_up()
    assert world.target() == 2


def test_claims_carry_the_call_the_group_and_the_autoscalers_own_provision_time(world, clock):
    world.group()
    world.slots(1)
    (claim,) = world.scaler.increase("lab", 1)
    assert (claim.spec.call, claim.spec.group) == (Call.INCREASE_SIZE, "lab")
    assert claim.spec.max_node_provision_time == timedelta(minutes=15)
    assert claim.spec.deadline_at == clock.now() + timedelta(minutes=15)


def test_the_groups_own_provision_time_goes_before(world, clock):
    world.group(maxNodeProvisionTime="30m")
    world.slots(1)
    (claim,) = world.scaler.increase("lab", 1)
    assert claim.spec.deadline_at == clock.now() + timedelta(minutes=30)


@pytest.mark.parametrize("delta", [0, -1])
def test_a_delta_that_is_not_positive_is_refused(world, delta):
    world.group()
    world.slots(1)
    assert refusal(world, delta).cause is Cause.INVALID_ARGUMENT
    assert world.wanted() == []


def test_an_unknown_group_is_named_in_the_refusal(world):
    error = refusal(world, 1, "nowhere")
    assert error.cause is Cause.NOT_FOUND
    assert '"nowhere"' in error.text


def test_with_too_few_free_slots_nothing_is_done_and_the_text_says_why_each_is_not_free(world):
    world.group()
    paused, _ = world.slot("a", paused=True), world.slot("b")
    error = refusal(world, 2)
    assert error.cause is Cause.FAILED_PRECONDITION
    assert "1 of 2 slots are free" in error.text
    assert f"{paused.name}: it is paused" in error.text
    assert world.wanted() == []


def test_max_size_is_never_exceeded(world):
    world.group(maxSize=2)
    world.slots(4)
    world.scaler.increase("lab", 2)
    error = refusal(world, 1)
    assert error.cause is Cause.FAILED_PRECONDITION
    assert "maxSize is 2" in error.text
    assert len(world.wanted()) == 2


def test_a_group_that_is_being_deleted_does_not_grow(world):
    group = world.group()
    world.slots(1)
    world.store.change(group, {"metadata": {"deletionTimestamp": "2026-03-04T12:00:00Z"}})
    assert "being deleted" in refusal(world, 1).text


def test_the_cheapest_slot_goes_first_and_among_equals_the_one_that_rested_longest(world):
    world.group()
    used = {"lastClaim": {"name": "x", "uid": "x", "phase": "completed", "finishedAt": "2026-03-04T11:00:00Z"}}
    rested = {"lastClaim": {"name": "y", "uid": "y", "phase": "completed", "finishedAt": "2026-03-03T11:00:00Z"}}
    world.slot("dear", pricing={"hourlyRate": "0.50"})
    # In the order of their names the one that was used last would be the first.
    world.slot("a-used", pricing={"hourlyRate": "0.05"}, status=used)
    world.slot("b-rested", pricing={"hourlyRate": "0.05"}, status=rested)
    world.slot("c-fresh", pricing={"hourlyRate": "0.05"})
    order = [world.scaler.increase("lab", 1)[0].slot_name for _ in range(4)]
    assert order == ["c-fresh", "b-rested", "a-used", "dear"]


def make_claimed(world, slot):
    world.claim(slot, phase="ready")


def make_marked(world, slot):
    world.claim(slot, phase="ready", marked=True)


def make_held(world, slot):
    world.hold(slot)


def make_paused(world, slot):
    world.store.change(slot, {"spec": {"paused": True}})


def make_on(world, slot):
    world.node(slot.name)


def make_unready_but_alive(world, slot):
    world.node(slot.name, ready="False", reason="KubeletNotReady")


def make_busy(world, slot):
    world.job(slot, "shutdown")


def make_indebted(world, slot):
    world.claim(slot, phase="failed", reason="StartupJobTimeout")


def make_exhausted(world, slot):
    last = {"name": "x", "uid": "x", "phase": "failed", "attempt": 3, "streakAt": "2026-03-04T11:59:00Z"}
    world.store.change(slot, {"status": {"lastClaim": last}})


def make_going(world, slot):
    world.store.change(slot, {"metadata": {"deletionTimestamp": "2026-03-04T12:00:00Z"}})


def make_rivalled(world, slot):
    world.slot("twin", "other", kubernetesNodeName=slot.name)


@pytest.mark.parametrize(
    ("occupy", "why"),
    [
        (make_claimed, ""),
        (make_marked, "has it"),
        (make_held, "its owner has the machine"),
        (make_paused, "paused"),
        (make_on, "still on"),
        (make_unready_but_alive, "not gone silent"),
        (make_busy, "lifecycle Job is under way"),
        (make_indebted, "last shutdown is not proven"),
        (make_exhausted, "failed too often"),
        (make_going, "being deleted"),
        (make_rivalled, "names the same node as slot twin"),
    ],
)
def test_a_slot_that_is_not_free_is_neither_claimed_nor_counted_in_max_size(world, occupy, why):
    world.group()
    taken, _free = world.slots(2)
    occupy(world, taken)
    before = world.target()
    assert world.pool.view("lab").max_size == before + 1
    error = refusal(world, 2)
    assert error.cause is Cause.FAILED_PRECONDITION
    assert why in error.text
    assert [claim.slot_name for claim in world.scaler.increase("lab", 1)] == ["lab-1"]


def test_a_machine_whose_kubelet_has_gone_silent_is_free_though_its_node_is_still_there(world):
    world.group(deleteNodeObjects=False)
    (slot,) = world.slots(1)
    world.node(slot.name, ready="Unknown", reason="NodeStatusUnknown")
    assert [claim.slot_name for claim in world.scaler.increase("lab", 1)] == [slot.name]


def test_a_spent_streak_is_offered_again_when_its_rest_is_over(world, clock, settings):
    world.group()
    (slot,) = world.slots(1)
    make_exhausted(world, slot)
    assert world.pool.view("lab").max_size == 0
    clock.step(settings.exhausted_after)
    world.pool.refresh()
    assert world.pool.view("lab").max_size == 1
    world.scaler.increase("lab", 1)


def test_a_debt_is_paid_by_a_shutdown_job_that_succeeded(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="failed", reason="StartupJobTimeout")
    world.job(slot, "shutdown", owner=claim, done="Complete")
    assert [claim.slot_name for claim in world.scaler.increase("lab", 1)] == [slot.name]


def test_claims_are_read_from_the_server_so_a_late_watch_cannot_double_a_slot(world):
    world.group()
    (slot, _other) = world.slots(2)
    world.deaf = True
    world.claim(slot)
    assert [claim.slot_name for claim in world.scaler.increase("lab", 1)] == ["lab-1"]
    assert world.target() == 2


def test_reclaims_are_read_from_the_server_so_a_held_machine_is_never_claimed(world):
    world.group()
    (slot,) = world.slots(1)
    world.deaf = True
    world.hold(slot)
    assert "its owner has the machine" in refusal(world, 1).text


def test_a_slot_that_is_taken_in_the_middle_is_replaced_by_the_next_free_one(world):
    world.group()
    first, *_ = world.slots(3)
    world.store.faults.append(
        Fault(
            verb="create", kind=NodeClaim, meanwhile=lambda: world.claim(first, name="quick", created=world.later(-5))
        )
    )
    claims = world.scaler.increase("lab", 2)
    assert sorted(claim.slot_name for claim in claims) == ["lab-1", "lab-2"]
    assert world.target() == 3


def test_if_no_other_slot_is_free_what_was_created_is_taken_back(world):
    world.group()
    first, _ = world.slots(2)
    world.store.faults.append(
        Fault(
            verb="create", kind=NodeClaim, meanwhile=lambda: world.claim(first, name="quick", created=world.later(-5))
        )
    )
    error = refusal(world, 2)
    assert error.cause is Cause.FAILED_PRECONDITION
    assert 'already has the live claim "quick"' in error.text
    assert [claim.name for claim in world.store.all(NodeClaim)] == ["quick"]
    assert world.target() == 1


@pytest.mark.parametrize("error", [ForbiddenError("quota", status=403), InvalidError("bad", status=422)])
def test_a_refusal_by_admission_takes_everything_back_and_is_quoted(world, error):
    world.group()
    world.slots(2)
    world.store.faults.append(Fault(verb="create", kind=NodeClaim))
    world.store.faults.append(Fault(error, verb="create", kind=NodeClaim))
    refused = refusal(world, 2)
    assert error.message in refused.text
    assert world.store.all(NodeClaim) == []
    assert world.target() == 0


def test_an_api_server_that_goes_away_in_the_middle_leaves_nothing_and_is_unavailable(world):
    world.group()
    world.slots(3)
    world.store.faults.append(Fault(verb="create", kind=NodeClaim))
    world.store.faults.append(Fault(UnavailableError("down", status=503), verb="create", kind=NodeClaim))
    error = refusal(world, 3)
    assert error.cause is Cause.UNAVAILABLE
    assert '"lab"' in error.text
    assert world.store.all(NodeClaim) == []


def test_a_reply_lost_after_the_create_does_not_cost_a_second_claim(world):
    world.group()
    world.slots(3)
    world.store.faults.append(Fault(TransportError("reset"), verb="create", kind=NodeClaim, committed=True))
    world.scaler.increase("lab", 2)
    assert len(world.store.all(NodeClaim)) == 2
    assert world.target() == 2


def test_claims_that_cannot_be_read_make_the_call_unavailable_with_nothing_done(world):
    world.group()
    world.slots(1)
    world.store.faults.append(Fault(TransportError("refused"), verb="list"))
    assert refusal(world, 1).cause is Cause.UNAVAILABLE
    assert world.store.all(NodeClaim) == []


def test_a_caller_that_has_given_up_gets_nothing_so_that_its_next_call_is_not_doubled(world):
    world.group()
    world.slots(2)
    with pytest.raises(CallError) as caught:
        world.scaler.increase("lab", 2, alive=lambda: False)
    assert caught.value.cause is Cause.DEADLINE_EXCEEDED
    assert world.store.all(NodeClaim) == []
    assert world.target() == 0


def test_parallel_increases_never_exceed_the_free_slots(world):
    world.group()
    world.slots(5)
    outcomes = []

    def ask():
        try:
            outcomes.append(len(world.scaler.increase("lab", 2)))
        except CallError:
            outcomes.append(0)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == [0, 0, 2, 2]
    assert world.target() == 4


def test_a_gate_keeps_a_slot_from_being_offered_and_says_why(world, clock, settings):
    world.group()
    world.slots(1)
    closed = ["outside its window"]
    world.pool._gates = (lambda slot, now: closed[0] if closed else None,)
    assert "outside its window" in refusal(world, 1).text
    assert world.pool.view("lab").max_size == 0
    closed.clear()
    world.pool.refresh()
    assert world.pool.view("lab").max_size == 1


def test_a_failed_boot_does_not_take_the_slot_from_the_next_claim_once_it_is_off(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="failed", reason="StartupJobFailed", name="old", committed=False)
    assert names.FINALIZER_MACHINE not in claim.metadata.finalizers
    assert [claim.slot_name for claim in world.scaler.increase("lab", 1)] == [slot.name]
