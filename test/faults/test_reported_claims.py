"""Requests that outlived their machines, and the reverse: kinds claim-leak and finalizer-deadlock."""

import pytest
from virtual.cluster import at_once

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Call, ClaimCondition, Node, NodeClaim, SlotCondition
from homelab_autoscaler.runtime import MergePatch
from homelab_autoscaler.sandbox import resources


def test_a_deletion_that_cannot_proceed_says_why_and_pauses_between_streaks(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.script("off", "m", image_missing=True)
    cluster.unclaim(claim)
    cluster.run(2400)
    found = cluster.fresh(claim)
    assert found.marked
    assert found.committed
    said = cluster.condition(found, ClaimCondition.NEEDS_HUMAN)
    assert "3 shutdown Jobs" in said.message
    assert cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)
    assert cluster.reasons().count("ShutdownJobTimeout") == 3
    created = [write for write in cluster.writes() if write.verb == "create" and "shutdown" in write.name]
    assert len([write for write in created if write.resource.endswith("jobs")]) == 3
    cluster.scripts.scripts.clear()
    cluster.until("the next streak works", lambda: cluster.phase(claim) == "gone")
    assert cluster.power() == "off"


def test_a_claim_whose_boot_has_not_begun_vanishes_without_any_job(cluster):
    cluster.machine()
    cluster.run(1)
    cluster.kill()
    claim = cluster.claim()
    cluster.unclaim(claim, "CancelledByDecreaseTargetSize")
    assert cluster.phase(claim) == "gone"
    cluster.start()
    cluster.run(600)
    assert cluster.jobs() == []
    assert cluster.commands() == []


def test_a_claim_whose_startup_pod_never_ran_ends_although_no_machine_ever_came(cluster):
    cluster.machine()
    cluster.script("on", "m", image_missing=True)
    claim = cluster.claim()
    cluster.until("booting", lambda: cluster.phase(claim) == "booting")
    cluster.run(30)
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=600)
    assert cluster.commands() == ["off"], "what may have been switched on is switched off, once"
    assert all(job.finished for job in cluster.jobs())


@pytest.mark.parametrize("stopped", [False, True], ids=["seen", "while the operator was away"])
def test_a_ready_machine_whose_node_was_deleted_by_force_is_switched_off_after_one_boot_window(cluster, stopped):
    cluster.machine()
    claim = cluster.ready()
    if stopped:
        cluster.kill()
    cluster.client.delete(CoreNode, "node-m")
    if stopped:
        cluster.run(120)
        cluster.start()
    cluster.run(5)
    assert cluster.condition(cluster.fresh(claim), ClaimCondition.MACHINE_OBSERVED_OFF)
    assert cluster.commands() == ["on"], "no power command before the grace is over"
    cluster.run(cluster.settings.boot_budget)
    assert cluster.reason(claim) == "MachineGone"
    assert cluster.target() == 0
    cluster.until("off", lambda: cluster.power() == "off", within=600)
    assert cluster.commands() == ["on", "off"]


def test_a_finalizer_taken_off_by_hand_skips_no_power_off(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch({"metadata": {"finalizers": None}}))
    cluster.unclaim(claim)
    assert cluster.phase(claim) == "gone"
    cluster.until("off", lambda: cluster.power() == "off", within=600)
    assert cluster.commands() == ["on", "off"]


def test_a_deleted_claim_whose_machine_is_off_and_forgotten_needs_no_human(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.until("it seems off", lambda: cluster.node().condition("Ready").status == "Unknown")
    cluster.run(60)
    cluster.kill()
    cluster.unclaim(claim)
    cluster.client.delete(CoreNode, "node-m")
    cluster.start()
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=600)
    assert cluster.power() == "off"


def test_a_shutdown_script_that_says_yes_and_does_nothing_releases_no_claim(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", power_off="lie")
    cluster.unclaim(claim)
    cluster.run(200)
    found = cluster.fresh(claim)
    assert found.committed
    assert cluster.slot().status.phase == "draining"
    assert found.status.shutdown_attempts == 2, "one is over and its two minutes are, too"
    cluster.behave("m", power_off="obey")
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands().count("off") == 3


def test_without_the_operator_a_claim_is_freed_by_the_documented_annotation_once_it_runs_again(cluster):
    cluster.machine(boot_seconds=20)
    claim = cluster.ready(call=Call.MANUAL)
    cluster.behave("m", power_off="refuse")
    cluster.unclaim(claim)
    cluster.kill()
    cluster.run(300)
    assert cluster.fresh(claim).marked
    patch = {"metadata": {"annotations": {names.ANNOTATION_ABANDON: claim.uid}}}
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch(patch))
    cluster.start()
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=120)
    last = cluster.slot().status.last_claim
    assert last.reason == "Abandoned"


def test_a_slot_deleted_with_its_machine_on_goes_last(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.client.delete(Node, "m", "lab")
    cluster.run(1)
    assert cluster.slot() is not None
    cluster.until("the slot is gone", lambda: cluster.slot() is None)
    assert cluster.power() == "off"
    assert cluster.phase(claim) == "gone"
    assert cluster.commands() == ["on", "off"]


def test_deleting_the_kind_of_claims_switches_their_machines_off_before_it_goes(cluster):
    cluster.machine("a")
    cluster.machine("b")
    cluster.ready("a")
    cluster.ready("b")
    target = resources.path(resources.CRDS, name="nodeclaims.infra.homecluster.dev")
    at_once(cluster.plane.server.local().delete(target))
    cluster.until("off", lambda: cluster.power("a") == cluster.power("b") == "off")
    cluster.run(60)
    assert cluster.commands("a") == cluster.commands("b") == ["on", "off"]
