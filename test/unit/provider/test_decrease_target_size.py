import pytest

from homelab_api import names
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.runtime.errors import TransportError


def refusal(world, delta):
    with pytest.raises(CallError) as caught:
        world.scaler.decrease("lab", delta)
    return caught.value


def populate(world, *phases):
    """One slot per phase; `ready` ones with a node."""
    world.group()
    claims = {}
    for number, (slot, phase) in enumerate(zip(world.slots(len(phases)), phases, strict=True)):
        claims[slot.name] = world.claim(slot, phase=phase, created=world.later(number), node_name=slot.name)
        if phase == "ready":
            world.node(slot.name, created=world.later(number + 60))
    return claims


@pytest.mark.parametrize("delta", [0, 1])
def test_a_delta_that_is_not_negative_is_refused(world, delta):
    populate(world, "pending")
    assert refusal(world, delta).cause is Cause.INVALID_ARGUMENT


def test_pending_claims_go_first_and_the_youngest_of_them(world):
    populate(world, "pending", "pending", "booting")
    world.scaler.decrease("lab", -1)
    assert world.wanted() == ["lab-0", "lab-2"]
    assert world.target() == 2


def test_boots_without_a_node_are_reversed_when_no_pending_claim_is_left(world):
    populate(world, "ready", "pending", "booting")
    world.scaler.decrease("lab", -2)
    assert world.wanted() == ["lab-0"]
    reversed_boot = world.claims()["lab-2"]
    assert reversed_boot.marked
    assert reversed_boot.metadata.annotations[names.ANNOTATION_END_REASON] == "CancelledByDecreaseTargetSize"


def test_the_negated_sum_of_a_timed_out_scale_up_releases_only_what_is_missing(world):
    # Three were asked for, two are up: the autoscaler (1.36 and later) sends -3.
    populate(world, "ready", "ready", "booting")
    world.scaler.decrease("lab", -3)
    assert world.wanted() == ["lab-0", "lab-1"]
    assert world.target() == 2


def test_with_nothing_to_release_the_call_is_refused_and_nothing_changes(world):
    populate(world, "ready", "ready")
    error = refusal(world, -1)
    assert error.cause is Cause.FAILED_PRECONDITION
    assert '"lab"' in error.text
    assert world.target() == 2


def test_a_booting_claim_whose_node_has_registered_is_never_touched(world):
    populate(world, "booting")
    world.node("lab-0", ready="False", created=world.later(60))
    assert refusal(world, -1).cause is Cause.FAILED_PRECONDITION
    assert world.target() == 1


def test_a_node_that_registers_just_now_saves_its_claim_though_no_watch_has_shown_it(world):
    populate(world, "booting")
    world.deaf = True
    world.node("lab-0", ready="False", created=world.later(60))
    assert refusal(world, -1).cause is Cause.FAILED_PRECONDITION
    assert world.target() == 1


def test_a_node_left_by_an_earlier_boot_does_not_save_a_claim(world):
    populate(world, "booting")
    world.node("lab-0", ready="Unknown", created=world.later(-3600))
    world.scaler.decrease("lab", -1)
    assert world.target() == 0


def test_a_pending_claim_on_a_machine_that_is_on_is_kept(world):
    populate(world, "pending")
    world.node("lab-0", created=world.later(-3600))
    assert refusal(world, -1).cause is Cause.FAILED_PRECONDITION


def test_a_pending_claim_whose_boot_begins_meanwhile_is_reversed_instead(world):
    claims = populate(world, "pending")
    boot = {"metadata": {"finalizers": [names.FINALIZER_MACHINE]}, "status": {"phase": "booting"}}
    world.store.faults.append(Fault(verb="patch", meanwhile=lambda: world.store.change(claims["lab-0"], boot)))
    world.scaler.decrease("lab", -1)
    assert world.claims()["lab-0"].marked
    assert world.target() == 0


def test_requests_of_people_and_schedules_are_kept_while_the_autoscaler_has_its_own(world):
    world.group()
    manual, own = world.slots(2)
    world.claim(manual, call="Manual", created=world.later(60))
    world.claim(own)
    world.scaler.decrease("lab", -2)
    assert world.wanted() == ["lab-0"]


def test_requests_of_people_go_only_if_the_autoscaler_would_stall_otherwise(world):
    world.group()
    (manual,) = world.slots(1)
    world.claim(manual, call="Manual")
    world.scaler.decrease("lab", -1)
    assert world.wanted() == []


def test_a_delete_nodes_that_follows_for_a_released_claim_is_success(world):
    claims = populate(world, "booting", "pending")
    world.scaler.decrease("lab", -2)
    world.scaler.delete("lab", [world.fake(placeholder_id(claim), "unregistered") for claim in claims.values()])
    assert world.target() == 0


def test_marked_claims_do_not_count_as_released(world):
    world.group()
    slot, other = world.slots(2)
    world.claim(slot, phase="booting", marked=True)
    world.claim(other)
    world.scaler.decrease("lab", -1)
    assert world.target() == 0
    assert refusal(world, -1).cause is Cause.FAILED_PRECONDITION


def test_a_lost_reply_does_not_release_one_more(world):
    populate(world, "pending", "pending")
    world.store.faults.append(Fault(TransportError("reset"), verb="delete", committed=True))
    world.scaler.decrease("lab", -1)
    assert len(world.store.all(NodeClaim)) == 1


def test_an_api_server_that_does_not_answer_makes_the_call_unavailable(world):
    populate(world, "pending")
    world.store.faults.append(Fault(TransportError("refused"), verb="patch", times=99))
    assert refusal(world, -1).cause is Cause.UNAVAILABLE


def test_the_lower_target_is_seen_before_any_watch_event_arrives(world):
    populate(world, "pending", "booting")
    world.deaf = True
    world.scaler.decrease("lab", -2)
    assert world.target() == 0
    world.catch_up()
    assert world.target() == 0
