"""What keeps an operation from starting, from being released or from being repeated, and what is left behind."""

from datetime import timedelta

import pytest
from virtual.locks import lock
from virtual.operator import Died
from virtual.rest import at_rest, commands_of_jobs

from homelab_api import names
from homelab_api.core import CoreNode, Job
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Node, NodeReclaim, SlotCondition
from homelab_autoscaler.lifecycle import events
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults


def press(cluster):
    cluster.in_loop(lambda: cluster.at("m").press_button() and None)


def made(cluster, kind):
    """Names of the lifecycle Jobs that were ever created."""
    created = [write for write in cluster.writes() if write.verb == "create" and write.resource == "jobs"]
    return [write.name for write in created if kind in write.name]


# --- a lock of another operation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["boot", "shutdown"])
def test_a_refused_lock_leaves_nothing_behind_but_a_word_and_the_operation_begins_when_it_ends(cluster, operation):
    cluster.machine()
    cluster.run(1)
    claim = cluster.ready() if operation == "shutdown" else None
    lock(cluster, "scale-up" if operation == "shutdown" else "scale-down", 120)
    since = cluster.plane.server.store.revision
    if operation == "shutdown":
        cluster.unclaim(claim)
    else:
        claim = cluster.claim()
    cluster.run(118)
    written = [write for write in cluster.writes(since) if ":manager" in write.user and write.subresource != "status"]
    assert [str(write) for write in written] == []
    assert not cluster.fresh(claim).committed or operation == "shutdown"
    assert cluster.node() is None or not cluster.node().spec.unschedulable
    said = events.SCALE_DOWN_DEFERRED if operation == "shutdown" else events.SCALE_UP_DEFERRED
    assert said in cluster.reasons("m")
    cluster.until(
        "it begins", lambda: cluster.commands()[-1:] == ["off" if operation == "shutdown" else "on"], within=9
    )


# --- Jobs that were made and not released ---------------------------------------------------------------------------


class Death:
    """Ends the operator when the server has taken the write that is looked for."""

    def __init__(self, cluster, looked_for):
        self.struck = False
        self._looked_for = looked_for
        cluster.operator.client.transport.after = self._strike

    def _strike(self, method, target, body):
        if not self.struck and self._looked_for(method, target, body):
            self.struck = True
            raise Died


def test_a_job_that_waits_for_its_release_too_long_is_overdue_from_its_creation(cluster):
    """Nobody can take it up, since another operation has the lock."""
    cluster.machine()
    cluster.run(1)
    death = Death(cluster, lambda method, target, _: method == "POST" and target.endswith("/jobs"))
    claim = cluster.claim()
    cluster.until("dead", lambda: death.struck, step=0.1)
    (job,) = cluster.jobs()
    assert job.suspended
    cluster.kill()
    lock(cluster, "scale-down", 3600)
    cluster.client.patch(
        type(claim),
        claim.name,
        "lab",
        MergePatch({"status": {"phase": "booting", "reason": "StartupJobCreated", "attempt": 1, "jobName": job.name}}),
        subresource="status",
    )
    cluster.start()
    cluster.run(300)
    assert cluster.phase(claim) == "booting"
    cluster.run(60)
    assert (cluster.phase(claim), cluster.reason(claim)) == ("failed", "StartupJobTimeout")
    assert commands_of_jobs(cluster) == []


def test_an_attempt_that_was_counted_before_a_death_is_not_counted_again(cluster):
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    death = Death(cluster, lambda method, _, body: method == "PATCH" and b'"shutdownAttempts":1' in body)
    cluster.unclaim(claim)
    cluster.until("dead", lambda: death.struck, step=0.1)
    assert made(cluster, "shutdown") == []
    cluster.restart()
    cluster.until("asked", lambda: cluster.commands() == ["on", "off"])
    assert made(cluster, "shutdown") == ["m-shutdown-1"]
    assert cluster.fresh(claim).status.shutdown_attempts == 1


def test_a_job_that_is_about_to_fail_counts_as_failed_half_a_minute_later(cluster):
    """Kubernetes says FailureTarget, and Failed when the pods are gone; those of a node that is away never are."""
    cluster.machine()
    cluster.script("on", "m", hangs=True, sends=0)
    claim = cluster.claim()
    cluster.until("running", lambda: any(job.status.start_time for job in cluster.jobs()))
    (job,) = cluster.jobs()
    stamp = format_time(cluster.clock.now())
    target = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": stamp}
    patch = MergePatch({"status": {"conditions": [target]}})
    cluster.client.patch(Job, job.name, "lab", patch, subresource="status")
    cluster.run(28)
    assert cluster.phase(claim) == "booting"
    cluster.run(4)
    assert cluster.reason(claim) == "StartupJobFailed"
    assert job.name not in {found.name for found in cluster.jobs()}


# --- a slot that cannot be worked on --------------------------------------------------------------------------------


def test_without_its_group_a_slots_claims_still_expire_supersede_each_other_and_vanish(cluster):
    cluster.machine(group="absent")
    deadline = format_time(cluster.clock.now() + timedelta(seconds=300))
    old = cluster.claim_by_hand("old", group="absent")
    cluster.run(2)
    late = cluster.claim_by_hand("late", group="absent", deadlineAt=deadline)
    cluster.run(5)
    assert cluster.reason(old) == "Superseded"
    cluster.run(300)
    assert cluster.reason(late) == "DeadlineExceeded"
    brief = cluster.claim_by_hand("brief", group="absent")
    cluster.run(5)
    cluster.client.delete(type(brief), "brief", "lab")
    assert cluster.phase(brief) == "gone"
    assert (cluster.jobs(), cluster.commands()) == ([], [])


def test_a_machine_in_its_owners_hands_is_reported_so_and_left_alone_with_or_without_power(cluster):
    """Row 0, with a NodeReclaim as a person makes it."""
    cluster.machine("a")
    cluster.machine("b")
    for name in "ab":
        body = {"metadata": {"name": name}, "spec": {"slotRef": {"name": name}, "source": "Manual"}}
        cluster.client.create_json(NodeReclaim, body, "lab")
    cluster.in_loop(lambda: cluster.at("b").press_button() and None)
    claim = cluster.claim_by_hand("mine", "a")
    cluster.run(900)
    assert cluster.reason(claim) == "EmergencyReclaim", "also one that was made later"
    assert [cluster.slot(name).status.phase for name in "ab"] == ["reclaimed", "reclaimed"]
    assert [cluster.power(name) for name in "ab"] == ["off", "up"]
    assert (cluster.target(), cluster.jobs()) == (0, [])
    assert not cluster.increase(), "neither is free"


# --- shutdowns again and again --------------------------------------------------------------------------------------


def test_shutdowns_that_nobody_claimed_for_are_counted_on_the_slot_until_the_machine_is_off(cluster):
    cluster.machine(on=True, boot_seconds=10)
    cluster.script("off", "m", sends=0, code=1)
    cluster.until("spent", lambda: "ShutdownAttemptLimitReached" in cluster.reasons("m"), step=5)
    assert len(made(cluster, "shutdown")) == 3
    assert cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)
    spent, passes = cluster.clock.now(), cluster.operator.passes["slot"]
    cluster.run(cluster.settings.shutdown_pause - 200)
    assert len(made(cluster, "shutdown")) == 3
    assert cluster.operator.passes["slot"] - passes < 40, "a pause is no busy loop"
    cluster.scripts.scripts.clear()
    cluster.until("off", lambda: at_rest(cluster))
    assert cluster.clock.now() - spent >= timedelta(seconds=cluster.settings.shutdown_pause - 200)
    assert len(made(cluster, "shutdown")) == 4
    assert '"attempts"' not in cluster.slot().metadata.annotations[names.ANNOTATION_SHUTDOWN_LEDGER]
    assert not cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)


def test_a_machine_that_keeps_coming_back_is_switched_off_six_times_an_hour_and_no_more(cluster):
    """Over all claims of the slot, and whoever switches it on."""
    cluster.machine(boot_seconds=10, stop_seconds=1)
    cluster.unclaim(cluster.ready())
    while not cluster.condition(cluster.slot(), SlotCondition.POWER_FLAPPING):
        assert cluster.seconds < 3600
        if cluster.power() == "off" and at_rest(cluster):
            press(cluster)
        cluster.run(5)
    began = cluster.seconds
    assert commands_of_jobs(cluster).count("off") == 6
    assert cluster.reasons("m").count("PowerFlapping") >= 1
    cluster.until("it is switched off again", lambda: commands_of_jobs(cluster).count("off") == 7, step=10)
    assert cluster.seconds - began >= 1500, "half an hour after the sixth"
    cluster.until("at rest", lambda: at_rest(cluster))
    assert not cluster.condition(cluster.slot(), SlotCondition.POWER_FLAPPING)


def test_a_machine_that_is_spent_says_who_must_help_until_it_is_tried_again(cluster):
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    cluster.script("off", "m", sends=0, code=1)
    cluster.unclaim(claim)
    cluster.until("parked", lambda: cluster.condition(cluster.fresh(claim), "NeedsHuman"), step=5)
    assert cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)
    assert cluster.fresh(claim).status.shutdown_attempts == 3
    cluster.script("off", "m", sends=0, hangs=True)
    cluster.until("tried again", lambda: len(made(cluster, "shutdown")) == 4, step=10)
    assert cluster.fresh(claim).condition("NeedsHuman").reason == "ShutdownResumed"
    assert cluster.fresh(claim).status.shutdown_attempts == 1, "a new streak"
    cluster.run(1)
    assert not cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)
    cluster.scripts.scripts.clear()
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", step=5)
    again = cluster.claim()
    cluster.until("numbered", lambda: cluster.fresh(again).status.attempt)
    assert cluster.fresh(again).status.attempt == 1, "shutdowns spend no boots"


# --- control planes -------------------------------------------------------------------------------------------------


def test_a_control_plane_node_is_switched_off_only_when_that_is_allowed_and_its_object_stays(cluster):
    cluster.machine(boot_seconds=10)
    claim = cluster.ready()
    role = {"metadata": {"labels": {names.CONTROL_PLANE_LABELS[0]: ""}}}
    cluster.client.patch(CoreNode, "node-m", None, MergePatch(role))
    cluster.unclaim(claim)
    cluster.run(300)
    assert commands_of_jobs(cluster) == ["on"]
    assert cluster.condition(cluster.slot(), SlotCondition.PROTECTED)
    assert cluster.condition(cluster.fresh(claim), "Protected")
    assert not cluster.node().spec.unschedulable
    last = []
    cluster.plane.server.writes.subscribe(
        lambda write: write.name == claim.name and write.subresource == "status" and last.append(write.after["status"])
    )
    cluster.client.patch(Node, "m", "lab", MergePatch({"spec": {"allowControlPlane": True}}))
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert commands_of_jobs(cluster) == ["on", "off"]
    assert cluster.node() is not None
    assert {entry["type"]: entry["status"] for entry in last[-1]["conditions"]}["Protected"] == "False"
    assert not cluster.condition(cluster.slot(), SlotCondition.PROTECTED)
