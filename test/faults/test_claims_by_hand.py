"""Claims that people write themselves: what nobody fills in for them, and what follows from it. On virtual time."""

from datetime import timedelta

import pytest
from virtual.locks import lock
from virtual.rest import at_rest, commands_of_jobs

from homelab_api import names
from homelab_api.core import Job
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Call, Node, NodeClaim
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults


def set_deadline(cluster, claim, after):
    at = format_time(cluster.clock.now() + timedelta(seconds=after))
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch({"spec": {"deadlineAt": at}}))


def spec_of(cluster, claim):
    return cluster.raw(names.GROUP, "nodeclaims", claim.name)["spec"]


# --- times ----------------------------------------------------------------------------------------------------------


def test_a_claim_by_hand_gets_no_time_of_asking_and_no_deadline_that_its_author_did_not_write(cluster):
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-up", 86400)
    claim = cluster.claim_by_hand("mine")
    cluster.run(3600)
    assert not {"requestedAt", "deadlineAt", "maxNodeProvisionTime"} & set(spec_of(cluster, claim))
    assert cluster.phase(claim) == "pending", "without a deadline it waits for ever"
    assert cluster.condition(cluster.fresh(claim), "NoDeadline").reason == "NoDeadline"
    assert cluster.fresh(claim).status.attempt == 1


def test_a_claim_whose_boot_never_begins_ends_at_its_deadline_and_leaves_the_slot_free(cluster):
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-up", 800)
    claim = cluster.claim()
    cluster.run(cluster.settings.boot_budget - 1)
    assert cluster.phase(claim) == "pending"
    cluster.run(2)
    found = cluster.fresh(claim)
    assert (found.phase, found.status.reason, found.committed) == ("failed", "DeadlineExceeded", False)
    assert "not ready 12m10s after it was requested" in found.status.message
    cluster.run(5)
    assert (cluster.slot().status.phase, cluster.target()) == ("off", 0)
    assert (cluster.jobs(), cluster.commands()) == ([], [])
    again = cluster.claim()
    cluster.until("numbered", lambda: cluster.fresh(again).status.attempt)
    assert cluster.fresh(again).status.attempt == 2


def test_what_is_said_of_a_missing_deadline_is_taken_back_when_there_is_one_or_no_boot_to_limit(cluster):
    cluster.machine("a")
    cluster.machine()
    cluster.run(1)
    ready = cluster.claim_by_hand("ready", "a")
    lock(cluster, "scale-up", 86400)
    claim = cluster.claim_by_hand("mine")
    cluster.run(60)
    assert cluster.condition(cluster.fresh(claim), "NoDeadline")
    set_deadline(cluster, claim, 600)
    cluster.run(1)
    assert cluster.fresh(claim).condition("NoDeadline").reason == "DeadlineSet"
    assert cluster.fresh(claim).status.observed_generation == cluster.fresh(claim).metadata.generation == 2
    cluster.run(600)
    assert cluster.reason(claim) == "DeadlineExceeded"
    assert cluster.phase(ready) == "ready"
    cluster.run(1)
    assert cluster.fresh(ready).condition("NoDeadline").reason == "BootOver"


def test_a_change_of_what_may_change_in_a_claim_is_seen_and_the_status_says_so(cluster):
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    cluster.run(60)
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch({"spec": {"ttlSecondsAfterFinished": 600}}))
    cluster.run(1)
    found = cluster.fresh(claim)
    assert found.status.observed_generation == found.metadata.generation == 3
    cluster.client.patch(Node, "m", "lab", MergePatch({"spec": {"paused": True}}))
    cluster.run(1)
    assert cluster.slot().status.observed_generation == cluster.slot().metadata.generation == 2


def test_a_boot_that_nothing_else_limits_is_ended_as_stuck(cluster):
    """No deadline, its Job taken away before it sent anything, and a node that never comes."""
    cluster.machine()
    cluster.script("on", "m", sends=0, hangs=True)
    claim = cluster.claim_by_hand("mine")
    cluster.until("running", lambda: any(job.status.start_time for job in cluster.jobs()))
    started = cluster.fresh(claim).status.started_at
    for job in cluster.jobs():
        cluster.client.delete(Job, job.name, "lab", propagation="Background")
    cluster.until("ended", lambda: cluster.phase(claim) == "failed", step=5)
    assert cluster.reason(claim) == "StuckTransition"
    lasted = cluster.fresh(claim).status.finished_at - started
    assert lasted >= timedelta(seconds=cluster.settings.boot_budget + cluster.settings.lock_timeout)
    cluster.until("free", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["off"]
    assert cluster.slot().status.last_claim.attempt == 1


def test_the_grace_of_a_ready_machine_that_went_off_is_one_boot_window_of_its_own_claim(cluster):
    cluster.machine()
    claim = cluster.ready(max_node_provision_time=timedelta(minutes=25))
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.until("seen", lambda: cluster.condition(cluster.fresh(claim), "MachineObservedOff"))
    cluster.run(25 * 60 - 2)
    assert cluster.phase(claim) == "ready"
    cluster.run(4)
    assert cluster.reason(claim) == "MachineGone"


# --- a machine that is on already -----------------------------------------------------------------------------------


def test_a_claim_for_a_machine_that_is_on_waits_one_lock_window_and_then_commits_before_it_is_ready(cluster):
    """A power-off that nobody sees any more may be under way."""
    cluster.machine(on=True, boot_seconds=10)
    cluster.group(adoptRunningMachines=False)
    cluster.until("on", lambda: cluster.slot().status.power_state == "on")
    seen = []
    claim = cluster.claim_by_hand("mine")
    cluster.plane.server.writes.subscribe(
        lambda write: (
            write.name == "mine" and seen.append((write.after.get("status", {}).get("phase"), finalized(write)))
        )
    )
    cluster.run(cluster.settings.lock_timeout - 3)
    assert (cluster.phase(claim), cluster.fresh(claim).committed) == ("pending", False)
    assert cluster.slot().status.phase == "booting"
    cluster.run(5)
    assert (cluster.phase(claim), cluster.reason(claim)) == ("ready", "MachineAdopted")
    assert seen.index((None, True)) < seen.index(("ready", True)), "pending with the finalizer, and no Job"
    assert (cluster.jobs(), commands_of_jobs(cluster)) == ([], [])


def finalized(write):
    return names.FINALIZER_MACHINE in write.after["metadata"].get("finalizers", [])


def test_the_managers_own_adoption_does_not_wait(cluster):
    cluster.group(adoptRunningMachines=True)
    cluster.machine(on=True, boot_seconds=10)
    took = cluster.until("ready", lambda: [claim for claim in cluster.claims() if claim.phase == "ready"])
    assert took < 60
    (claim,) = cluster.claims()
    assert (claim.spec.call, claim.status.reason) == (Call.ADOPT, "MachineAdopted")
    assert commands_of_jobs(cluster) == []


@pytest.mark.parametrize("latest", ["slot", "group", "operator"])
def test_a_machine_of_a_slot_that_was_never_used_stays_on_for_a_minute_from_the_latest_of_three(cluster, latest):
    cluster.machine(on=True, boot_seconds=10, group="late" if latest == "group" else "pool", declare=latest != "slot")
    cluster.until("on", lambda: cluster.node() is not None and cluster.node().condition("Ready").status == "True")
    match latest:
        case "slot":
            cluster.run(300)
            cluster.client.create_json(Node, cluster.slot_body("m"), "lab")
        case "group":
            cluster.run(300)
            cluster.group("late")
        case "operator":
            cluster.kill()
            cluster.run(300)
            cluster.start()
    cluster.run(58)
    assert not cluster.node().spec.unschedulable
    cluster.run(5)
    assert cluster.node().spec.unschedulable
    cluster.until("off", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["off"]


# --- without a slot -------------------------------------------------------------------------------------------------


def test_a_claim_for_a_slot_that_is_not_there_fails_and_says_what_to_do(cluster):
    claim = cluster.claim_by_hand("lost", "nowhere")
    cluster.run(5)
    found = cluster.fresh(claim)
    assert (found.phase, found.status.reason) == ("failed", "InvalidSlot")
    assert '"nowhere" is no slot in namespace "lab"' in found.status.message


def test_a_committed_claim_whose_slot_is_gone_waits_for_a_human_and_goes_when_given_up(cluster):
    cluster.machine()
    claim = cluster.ready(ttl_seconds_after_finished=120)
    cluster.kill()
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"finalizers": None}}))
    cluster.client.delete(Node, "m", "lab")
    cluster.client.patch(
        NodeClaim, claim.name, "lab", MergePatch({"metadata": {"ownerReferences": None}})
    )  # as by hand
    cluster.start()
    cluster.run(30)
    found = cluster.fresh(claim)
    assert (found.phase, found.status.reason, found.committed) == ("failed", "SlotDeleted", True)
    said = cluster.condition(found, "NeedsHuman")
    assert said.reason == "SlotMissing"
    assert claim.uid in said.message
    note = {"metadata": {"annotations": {names.ANNOTATION_ABANDON: claim.uid}}}
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch(note))
    cluster.until("let go", lambda: not cluster.fresh(claim).committed, within=60)
    cluster.until("collected", lambda: cluster.phase(claim) == "gone", within=300)


def test_an_ended_claim_without_a_slot_that_something_else_keeps_costs_no_passes(cluster):
    body = cluster.claim_by_hand("lost", "nowhere", ttlSecondsAfterFinished=120)
    keep = MergePatch({"metadata": {"finalizers": ["example.org/keep"]}})
    cluster.client.patch(NodeClaim, "lost", "lab", keep)
    cluster.run(130)
    assert cluster.fresh(body).marked
    passes = cluster.operator.passes["claim"]
    cluster.run(60)
    assert cluster.operator.passes["claim"] - passes < 5


def test_a_paused_slot_is_offered_to_nobody_and_goes_on_as_it_was(cluster):
    cluster.machine("serves", slot={"paused": True}, boot_seconds=10)
    cluster.machine("rests", slot={"paused": True}, boot_seconds=10)
    claim = cluster.claim_by_hand("mine", "serves")
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert not cluster.increase()
    cluster.client.patch(Node, "rests", "lab", MergePatch({"spec": {"paused": False}}))
    cluster.run(1)
    assert cluster.increase()
    cluster.client.delete(NodeClaim, "mine", "lab")
    cluster.until("off", lambda: at_rest(cluster, "serves"))
    assert commands_of_jobs(cluster, "serves") == ["on", "off"]
