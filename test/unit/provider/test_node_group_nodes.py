import pytest

from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.view import State


def only(world):
    (instance,) = world.pool.view("lab").instances
    return instance


def test_a_claim_without_a_node_answers_under_its_own_placeholder(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot)
    assert only(world).id == f"homelab://pool/lab-0/{claim.uid}"
    assert only(world).state is State.CREATING
    assert only(world).error is None


def test_the_id_is_letter_by_letter_the_nodes_provider_id_once_it_has_one(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="ready", node_name="lab-0")
    world.node("lab-0", provider_id="azure:///Sub/LAB-0")
    assert only(world).id == "azure:///Sub/LAB-0"
    assert only(world).state is State.RUNNING


def test_a_node_without_a_provider_id_leaves_the_placeholder(world):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="booting", node_name="lab-0")
    world.node("lab-0")
    assert only(world).id == placeholder_id(claim)


@pytest.mark.parametrize(
    ("phase", "marked", "state"),
    [
        ("pending", False, State.CREATING),
        ("booting", False, State.CREATING),
        ("ready", False, State.RUNNING),
        ("booting", True, State.DELETING),
        ("ready", True, State.DELETING),
    ],
)
def test_the_state_follows_the_claim(world, phase, marked, state):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase=phase, marked=marked)
    assert only(world).state is state


@pytest.mark.parametrize(
    "reason",
    [
        "StartupJobFailed",
        "StartupJobTimeout",
        "ReadinessGateTimeout",
        "DeadlineExceeded",
        "StuckTransition",
        "AttemptLimitExceeded",
        "InvalidSlot",
    ],
)
def test_a_failed_boot_is_listed_as_creating_with_its_error_and_not_counted(world, reason):
    world.group()
    (slot,) = world.slots(1)
    claim = world.claim(slot, phase="failed", reason=reason, message="the script said no")
    assert only(world).state is State.CREATING
    code, text = only(world).error
    assert code == reason
    assert all(part in text for part in ("lab-0", claim.name, reason, "the script said no"))
    assert world.target() == 0


@pytest.mark.parametrize("reason", ["Superseded", "SlotDeleted", "EmergencyReclaim", "MachineGone"])
def test_an_end_that_is_no_failed_boot_is_not_listed(world, reason):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="failed", reason=reason)
    assert world.instances() == {}


def test_a_completed_claim_is_not_listed(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="completed", reason="NodeDeleted")
    assert world.instances() == {}


def test_a_failed_boot_gives_way_to_a_live_claim_that_answers_with_the_same_id(world):
    world.group(deleteNodeObjects=False)
    (slot,) = world.slots(1)
    failed = world.claim(slot, name="old", phase="failed", reason="ReadinessGateTimeout")
    world.node("lab-0", provider_id=placeholder_id(failed))
    live = world.claim(slot, name="new", phase="booting", created=world.later(60))
    assert only(world).claim.uid == live.uid
    assert only(world).error is None


def test_a_failed_boot_and_the_slots_next_claim_are_listed_side_by_side(world):
    world.group()
    (slot,) = world.slots(1)
    failed = world.claim(slot, name="old", phase="failed", reason="StartupJobFailed")
    live = world.claim(slot, name="new", phase="booting", created=world.later(60))
    assert sorted(world.instances()) == sorted([placeholder_id(failed), placeholder_id(live)])


def test_ids_are_unique_even_if_two_slots_name_one_node(world):
    world.group()
    first = world.slot("a", kubernetesNodeName="metal")
    second = world.slot("b", kubernetesNodeName="metal")
    world.claim(first, phase="ready")
    claim = world.claim(second, phase="booting")
    world.node("metal", provider_id="k3s://metal")
    assert sorted(world.instances()) == sorted(["k3s://metal", placeholder_id(claim)])


def test_machines_that_nobody_wants_are_not_listed(world):
    world.group()
    world.slots(2)
    world.node("lab-0", provider_id="k3s://lab-0")
    assert world.instances() == {}


def test_every_claim_in_the_target_has_an_instance(world):
    world.group()
    for slot, phase in zip(world.slots(3), (None, "booting", "ready"), strict=True):
        world.claim(slot, phase=phase)
    counted = [i for i in world.instances().values() if i.state is not State.DELETING and i.error is None]
    assert len(counted) == world.target() == 3
