import pytest

from homelab_api.v2alpha1 import Group
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.pool import Pool


def sizes(world):
    return {view.id: (view.min_size, view.target, view.max_size) for view in world.pool.views()}


def test_every_group_is_listed_with_what_it_can_really_reach(world):
    world.group("a", minSize=1, maxSize=5)
    world.group("b")
    first, *_ = world.slots(3, "a")
    world.claim(first, phase="ready")
    world.slot("held", "b")
    world.hold(world.slot("taken", "b"))
    assert sizes(world) == {"a": (1, 1, 3), "b": (0, 0, 1)}


def test_max_size_of_the_group_is_a_ceiling(world):
    world.group("a", maxSize=2)
    world.slots(3, "a")
    assert sizes(world) == {"a": (0, 0, 2)}


def test_min_size_never_contradicts_max_size(world):
    world.group("a", minSize=3)
    world.slots(1, "a")
    assert sizes(world) == {"a": (1, 0, 1)}


def test_a_claim_counts_for_the_group_that_its_slot_names_now(world):
    world.group("a")
    world.group("b")
    slot = world.slot("w1", "a")
    world.claim(slot, phase="ready")
    world.store.change(slot, {"metadata": {"labels": {"infra.homecluster.dev/group": "b"}}})
    assert {name: target for name, (_, target, _) in sizes(world).items()} == {"a": 0, "b": 1}


def test_labels_and_owners_of_claims_decide_nothing(world):
    world.group("a")
    world.group("b")
    slot = world.slot("w1", "a")
    claim = world.claim(slot)
    world.store.change(claim, {"metadata": {"labels": {"infra.homecluster.dev/group": "b"}, "ownerReferences": None}})
    assert {name: target for name, (_, target, _) in sizes(world).items()} == {"a": 1, "b": 0}


def test_a_deleted_group_stays_listed_while_it_has_instances_and_offers_nothing(world):
    group = world.group("a")
    first, _ = world.slots(2, "a")
    claim = world.claim(first, phase="ready")
    world.store.change(group, {"metadata": {"deletionTimestamp": "2026-03-04T12:00:00Z"}})
    assert sizes(world) == {"a": (0, 1, 1)}
    world.store.erase(claim)
    assert sizes(world) == {}


def test_observed_power_and_readiness_never_change_the_target(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="ready")
    assert world.target() == 1, "without any node"
    for ready in ("True", "False", "Unknown"):
        world.node("lab-0", ready=ready)
        assert world.target() == 1


def test_the_reported_phase_of_a_slot_never_changes_an_answer(world):
    world.group()
    (slot,) = world.slots(1)
    before = sizes(world)
    for phase in ("off", "pending", "booting", "ready", "draining", "reclaimed"):
        world.store.change(slot, {"status": {"phase": phase, "powerState": "on"}})
        assert sizes(world) == before


def test_ended_claims_are_not_in_the_target(world):
    world.group()
    first, second, third = world.slots(3)
    world.claim(first, phase="completed", committed=False)
    world.claim(second, phase="failed", reason="MachineGone")
    world.claim(third, phase="ready", marked=True)
    assert world.target() == 0


def test_an_empty_phase_counts_from_the_moment_the_claim_exists(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase=None)
    assert world.target() == 1
    assert len(world.instances()) == 1


def test_over_all_namespaces_ids_carry_the_namespace_and_equal_names_stay_apart(world, clock, settings):
    world.group()
    world.slots(1)
    world.store.put(Group.from_json({"metadata": {"name": "lab", "namespace": "attic"}, "spec": {}}))
    world.store.put(world.slot_of("old", "lab", namespace="attic"))
    pool = Pool(world.index, clock, settings, None)
    assert [view.id for view in pool.views()] == ["attic/lab", "pool/lab"]
    assert [slot.name for slot in pool.view("attic/lab").slots] == ["old"]


def test_an_unknown_group_is_not_found(world):
    with pytest.raises(CallError) as caught:
        world.pool.view("nowhere")
    assert caught.value.cause is Cause.NOT_FOUND


def test_the_debug_text_says_what_is_free_and_why_the_rest_is_not(world):
    world.group()
    world.slot("a", paused=True)
    world.slot("b")
    text = world.pool.view("lab").describe()
    assert text == "2 slots, 0 wanted, 1 free; not free: a: it is paused"


def test_a_change_in_one_group_leaves_the_answer_about_another_as_it_was(world):
    world.group("a")
    world.group("b")
    (slot,) = world.slots(1, "a")
    world.slots(1, "b")
    kept = world.pool.view("b")
    world.claim(slot)
    assert world.pool.view("b") is kept
    assert world.pool.view("a").target == 1


def test_a_heartbeat_costs_no_new_view(world):
    world.group()
    (slot,) = world.slots(1)
    world.claim(slot, phase="ready")
    node = world.node("lab-0", provider_id="k3s://lab-0")
    kept = world.pool.view("lab")
    beat = {"type": "Ready", "status": "True", "reason": "", "lastHeartbeatTime": "2026-03-04T12:05:00Z"}
    world.store.change(node, {"status": {"conditions": [beat]}})
    assert world.pool.view("lab") is kept


def test_two_claims_of_one_slot_are_one_machine_until_one_of_them_is_superseded(world):
    world.group("a")
    slot = world.slot("w1", "a")
    world.claim(slot, phase="booting")
    world.claim(slot, name="by-hand")
    assert sizes(world) == {"a": (0, 1, 1)}


def test_refresh_changes_nothing_but_what_time_ends_however_often_it_is_called(world):
    world.group("a")
    first, _ = world.slots(2, "a")
    world.claim(first, phase="ready")
    never = sizes(world)
    stored = [entry.to_json() for entry in world.claims().values()]
    for _ in range(600):
        world.pool.refresh()
    assert sizes(world) == never
    assert [entry.to_json() for entry in world.claims().values()] == stored
