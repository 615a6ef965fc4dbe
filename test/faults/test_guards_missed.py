"""The plans miss a guard that is taken away: what cannot turn red proves nothing."""

import itertools

import pytest
from lab.interposer import Fault, Place
from lab.plans import Plan, judge, recorded
from lab.run import CANARY
from lab.stories import STORIES
from virtual.telling import VirtualWorld

from homelab_api.core import CoreNode, Job
from homelab_autoscaler.claim.recorder import ClaimRecorder
from homelab_autoscaler.controllers import claim as claim_controller
from homelab_autoscaler.controllers.slot import SlotReconciler
from homelab_autoscaler.lifecycle import boot as boot_operation
from homelab_autoscaler.lifecycle.jobs import Jobs
from homelab_autoscaler.lifecycle.node_marks import NodeMarks
from homelab_autoscaler.runtime import JsonPatch

pytestmark = pytest.mark.faults

JOB_CREATED = Place("POST jobs")
RELEASE = {"op": "replace", "path": "/spec/suspend", "value": False}


def story(name):
    return next(entry for entry in STORIES if entry.name == name)


def violations(name):
    told = VirtualWorld().tell(story(name))
    return {line.partition(":")[0] for line in told.violations}


def problems_after(monkeypatch, take_away, plan, name="boot"):
    world = VirtualWorld()
    clean = recorded(world, story(name), times=1)
    assert plan.place in clean.certain
    assert judge(world, story(name), clean, plan).problems == []
    take_away(monkeypatch)
    return " ".join(judge(world, story(name), clean, plan).problems)


def test_a_claim_that_completes_before_its_machine_is_off(monkeypatch):
    monkeypatch.setattr(claim_controller, "may_release", lambda _: True)
    assert "S3" in violations("shutdown")


def test_a_node_that_is_deleted_by_its_name(monkeypatch):
    monkeypatch.setattr(NodeMarks, "delete", lambda self, node: self._client.delete(CoreNode, node.name))
    assert "S4" in violations("shutdown")


def test_a_release_that_compares_too_little(monkeypatch):
    def release(self, job):
        self._client.patch(Job, job.name, job.namespace, JsonPatch([RELEASE]))
        return True

    monkeypatch.setattr(Jobs, "release", release)
    assert "S4" in violations("boot")


def test_a_streak_that_has_no_bound(monkeypatch):
    clean = recorded(VirtualWorld(), story("failing_job_three_times"), times=1)
    monkeypatch.setattr(claim_controller, "seed_attempt", lambda *_: 1)
    boundless = VirtualWorld().tell(story("failing_job_three_times"))
    assert "ledger" in " ".join(boundless.outcome.differences(clean.outcome))


def test_a_message_that_tells_a_secret(monkeypatch):
    fail = ClaimRecorder.fail
    monkeypatch.setattr(
        ClaimRecorder, "fail", lambda self, claim, reason, text: fail(self, claim, reason, f"{text} {CANARY}")
    )
    assert "S11" in violations("failing_job_three_times")


def test_a_suspended_job_that_nobody_takes_up_after_a_crash(monkeypatch):
    def take_away(patch):
        patch.setattr(SlotReconciler, "_settle_suspended", lambda *_: False)

    assert problems_after(monkeypatch, take_away, Plan(Fault.KILL_AFTER, JOB_CREATED))


def test_a_job_whose_name_does_not_follow_from_its_claim(monkeypatch):
    numbers = itertools.count()

    def take_away(patch):
        patch.setattr(boot_operation, "startup_job_name", lambda name, _uid: f"{name}-{next(numbers)}-startup")

    assert problems_after(monkeypatch, take_away, Plan(Fault.KILL_AFTER, JOB_CREATED))
