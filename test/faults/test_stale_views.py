"""A manager that sees the past: its watches stop between a change and the change that takes it back, or its reads are
answered from before. Nothing may be powered by what is not true any more."""

import pytest
from lab import steps

from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.runtime import MergePatch

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def test_a_claim_that_was_withdrawn_unseen_boots_nothing(scene):
    proxy = scene.watched_manager()
    looking = proxy.hold(steps.reads("nodeclaims"))
    claim = scene.pool.claim(scene.machine)
    looking.wait()
    with proxy.frozen("nodeclaims"):
        scene.pool.unclaim(claim)
        looking.let_go()
        scene.pool.until("it has looked again", lambda: sum(map(steps.reads("nodeclaims"), proxy.asked)) >= 2)
    scene.until_at_rest()
    assert scene.commands == []
    assert scene.pool.jobs() == []


def test_a_claim_that_was_replaced_unseen_by_one_of_the_same_name_boots_once_for_the_new_one(scene):
    proxy = scene.watched_manager()
    looking = proxy.hold(steps.reads("nodeclaims"))
    claim = scene.pool.claim(scene.machine)
    looking.wait()
    with proxy.frozen("nodeclaims"):
        scene.pool.unclaim(claim)
        again = scene.pool.claim(scene.machine)
        looking.let_go()
        scene.pool.until("it has looked again", lambda: sum(map(steps.reads("nodeclaims"), proxy.asked)) >= 2)
        assert scene.pool.jobs() == []
    assert (again.name, again.uid != claim.uid) == (claim.name, True)
    scene.until_phase(again, "ready")
    assert scene.commands == ["on"]


@pytest.mark.parametrize("unseen", ["nodereclaims", "nodeclaims", "nodes", "slots"])
def test_what_happens_unseen_before_a_boot_is_seen_by_the_second_read(scene, unseen):
    """The veto, a newer claim, a hand at the machine, the slot's end: each while only its own watch is silent."""
    proxy = scene.watched_manager()
    made = proxy.hold(steps.creates_job("startup"), answered=True)
    claim = scene.pool.claim(scene.machine)
    made.wait()
    scene.pool.until("a later second", lambda: scene.pool.is_older_than_a_second(claim))
    with proxy.frozen(unseen):
        match unseen:
            case "nodereclaims":
                scene.reclaim()
            case "nodeclaims":
                newer = scene.pool.claim_by_hand(scene.machine, f"{scene.machine}-newer")
            case "nodes":
                scene.press_button()
                scene.pool.until("on", scene.is_ready)
            case "slots":
                scene.pool.delete_slot(scene.machine)
        made.let_go()
        if unseen != "slots":
            scene.pool.until("withdrawn", lambda: scene.pool.jobs() == [])
            assert scene.commands == []
    match unseen:
        case "nodereclaims":
            scene.until_phase(claim, "failed")
            assert scene.commands == []
            scene.give_back()
            scene.until_at_rest()
        case "nodeclaims":
            scene.until_phase(newer, "ready")
            assert scene.commands == ["on"]
        case "nodes":
            scene.until_phase(claim, "ready")
            assert scene.commands == []
        case "slots":
            scene.pool.until("the slot is gone", lambda: scene.pool.slot_or_none(scene.machine) is None)
            assert scene.world.power(scene.machine) == "off"
            assert scene.commands in ([], ["off"], ["on", "off"])


@pytest.mark.parametrize("unseen", ["nodereclaims", "nodeclaims"])
def test_what_happens_unseen_before_a_shutdown_is_seen_by_the_second_read(scene_of, quick, unseen):
    scene = scene_of(settings=quick(lock_timeout=2))
    proxy = scene.watched_manager()
    claim = scene.ready()
    made = proxy.hold(steps.creates_job("shutdown"), answered=True)
    scene.pool.until("a later second", lambda: scene.pool.is_older_than_a_second(claim))
    scene.pool.unclaim(claim)
    made.wait()
    with proxy.frozen(unseen):
        if unseen == "nodereclaims":
            scene.reclaim()
        else:
            newer = scene.pool.claim_by_hand(scene.machine, f"{scene.machine}-newer")
        made.let_go()
        scene.pool.until("withdrawn", lambda: all(job.finished for job in scene.pool.jobs()))
        assert scene.commands == ["on"]
    if unseen == "nodereclaims":
        scene.until_phase(claim, "failed")
    else:
        scene.until_phase(newer, "ready")
        assert not scene.pool.node(scene.node).spec.unschedulable
    assert scene.commands == ["on"]
    assert scene.world.power(scene.machine) == "up"


def test_a_machine_that_nobody_wants_is_left_on_for_a_claim_that_came_unseen(scene_of, quick):
    scene = scene_of(settings=quick(never_used_wait=0.1, lock_timeout=2), on=True)
    scene.pool.until("on", scene.is_ready)
    proxy = scene.proxy()
    made = proxy.hold(steps.creates_job("shutdown"), answered=True)
    scene.manager(proxy)
    made.wait()
    with proxy.frozen("nodeclaims"):
        claim = scene.pool.claim(scene.machine)
        made.let_go()
        scene.pool.until("withdrawn", lambda: scene.pool.jobs() == [])
    scene.until_phase(claim, "ready")
    assert scene.commands == []


@pytest.mark.parametrize("unseen", ["nodeclaims", "nodes"])
def test_the_gate_opens_by_its_own_reads_alone(scene, unseen):
    """The cached node is usable and the cached claim wanted; neither is true any more."""
    proxy = scene.watched_manager()
    claim = scene.pool.claim(scene.machine)
    scene.pool.until("the power-on was sent", lambda: any(job.succeeded for job in scene.pool.jobs()))
    opening = proxy.hold(steps.reads("nodes"), count=None)
    opening.wait()
    with proxy.frozen(unseen):
        if unseen == "nodeclaims":
            scene.pool.unclaim(claim)
        else:
            scene.patch_node({"spec": {"unschedulable": True}})
        before = len(proxy.asked)
        opening.let_go()
        scene.pool.until("the gate has looked", lambda: any(steps.reads("nodes")(a) for a in proxy.asked[before - 1 :]))
    if unseen == "nodeclaims":
        scene.until_at_rest()
        assert scene.commands == ["on", "off"]
    else:
        scene.pool.until("unusable", lambda: scene.says("Usable").reason == "NodeUnusable")
        assert scene.pool.phase(claim) == "booting"
        assert scene.pool.node(scene.node).spec.unschedulable
    assert scene.pool.slot(scene.machine).status.phase != "ready"


def test_the_node_object_of_a_machine_that_came_back_after_its_shutdown_is_not_deleted(scene_of, quick):
    """A running kubelet makes no node again: with its node object gone, a machine stays on and nobody knows."""
    scene = scene_of(settings=quick(off_settle=5))
    proxy = scene.watched_manager()
    deleting = proxy.hold(steps.deletes("nodes"))
    claim = scene.ready()
    scene.pool.unclaim(claim)
    deleting.wait()
    with proxy.frozen("nodes"):
        scene.press_button()
        scene.pool.until("on", scene.is_ready)
        uid = scene.pool.node(scene.node).uid
        deleting.let_go()
        scene.pool.until("the delete was answered", lambda: _answered(proxy))
        assert scene.pool.node(scene.node).uid == uid
    scene.until_at_rest()
    assert scene.commands == ["on", "off", "off"]


def test_a_boot_does_not_delete_the_old_node_of_a_machine_that_came_back_unseen(scene_of, quick):
    scene = scene_of(settings=quick(lock_timeout=2))
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    old = {"metadata": {"name": scene.node}, "status": {"conditions": [unknown]}}
    uid = scene.pool.client.create_json(CoreNode, old, None).uid
    proxy = scene.proxy()
    deleting = proxy.hold(steps.deletes("nodes"))
    claim = scene.pool.claim(scene.machine)
    scene.manager(proxy)
    deleting.wait()
    with proxy.frozen("nodes"):
        scene.press_button()
        scene.pool.until("on", scene.is_ready)
        deleting.let_go()
        scene.pool.until("the delete was answered", lambda: _answered(proxy))
    scene.until_phase(claim, "ready")
    assert scene.pool.node(scene.node).uid == uid
    assert scene.commands == []


def _answered(proxy):
    last = max(index for index, asked in enumerate(proxy.asked) if steps.deletes("nodes")(asked))
    return len(proxy.asked) > last + 3


def test_a_second_read_that_is_answered_from_the_past_costs_no_more_than_a_boot_that_is_taken_back(scene):
    """Real API servers answer such reads with the present; were one not to, the machine must end off all the same."""
    proxy = scene.watched_manager()
    made = proxy.hold(steps.creates_job("startup"), answered=True)
    claim = scene.pool.claim(scene.machine)
    made.wait()
    past = proxy.past({NodeClaim: scene.pool.namespace})
    scene.pool.unclaim(claim)
    with past.told():
        made.let_go()
        scene.pool.until("it was read", lambda: past.served)
    scene.until_at_rest()
    assert scene.commands in ([], ["on", "off"], ["off"])


def test_a_lock_is_not_taken_over_by_what_was_seen_before_it_was_renewed(scene):
    """The cached lock has run out; the slot's version says that this is not the present one."""
    proxy = scene.watched_manager()
    scene.pool.until("off is observed", lambda: scene.slot.status.phase == "off")
    scene.lock(0.6)
    taking = proxy.hold(steps.takes_lock)
    claim = scene.pool.claim(scene.machine)
    taking.wait()
    with proxy.frozen("slots"):
        scene.lock(1.5)
        taking.let_go()
        scene.pool.until("it was tried again", lambda: sum(map(steps.takes_lock, proxy.asked)) >= 2)
        assert scene.slot.metadata.annotations["homelab-autoscaler.dev/lock-owner"] == "somebody/7"
        assert scene.pool.jobs() == []
    scene.until_phase(claim, "ready")
    assert scene.commands == ["on"]


@pytest.mark.parametrize("phase", ["booting", "ready", "completed"])
def test_a_claim_that_changed_unseen_is_not_moved_by_what_was_seen_before(scene, phase):
    """Each move is bound to the version that it was decided from; the next pass decides from the present."""
    proxy = scene.watched_manager()
    moving = proxy.hold(steps.moves_to(phase))
    claim = scene.pool.claim(scene.machine)
    if phase == "completed":
        scene.until_phase(claim, "ready")
        scene.pool.unclaim(claim)
    moving.wait()
    patch = {"metadata": {"annotations": {"example.org/note": "changed"}}}
    changed = scene.pool.client.patch(NodeClaim, claim.name, scene.pool.namespace, MergePatch(patch))
    moving.let_go()
    if phase == "completed":
        scene.until_at_rest()
        assert scene.commands == ["on", "off"]
    else:
        scene.until_phase(claim, "ready")
        assert scene.commands == ["on"]
    assert sum(map(steps.moves_to(phase), proxy.asked)) >= 2
    assert changed.phase != phase
