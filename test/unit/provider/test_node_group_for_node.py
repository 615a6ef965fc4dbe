import pytest

from homelab_api import names
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.pool import NodeRef


def group_of(world, name, provider_id=""):
    view = world.pool.group_of(NodeRef(name, provider_id))
    return view.id if view else ""


def group_of_fake(world, instance_id, reason="unregistered"):
    view = world.pool.group_of(world.fake(instance_id, reason))
    return view.id if view else ""


@pytest.fixture
def slot(world):
    world.group()
    return world.slots(1)[0]


@pytest.mark.parametrize("phase", [None, "pending", "booting", "ready"])
def test_a_node_with_a_live_claim_belongs_to_its_group(world, slot, phase):
    world.claim(slot, phase=phase)
    world.node("lab-0")
    assert group_of(world, "lab-0") == "lab"


def test_a_node_of_nobody_belongs_to_no_group(world, slot):
    assert group_of(world, "control-plane", "k3s://control-plane") == ""


def test_a_node_that_is_being_deleted_keeps_its_group_until_it_is_gone(world, slot):
    claim = world.claim(slot, phase="ready", marked=True)
    world.node("lab-0", taints=[names.TAINT_TO_BE_DELETED])
    assert group_of(world, "lab-0") == "lab"
    world.store.erase(claim)
    assert group_of(world, "lab-0") == "lab"


def test_a_machine_that_is_on_without_a_claim_is_none_of_the_autoscalers_business(world, slot):
    world.node("lab-0")
    assert group_of(world, "lab-0") == ""


def test_a_machine_whose_claim_has_ended_is_none_of_the_autoscalers_business(world, slot):
    world.claim(slot, phase="failed", reason="ReadinessGateTimeout")
    world.node("lab-0")
    assert group_of(world, "lab-0") == ""


def test_a_held_machine_is_its_owners(world, slot):
    world.claim(slot, phase="ready")
    world.node("lab-0")
    world.hold(slot)
    assert group_of(world, "lab-0") == ""


def test_a_held_machine_that_the_autoscaler_is_deleting_keeps_its_group(world, slot):
    world.claim(slot, phase="ready")
    world.node("lab-0", taints=[names.TAINT_TO_BE_DELETED])
    world.hold(slot)
    assert group_of(world, "lab-0") == "lab"


def test_a_kept_node_object_of_a_machine_that_is_off_leaves_its_group(world):
    world.group(deleteNodeObjects=False)
    world.slots(1)
    world.node("lab-0", ready="Unknown", taints=[names.TAINT_TO_BE_DELETED])
    assert group_of(world, "lab-0") == ""


def test_the_candidate_taint_alone_does_not_make_a_machine_the_autoscalers(world, slot):
    world.node("lab-0", taints=[names.TAINT_DELETION_CANDIDATE])
    assert group_of(world, "lab-0") == ""


def test_a_slot_of_an_unknown_group_answers_no_group(world, slot):
    other = world.slot("lost", "nowhere")
    world.claim(other, phase="ready")
    assert group_of(world, "lost") == ""


@pytest.mark.parametrize("phase", [None, "booting", "ready"])
def test_an_instance_without_a_node_belongs_to_its_claims_group(world, slot, phase):
    claim = world.claim(slot, phase=phase)
    assert group_of_fake(world, placeholder_id(claim)) == "lab"


def test_a_failed_boot_belongs_to_its_group_so_that_it_can_be_cleaned_up(world, slot):
    claim = world.claim(slot, phase="failed", reason="StartupJobFailed")
    assert group_of_fake(world, placeholder_id(claim), "create-error") == "lab"


def test_a_failed_boots_instance_and_its_machine_are_told_apart(world, slot):
    claim = world.claim(slot, phase="failed", reason="ReadinessGateTimeout")
    world.node("lab-0", provider_id=placeholder_id(claim))
    assert group_of(world, "lab-0", placeholder_id(claim)) == ""
    assert group_of_fake(world, placeholder_id(claim), "create-error") == "lab"


def test_an_instance_with_a_foreign_id_is_found_by_the_node_that_has_it(world, slot):
    world.claim(slot, phase="ready")
    world.node("lab-0", provider_id="k3s://lab-0")
    assert group_of_fake(world, "k3s://lab-0", "") == "lab"


def test_an_instance_whose_claim_is_gone_still_finds_its_group(world, slot):
    claim = world.claim(slot, phase="booting")
    world.store.erase(claim)
    assert group_of_fake(world, placeholder_id(claim)) == "lab"


def test_a_foreign_id_that_was_listed_before_still_finds_its_group(world, slot):
    claim = world.claim(slot, phase="ready")
    node = world.node("lab-0", provider_id="k3s://lab-0")
    assert "k3s://lab-0" in world.instances()
    world.store.erase(claim)
    world.store.erase(node)
    assert group_of_fake(world, "k3s://lab-0") == "lab"


def test_an_instance_id_of_nobody_belongs_to_no_group(world, slot):
    assert group_of_fake(world, "k3s://laptop") == ""
    assert group_of_fake(world, "homelab://pool/unknown/uid") == ""


def test_a_name_that_merely_looks_like_a_slot_is_matched_by_node_name_only(world):
    world.group()
    slot = world.slot("slot-a", kubernetesNodeName="metal-a")
    world.claim(slot, phase="ready")
    assert group_of(world, "metal-a") == "lab"
    assert group_of(world, "slot-a") == ""


def test_an_empty_node_name_matches_nothing(world, slot):
    world.claim(slot, phase="ready")
    assert group_of(world, "", "") == ""
