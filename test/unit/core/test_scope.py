import pytest

from homelab_api import names
from homelab_api.v2alpha1 import PowerState
from homelab_autoscaler.lifecycle.monitor import needed
from homelab_autoscaler.lifecycle.pulse import Pulse
from homelab_autoscaler.lifecycle.release import still_asked
from homelab_autoscaler.phase import MachineState, Operation, fires, may_release, row, state


def test_a_booting_claim_whose_startup_job_waits_for_its_release_still_asks_for_the_boot(make):
    job = make.job("startup", suspended=True)
    scope = make.scope(make.claim(phase="booting", committed=True), jobs=[job])
    assert fires(scope.law_input()) is None
    assert fires(scope.law_input(releasing=job.uid)) is Operation.START_NODE
    assert still_asked(scope, Operation.START_NODE, "uid-worker-01-7f4b9c00", job.uid) == ""


@pytest.mark.parametrize(
    ("scope_of", "why"),
    [
        (lambda m, c, j: m.scope(c, jobs=[j], reclaim=m.reclaim()), "owner's hands"),
        (lambda m, c, j: m.scope(c, m.claim("newer", created=0), jobs=[j]), "another claim"),
        (lambda m, c, j: m.scope(m.claim(phase="booting", committed=True, marked=True), jobs=[j]), "does not ask"),
        (lambda m, c, j: m.scope(c, jobs=[j], node=m.node()), "does not ask"),
        (lambda m, c, j: m.scope(c, jobs=[j, m.job("shutdown", name="other")]), "does not ask"),
        (lambda m, c, j: None, "slot is gone"),
    ],
)
def test_the_second_read_withdraws_a_boot_whose_reason_is_gone(make, scope_of, why):
    job, claim = make.job("startup", suspended=True), make.claim(phase="booting", committed=True)
    assert why in still_asked(scope_of(make, claim, job), Operation.START_NODE, claim.uid, job.uid)


def test_a_claim_whose_machine_was_asked_to_start_gets_no_second_power_on(make):
    job = make.job("startup", suspended=True)
    claim = make.claim(phase="booting", committed=True, powerRequestedAt=make.at(-30).isoformat())
    why = still_asked(make.scope(claim, jobs=[job]), Operation.START_NODE, claim.uid, job.uid)
    assert why == "the machine was asked to start already: one power-on per claim"


def test_the_second_read_withdraws_a_shutdown_when_a_claim_wants_the_machine(make):
    job = make.job("shutdown", owner="uid-slot", suspended=True)
    scope = make.scope(make.claim(phase="pending"), node=make.node(), jobs=[job])
    assert still_asked(scope, Operation.SHUTDOWN_NODE, "", job.uid)


def test_the_second_read_withdraws_a_shutdown_of_a_machine_that_was_given_back_a_moment_ago(make):
    job = make.job("shutdown", owner="uid-slot", suspended=True)
    slot = make.slot(metadata={"annotations": {names.ANNOTATION_RETURN_UNTIL: make.at(600).isoformat()}})
    early = make.scope(node=make.node(), jobs=[job], slot=slot, at=599)
    assert "gave the machine back" in still_asked(early, Operation.SHUTDOWN_NODE, "", job.uid)
    assert (
        still_asked(make.scope(node=make.node(), jobs=[job], slot=slot, at=600), Operation.SHUTDOWN_NODE, "", job.uid)
        == ""
    )
    claim = make.claim(phase="ready", committed=True, marked=True)
    withdrawn = make.scope(claim, node=make.node(), jobs=[job], slot=slot)
    assert still_asked(withdrawn, Operation.SHUTDOWN_NODE, claim.uid, job.uid) == "", "somebody wishes it"


@pytest.mark.parametrize("text", ["", "soon", "2026-03-04T09:48:15"])
def test_a_promise_that_cannot_be_read_keeps_nothing_on(make, text):
    slot = make.slot(metadata={"annotations": {names.ANNOTATION_RETURN_UNTIL: text}})
    assert make.scope(node=make.node(), slot=slot).returned_until is None


def test_a_machine_that_is_still_on_after_its_shutdown_job_is_given_time_to_go(make):
    claim = make.claim(phase="ready", committed=True, marked=True)
    jobs = [make.job("shutdown", "Complete", ended=0)]
    early = make.scope(claim, node=make.node(), jobs=jobs, at=119)
    late = make.scope(claim, node=make.node(), jobs=jobs, at=120)
    assert (state(early.law_input()), fires(early.law_input())) == (MachineState.SHUTTINGDOWN, None)
    assert (state(late.law_input()), fires(late.law_input())) == (MachineState.READY, Operation.SHUTDOWN_NODE)


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_shutdown_is_not_repeated_at_once_because_its_machine_only_seems_off(make, end):
    claim = make.claim(phase="ready", committed=True, marked=True)
    for node, pulse in ((make.node("False"), Pulse.ALIVE), (None, Pulse.MISSING)):
        jobs = [make.job("shutdown", end, ended=0)]
        scope = make.scope(claim, node=node, jobs=jobs, pulse=pulse, at=1)
        assert fires(scope.law_input()) is None
    failed = make.scope(claim, jobs=[make.job("shutdown", "Failed", ended=0)], pulse=Pulse.MISSING, at=120)
    assert fires(failed.law_input()) is Operation.SHUTDOWN_NODE


def test_a_machine_that_is_off_boots_for_a_new_claim_without_a_settle_window(make):
    jobs = [make.job("shutdown", "Complete", owner="uid-slot", ended=0)]
    assert fires(make.scope(make.claim(phase="pending"), jobs=jobs, at=1).law_input()) is Operation.START_NODE


def test_a_machine_that_seems_off_with_a_living_kubelet_is_shut_down(make):
    scope = make.scope(node=make.node("False"), pulse=Pulse.ALIVE)
    assert fires(scope.law_input()) is Operation.SHUTDOWN_NODE


def test_a_committed_boot_that_never_joined_is_reversed_by_a_shutdown_job(make):
    claim = make.claim(phase="booting", committed=True, marked=True)
    scope = make.scope(claim, pulse=Pulse.MISSING)
    assert scope.power is PowerState.OFF
    assert fires(scope.law_input()) is Operation.SHUTDOWN_NODE
    assert not may_release(scope.law_input())


def test_after_its_shutdown_job_a_machine_without_a_node_is_confirmed_off(make):
    claim = make.claim(phase="booting", committed=True, marked=True)
    scope = make.scope(claim, jobs=[make.job("shutdown", "Complete")], pulse=Pulse.MISSING)
    assert may_release(scope.law_input())


def test_a_ready_machine_whose_node_object_was_deleted_is_not_off(make):
    claim = make.claim(phase="ready", committed=True, marked=True)
    scope = make.scope(claim, pulse=Pulse.MISSING)
    assert fires(scope.law_input()) is Operation.SHUTDOWN_NODE
    assert not may_release(scope.law_input())


def test_off_is_not_confirmed_before_the_kubelet_was_silent_long_enough(make):
    claim = make.claim(phase="ready", committed=True, marked=True)
    jobs = [make.job("shutdown", "Complete")]
    assert not may_release(make.scope(claim, node=make.node("False"), jobs=jobs, pulse=Pulse.UNKNOWN).law_input())
    assert may_release(make.scope(claim, node=make.node("False"), jobs=jobs, pulse=Pulse.SILENT).law_input())


def test_while_two_claims_are_live_nothing_fires_and_no_monitor_is_needed(make):
    scope = make.scope(make.claim(phase="booting"), make.claim("newer", created=0), node=make.node())
    assert fires(scope.law_input()) is None
    assert not needed(scope)


def test_a_held_slot_fires_nothing_whatever_it_carries(make):
    for claim in (make.claim(phase="pending"), make.claim(phase="ready", marked=True, committed=True)):
        scope = make.scope(claim, node=make.node(), reclaim=make.reclaim())
        assert row(scope.law_input()).number == 0
        assert fires(scope.law_input()) is None
        assert not needed(scope)


def test_the_node_that_a_claim_was_committed_to_outlives_a_rename_of_the_slot(make):
    claim = make.claim(phase="ready", committed=True, nodeName="node-old")
    assert make.scope(claim).node_name == "node-old"
    assert make.scope(make.claim(phase="pending")).node_name == "node-worker-01"
