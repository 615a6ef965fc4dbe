"""How claims end: by whom, with which reason, what is kept of them, and when they may go. On virtual time."""

from datetime import timedelta

import pytest
from virtual.rest import at_rest, commands_of_jobs

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim, SlotCondition
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults


def annotate(cluster, found, **annotations):
    notes = {f"{names.GROUP}/{key}": text for key, text in annotations.items()}
    cluster.client.patch(type(found), found.name, "lab", MergePatch({"metadata": {"annotations": notes}}))


def last(cluster):
    return cluster.slot().status.last_claim


def digested(cluster, claim):
    return last(cluster) is not None and last(cluster).uid == claim.uid


# --- the reason of an end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("NodeDeleted", "NodeDeleted"),
        ("CancelledByDecreaseTargetSize", "CancelledByDecreaseTargetSize"),
        ("ScheduleEnded", "ScheduleEnded"),
        (None, "DeletedByHand"),
        ("MachineGone", "DeletedByHand"),
        ("nonsense", "DeletedByHand"),
    ],
)
def test_a_withdrawn_claim_ends_for_the_reason_that_its_deleter_wrote_else_by_hand(cluster, said, kept):
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    if said:
        annotate(cluster, claim, **{"end-reason": said})
    cluster.client.delete(NodeClaim, claim.name, "lab")
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert (last(cluster).phase, last(cluster).reason, last(cluster).reached_ready) == ("completed", kept, True)


def test_a_booting_claim_that_is_deleted_is_reversed_to_its_end_and_completed(cluster):
    cluster.machine()
    claim = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    cluster.client.delete(NodeClaim, claim.name, "lab")
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.power() == "off", "it does not go before its machine"
    cluster.until("free", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"]
    assert (last(cluster).phase, last(cluster).reason, last(cluster).reached_ready) == (
        "completed",
        "DeletedByHand",
        False,
    )


def test_of_a_boot_that_is_reversed_the_startup_job_is_ended_before_the_shutdown_begins(cluster):
    cluster.machine()
    cluster.script("on", "m", hangs=True)
    claim = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    since = cluster.plane.server.store.revision
    cluster.unclaim(claim)
    cluster.until("told to stop", lambda: "off" in cluster.commands(), within=30)
    order = [
        (write.verb, write.name.rpartition("-startup")[0] != "")
        for write in cluster.writes(since)
        if write.resource == "jobs" and write.verb in {"create", "delete"} and ":manager" in write.user
    ]
    assert order == [("delete", True), ("create", False)]
    assert not [pod for pod in cluster.pods() if "startup" in pod.name], "its script does not run on"
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.power() == "off"


# --- given up by hand ---------------------------------------------------------------------------------------------


def parked(cluster):
    """A withdrawn claim whose shutdowns are spent."""
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    cluster.script("off", "m", sends=0, code=1)
    cluster.unclaim(claim)
    cluster.until("parked", lambda: cluster.condition(cluster.fresh(claim), "NeedsHuman"), step=10)
    return claim


def test_a_slot_that_was_given_up_is_given_up_once(cluster):
    """The annotation ends the delete that is parked, goes, and does nothing to the next claim."""
    claim = parked(cluster)
    annotate(cluster, cluster.slot(), abandon=cluster.slot().uid)
    cluster.until("ended", lambda: cluster.phase(claim) == "gone", within=120)
    assert last(cluster).reason == "Abandoned"
    cluster.until("consumed", lambda: names.ANNOTATION_ABANDON not in cluster.slot().metadata.annotations, within=60)
    cluster.scripts.scripts.clear()
    cluster.until("off, since nobody wants it", lambda: at_rest(cluster))
    again = cluster.ready()
    cluster.behave("m", power_off="lie")
    cluster.unclaim(again)
    cluster.run(120)
    assert cluster.fresh(again).committed, "this one waits for its machine like any other"
    assert cluster.power() == "up"


def test_a_note_on_a_slot_that_nothing_waits_for_is_taken_off_at_once(cluster):
    cluster.machine()
    cluster.ready()
    annotate(cluster, cluster.slot(), abandon=cluster.slot().uid)
    cluster.run(1)
    assert names.ANNOTATION_ABANDON not in cluster.slot().metadata.annotations
    annotate(cluster, cluster.slot(), abandon="the uid of something else")
    cluster.run(1)
    assert cluster.slot().metadata.annotations[names.ANNOTATION_ABANDON] == "the uid of something else"


def test_a_finalizer_stays_while_a_job_of_its_claim_runs(cluster):
    """Also when a person has given the machine up: the Job that runs may still switch it."""
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    cluster.script("off", "m", hangs=True, sends=0)
    cluster.unclaim(claim)
    cluster.until("it runs", lambda: any(job.status.start_time and not job.finished for job in cluster.jobs()))
    annotate(cluster, claim, abandon=claim.uid)
    cluster.run(120)
    found = cluster.fresh(claim)
    assert (found.phase, found.status.reason) == ("completed", "Abandoned")
    assert found.committed
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=600)
    assert all(job.finished for job in cluster.jobs())


# --- a machine of which nobody knows ------------------------------------------------------------------------------


def unproven(cluster):
    """A claim whose boot was sent, whose machine never joined, and whose shutdowns all failed."""
    cluster.machine(join_refused=True)
    claim = cluster.claim()
    cluster.script("off", "m", sends=0, code=1)
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", step=5)
    cluster.until("let go", lambda: not cluster.fresh(claim).committed, step=10)
    return claim


def test_three_failed_shutdowns_of_a_machine_that_seems_off_end_in_a_doubt_that_the_slot_tells(cluster):
    claim = unproven(cluster)
    found = cluster.fresh(claim)
    assert (found.status.reason, found.status.shutdown_attempts) == ("ReadinessGateTimeout", 3)
    assert cluster.condition(cluster.slot(), SlotCondition.POWER_UNKNOWN).reason == "ShutdownUnproven"
    assert cluster.power() == "up"
    cluster.run(600)
    assert cluster.condition(cluster.slot(), SlotCondition.POWER_UNKNOWN)


def test_a_withdrawn_claim_in_doubt_ends_for_its_reason_and_says_so_itself(cluster):
    cluster.machine(join_refused=True)
    claim = cluster.claim()
    cluster.script("off", "m", sends=0, code=1)
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    seen = []
    cluster.plane.server.writes.subscribe(
        lambda write: write.name == claim.name and write.subresource == "status" and seen.append(write.after["status"])
    )
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", step=10)
    assert last(cluster).reason == "NodeDeleted"
    end = {entry["type"]: (entry["status"], entry["reason"]) for entry in seen[-1]["conditions"]}
    assert end["PowerUnknown"] == ("True", "ShutdownUnproven")
    assert end["MachineObservedOff"][0] == "Unknown"
    assert cluster.condition(cluster.slot(), SlotCondition.POWER_UNKNOWN)


@pytest.mark.parametrize("how", ["seen on", "a shutdown that works", "given up"])
def test_a_doubt_ends_when_the_machine_is_seen_or_switched_off_or_given_up(cluster, how):
    unproven(cluster)
    match how:
        case "seen on":
            cluster.behave("m", join_refused=False)
            told = "ObservedOn"
        case "a shutdown that works":
            cluster.scripts.scripts.clear()
            again = cluster.claim()
            cluster.until("it fails, too", lambda: cluster.phase(again) == "failed", step=5)
            told = "ShutdownSucceeded"
        case "given up":
            annotate(cluster, cluster.slot(), abandon=cluster.slot().uid)
            told = "Abandoned"
    cluster.until("known", lambda: not cluster.condition(cluster.slot(), SlotCondition.POWER_UNKNOWN), within=900)
    found = next(entry for entry in cluster.slot().status.conditions if entry.type == SlotCondition.POWER_UNKNOWN)
    assert found.reason == told
    cluster.run(5)
    assert names.ANNOTATION_ABANDON not in cluster.slot().metadata.annotations


# --- superseded, deleted with its slot, taken by the owner ---------------------------------------------------------


def test_a_superseded_boot_leaves_its_machine_and_its_debt_to_the_newer_claim(cluster):
    cluster.machine(join_refused=True)
    old = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    cluster.run(2)
    new = cluster.claim_by_hand("newer")
    cluster.until("superseded", lambda: cluster.reason(old) == "Superseded")
    cluster.until("committed", lambda: cluster.fresh(new).committed, within=900)
    assert cluster.fresh(old).committed or cluster.fresh(new).status.inherited_debt
    cluster.until("let go", lambda: not cluster.fresh(old).committed, within=120)
    assert cluster.fresh(new).status.inherited_debt
    assert "ClaimSuperseded" in cluster.reasons(old.name)
    cluster.run(1800)
    assert cluster.phase(old) == "failed", "it never comes back"


def test_a_slots_claim_ends_with_it(cluster):
    cluster.machine()
    claim = cluster.ready()
    reasons = []
    cluster.plane.server.writes.subscribe(
        lambda write: (
            write.name == claim.name
            and write.subresource == "status"
            and reasons.append(write.after["status"].get("reason"))
        )
    )
    cluster.client.delete(Node, "m", "lab")
    cluster.until("the slot is gone", lambda: cluster.slot() is None)
    assert reasons[-1] == "SlotDeleted"
    assert commands_of_jobs(cluster) == ["on", "off"]


def test_a_deleted_slot_whose_machine_is_on_for_nobody_goes_when_it_is_off(cluster):
    cluster.machine(on=True, boot_seconds=10)
    cluster.until("on", lambda: cluster.slot().status.power_state == "on")
    cluster.client.delete(Node, "m", "lab")
    cluster.until("told", lambda: cluster.commands() == ["off"], within=30)
    assert cluster.slot() is not None
    cluster.until("the slot is gone", lambda: cluster.slot() is None)
    assert cluster.power() == "off"
    assert cluster.commands() == ["off"]


@pytest.mark.parametrize("held", [False, True])
def test_a_slots_finalizer_is_there_from_its_first_pass_and_keeps_it_while_its_machine_is_ours(cluster, held):
    cluster.machine()
    cluster.run(1)
    assert names.FINALIZER_SLOT in cluster.slot().metadata.finalizers
    cluster.ready()
    if held:
        body = {"metadata": {"name": "m"}, "spec": {"slotRef": {"name": "m"}, "source": "Manual"}}
        cluster.client.create_json(NodeReclaim, body, "lab")
        cluster.run(60)
    cluster.client.delete(Node, "m", "lab")
    cluster.run(1)
    assert (cluster.slot() is None) is held
    cluster.until("the slot is gone", lambda: cluster.slot() is None)
    if held:
        cluster.run(900)
        assert commands_of_jobs(cluster) == ["on"], "its owner has the machine: no Job"
        assert cluster.power() == "up"
        assert cluster.get(NodeReclaim, "m") is None
        assert not cluster.node().spec.unschedulable
    else:
        assert cluster.power() == "off"


def test_a_group_that_is_deleted_stays_readable_until_no_machine_needs_its_rules(cluster):
    cluster.machine()
    claim = cluster.ready()
    assert names.FINALIZER_GROUP in cluster.get(Group, "pool").metadata.finalizers
    cluster.client.delete(Group, "pool", "lab")
    cluster.run(600)
    assert cluster.get(Group, "pool").marked
    assert cluster.phase(claim) == "ready", "its machine goes on serving"
    assert not cluster.increase()
    cluster.unclaim(claim)
    cluster.until("off by the group's rules", lambda: cluster.phase(claim) == "gone")
    cluster.until("gone", lambda: cluster.get(Group, "pool") is None, within=60)
    assert commands_of_jobs(cluster) == ["on", "off"]


def test_a_claim_that_the_owner_ended_lets_go_when_the_owner_gives_the_machine_back(cluster):
    cluster.machine()
    claim = cluster.ready()
    body = {"metadata": {"name": "m"}, "spec": {"slotRef": {"name": "m"}, "source": "Manual"}}
    cluster.client.create_json(NodeReclaim, body, "lab")
    cluster.until("ended", lambda: cluster.phase(claim) == "failed")
    cluster.run(600)
    assert (cluster.reason(claim), cluster.fresh(claim).committed) == ("EmergencyReclaim", True)
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.client.delete(CoreNode, "node-m")
    cluster.client.delete(NodeReclaim, "m", "lab")
    cluster.until("let go", lambda: not cluster.fresh(claim).committed, within=60)
    assert cluster.condition(cluster.slot(), SlotCondition.POWER_UNKNOWN), "nobody saw it going off"
    assert commands_of_jobs(cluster) == ["on"]


def test_a_machine_that_its_owner_gives_back_stays_on_for_the_time_that_was_promised(cluster):
    """Nobody's screen goes dark at their hand, although the claim that booted it still has its finalizer."""
    cluster.machine()
    claim = cluster.ready()
    body = {"metadata": {"name": "m"}, "spec": {"slotRef": {"name": "m"}, "source": "Manual"}}
    cluster.client.create_json(NodeReclaim, body, "lab")
    cluster.until("ended", lambda: cluster.phase(claim) == "failed")
    until = cluster.clock.now() + timedelta(seconds=600)
    annotate(cluster, cluster.slot(), **{"return-until": until.isoformat()})
    cluster.client.delete(NodeReclaim, "m", "lab")
    cluster.run(595)
    assert commands_of_jobs(cluster) == ["on"]
    assert not cluster.node().spec.unschedulable
    cluster.until("off, since nobody claimed it", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"]


# --- kept and collected ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [None, 300, 120])
def test_an_ended_claim_is_kept_for_its_time_and_then_collected(cluster, ttl):
    cluster.machine(join_refused=True)
    claim = cluster.claim(ttl_seconds_after_finished=ttl)
    cluster.until("ended", lambda: cluster.phase(claim) == "failed", step=5)
    cluster.until("free", lambda: at_rest(cluster))
    ended = cluster.fresh(claim).status.finished_at
    until = ended + timedelta(seconds=ttl or 3600)
    if cluster.clock.now() < until:
        cluster.run((until - cluster.clock.now()).total_seconds() - 1)
        assert cluster.phase(claim) == "failed"
        cluster.run(2)
    assert cluster.phase(claim) == "gone"
    assert digested(cluster, claim)


def test_no_claim_is_collected_before_two_minutes_have_passed(cluster):
    """Whatever its own time: a creator that saw it live may still be deciding. Without the schema's minimum."""
    cluster.settings = cluster.settings.model_copy(update={"claim_ttl": 1.0})
    cluster.restart()
    cluster.machine()
    cluster.run(1)
    first = cluster.claim()
    cluster.run(2)
    cluster.claim_by_hand("newer")
    cluster.until("ended", lambda: cluster.phase(first) == "failed", step=0.5)
    cluster.until("let go", lambda: not cluster.fresh(first).committed)
    ended = cluster.fresh(first).status.finished_at
    cluster.run((ended - cluster.clock.now()).total_seconds() + 119)
    assert cluster.phase(first) == "failed"
    cluster.run(3)
    assert cluster.phase(first) == "gone"


def test_a_claim_that_ends_while_another_one_lives_is_no_news_of_the_slot(cluster):
    cluster.machine()
    old = cluster.ready(ttl_seconds_after_finished=120)
    cluster.run(2)
    new = cluster.claim_by_hand("newer")
    cluster.until("superseded", lambda: cluster.phase(old) == "failed")
    cluster.until("ready", lambda: cluster.phase(new) == "ready")
    cluster.run(600)
    assert not digested(cluster, old)
    assert cluster.phase(old) == "gone"


def test_ends_that_nobody_digested_are_digested_in_their_order_before_the_next_number(cluster):
    """The operator was away when three boots failed; the next claim, whose pass comes first, counts all of them."""
    cluster.machine()
    cluster.run(1)
    cluster.kill()
    for number in range(1, 4):
        ended = cluster.clock.now() + timedelta(seconds=number - 60)
        body = cluster.claim_by_hand(f"ended-{number}")
        stamp = ended.isoformat().replace("+00:00", "Z")
        status = {"phase": "failed", "reason": "StartupJobFailed", "attempt": number, "finishedAt": stamp}
        cluster.client.patch(NodeClaim, body.name, "lab", MergePatch({"status": status}), subresource="status")
    claim = cluster.claim_by_hand("a-next", call="IncreaseSize")
    cluster.start()
    cluster.until("counted", lambda: cluster.fresh(claim).status.attempt)
    assert cluster.fresh(claim).status.attempt == 4
    assert cluster.reason(claim) == "AttemptLimitExceeded"
    assert cluster.jobs() == []
