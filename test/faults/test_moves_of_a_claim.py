"""How a claim moves: who writes, in which order, with which record; and what a move that is refused leaves behind."""

from datetime import timedelta

import pytest
from virtual.operator import Recorder
from virtual.rest import at_rest, commands_of_jobs
from virtual.told import OPERATOR, annotations, told, values, writes_of

from homelab_api import names
from homelab_api.conditions import condition
from homelab_api.core import Job
from homelab_api.v2alpha1 import ClaimCondition, ClaimPhase, Node, NodeClaim, Reason
from homelab_autoscaler.claim.moves import IllegalMoveError
from homelab_autoscaler.claim.recorder import ClaimRecorder
from homelab_autoscaler.runtime import ConflictError, MergePatch, Result

MOVES = {"ClaimBooting", "ClaimReady", "ClaimFailed", "ClaimCancelled", "ClaimCompleted", "ClaimSuperseded"}


def moves(cluster, claim):
    """Events about the claim's moves, in order."""
    return [reason for reason in cluster.reasons(claim.name) if reason in MOVES]


def said_of(cluster, claim, reason):
    """What the one event with this reason says."""
    (found,) = [entry.message for entry in cluster.said if (entry.name, entry.reason) == (claim.name, reason)]
    return found


# --- the recorder, the one place of all moves ---------------------------------------------------------------------


@pytest.fixture
def alone(cluster):
    """A claim that nobody works on, and the recorder."""
    cluster.machine()
    cluster.run(1)
    cluster.kill()
    return cluster.claim_by_hand("mine"), ClaimRecorder(
        cluster.client, Recorder(cluster.clock, cluster.said), cluster.clock
    )


def test_a_move_that_the_table_does_not_list_writes_nothing_and_says_nothing(cluster, alone):
    claim, recorder = alone
    claim = recorder.move(claim, ClaimPhase.BOOTING, Reason.STARTUP_JOB_CREATED)
    ended = recorder.fail(claim, Reason.STARTUP_JOB_FAILED, "")
    before, said = cluster.plane.server.store.revision, len(cluster.said)
    for to, reason in (
        (ClaimPhase.READY, Reason.MACHINE_READY),
        (ClaimPhase.COMPLETED, Reason.NODE_DELETED),
        (ClaimPhase.FAILED, Reason.DEADLINE_EXCEEDED),
    ):
        with pytest.raises(IllegalMoveError):
            recorder.move(ended, to, reason)
    assert cluster.plane.server.store.revision == before
    assert len(cluster.said) == said
    assert cluster.reason(claim) == "StartupJobFailed"


def test_a_move_that_the_api_server_refuses_says_nothing(cluster, alone):
    claim, recorder = alone
    cluster.client.patch(NodeClaim, "mine", "lab", MergePatch({"metadata": {"labels": {"example.org/changed": "1"}}}))
    with pytest.raises(ConflictError):
        recorder.move(claim, ClaimPhase.BOOTING, Reason.STARTUP_JOB_CREATED)
    assert cluster.phase(claim) == "pending"
    assert moves(cluster, claim) == []


def test_a_move_that_was_made_already_is_no_write_and_no_word(cluster, alone):
    claim, recorder = alone
    claim = recorder.move(claim, ClaimPhase.BOOTING, Reason.STARTUP_JOB_CREATED)
    before = cluster.plane.server.store.revision
    recorder.move(claim, ClaimPhase.BOOTING, Reason.STARTUP_JOB_CREATED)
    recorder.conditions(claim, *claim.status.conditions)
    recorder.seed(recorder.seed(claim, 2), 3)
    assert cluster.plane.server.store.revision == before + 1, "the seed, once"
    assert cluster.fresh(claim).status.attempt == 2
    assert moves(cluster, claim) == ["ClaimBooting"]


def test_conditions_merge_by_type_and_their_time_moves_with_their_status_alone(cluster, alone):
    claim, recorder = alone

    def set_ready(claim, *, status, reason):
        return recorder.conditions(claim, condition(ClaimCondition.READY, status, reason))

    claim = recorder.conditions(claim, condition(ClaimCondition.NO_DEADLINE, True, "NoDeadline"))
    claim = set_ready(claim, status=False, reason="A")
    since = claim.condition(ClaimCondition.READY).last_transition_time
    cluster.run(10)
    claim = set_ready(claim, status=False, reason="B")
    assert claim.condition(ClaimCondition.READY).last_transition_time == since
    assert claim.condition(ClaimCondition.READY).reason == "B"
    claim = set_ready(claim, status=True, reason="C")
    assert claim.condition(ClaimCondition.READY).last_transition_time == since + timedelta(seconds=10)
    assert claim.condition(ClaimCondition.NO_DEADLINE).status == "True"


# --- a life, as its records tell it -------------------------------------------------------------------------------


def test_a_life_has_one_event_for_each_move_and_conditions_that_stay(cluster):
    cluster.machine()
    cluster.run(1)
    claim = cluster.claim()
    assert claim.status.phase is None, "a claim is born without a phase, and counts as pending"
    cluster.until("booting", lambda: cluster.phase(claim) == "booting", step=0.1)
    assert cluster.fresh(claim).condition(ClaimCondition.READY).status == "False"
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    now = cluster.fresh(claim)
    assert now.condition(ClaimCondition.READY).status == "True"
    assert now.condition(ClaimCondition.MACHINE_COMMITTED).status == "True"
    cluster.run(3600)
    assert moves(cluster, claim) == ["ClaimBooting", "ClaimReady"], "a wait is no move"
    cluster.unclaim(claim)
    ends = []

    def watch(change):
        if change.stored.key.name == claim.name and change.type == "MODIFIED":
            ends.append(NodeClaim.from_json(change.stored.load()))

    cluster.plane.server.store.listeners.append(watch)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    last = ends[-1]
    assert (last.status.phase, last.status.reason) == ("completed", "NodeDeleted")
    assert last.condition(ClaimCondition.MACHINE_OBSERVED_OFF).status == "True"
    assert last.condition(ClaimCondition.READY).status == "False"
    assert last.status.finished_at is not None
    assert cluster.reasons(claim.name)[0] == "ClaimCreated"
    assert moves(cluster, claim) == ["ClaimBooting", "ClaimReady", "ClaimCompleted"]
    job = now.status.job_name
    deadline = claim.spec.deadline_at.strftime("%H:%M:%S")
    assert f"attempt 1, deadline {claim.spec.deadline_at:%Y-%m-%dT%H:%M:%S}" in said_of(cluster, claim, "ClaimCreated")
    for part in ("attempt 1", f"Job {job}", deadline):
        assert part in said_of(cluster, claim, "ClaimBooting")
    took = (now.status.ready_at - claim.spec.requested_at).total_seconds()
    for part in ("attempt 1", f"Job {job}", f"after 1m{took - 60:g}"):
        assert part in said_of(cluster, claim, "ClaimReady")
    assert "after 1h" in said_of(cluster, claim, "ClaimCompleted")


@pytest.mark.parametrize(
    ("said", "reason", "event"),
    [
        ("NodeDeleted", "NodeDeleted", "ClaimCompleted"),
        ("CancelledByDecreaseTargetSize", "CancelledByDecreaseTargetSize", "ClaimCancelled"),
        ("", "DeletedByHand", "ClaimCompleted"),
    ],
)
def test_a_claim_that_ends_with_its_machine_off_says_who_withdrew_it(cluster, said, reason, event):
    cluster.machine()
    claim = cluster.claim()
    cluster.until("booting", lambda: cluster.power() == "booting")
    if said:
        cluster.unclaim(claim, said)
    else:
        cluster.client.delete(NodeClaim, claim.name, "lab")
    cluster.until("off", lambda: at_rest(cluster))
    last = cluster.slot().status.last_claim
    assert (last.phase, last.reason) == ("completed", reason)
    assert moves(cluster, claim) == ["ClaimBooting", event]
    assert commands_of_jobs(cluster) == ["on", "off"], "a boot is reversed, not interrupted"


def test_a_boot_is_locked_committed_and_recorded_before_its_power_command_leaves(cluster):
    """The order of the writes: what a death after any of them leaves is either nothing, or known to be a boot."""
    cluster.machine()
    cluster.run(1)
    since = cluster.plane.server.store.revision
    claim = cluster.ready()
    steps = []
    for write in cluster.writes(since):
        after = write.after
        if write.user != OPERATOR:
            continue
        if locked(write.before) != locked(after):
            steps.append("locked" if locked(after) else "unlocked")
        elif write.resource == "nodeclaims" and "metadata.finalizers" in write.fields:
            steps.append("finalizer")
        elif write.resource == "jobs" and write.verb == "create":
            assert after["spec"]["suspend"] is True
            steps.append("Job")
        elif write.resource == "jobs" and "spec.suspend" in write.fields:
            steps.append("released")
        elif write.resource == "nodeclaims" and told(write.before, "status.phase") != told(after, "status.phase"):
            steps.append(after["status"]["phase"])
        elif write.resource == "nodeclaims" and "spec.deadlineAt" in write.fields:
            steps.append("no deadline")
    assert steps == ["locked", "finalizer", "Job", "booting", "released", "ready", "no deadline", "unlocked"]
    assert cluster.fresh(claim).status.job_name == f"{claim.name}-startup"


def locked(body):
    return body is not None and names.ANNOTATION_LOCK in (body["metadata"].get("annotations") or {})


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_pool_that_changes_its_time_limit_does_not_change_the_claims_that_are_under_way(cluster):
    cluster.group(maxNodeProvisionTime="20m")
    cluster.machine(join_refused=True)
    assert cluster.increase()
    (claim,) = cluster.claims()
    assert claim.spec.max_node_provision_time == timedelta(minutes=20)
    assert claim.spec.deadline_at - claim.spec.requested_at == timedelta(minutes=20)
    cluster.run(60)
    cluster.group(maxNodeProvisionTime="2h")
    cluster.run(60)
    assert cluster.fresh(claim).spec == claim.spec
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    ended = cluster.fresh(claim).status
    assert ended.reason == "DeadlineExceeded"
    assert claim.spec.deadline_at <= ended.finished_at <= claim.spec.deadline_at + timedelta(seconds=2)


def test_a_boot_that_uses_up_each_of_its_waits_one_after_the_other_is_in_time(cluster):
    """Its Job takes five minutes, its node registers a minute and a half later and is ready four minutes after that."""
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    cluster.machine(boot_seconds=380.0, startup_taints=(taint,), startup_taints_clear=235.0)
    cluster.script("on", "m", seconds=296)
    claim = cluster.claim()
    assert claim.spec.deadline_at - claim.spec.requested_at == timedelta(minutes=12, seconds=10)
    took = cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=730)
    assert took > 610
    assert commands_of_jobs(cluster) == ["on"]


@pytest.mark.parametrize("phase", ["pending", "booting"])
def test_an_overdue_claim_fails_and_a_machine_that_comes_late_is_switched_off(cluster, phase):
    cluster.machine(boot_seconds=600 if phase == "booting" else 60)
    cluster.run(1)
    if phase == "pending":
        cluster.operator.reconcilers["slot"] = _Asleep(cluster.operator.reconcilers["slot"])
    deadline = cluster.clock.now() + timedelta(seconds=45)
    claim = cluster.claim_by_hand("mine", deadlineAt=deadline.isoformat().replace("+00:00", "Z"))
    cluster.run(30)
    assert cluster.phase(claim) == phase
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=30)
    assert cluster.reason(claim) == "DeadlineExceeded"
    if phase == "pending":
        cluster.operator.reconcilers["slot"] = cluster.operator.reconcilers["slot"].awake
        cluster.in_loop(cluster.at("m").press_button)
        cluster.until("on", lambda: cluster.power() == "up")
    cluster.until("off", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == (["off"] if phase == "pending" else ["on", "off"])


class _Asleep:
    """A controller that is not served for a while."""

    def __init__(self, awake):
        self.awake = awake

    def reconcile(self, request):
        del request
        return Result(requeue_after=5.0)


def test_a_ready_machine_is_ended_neither_by_a_deadline_nor_by_the_number_of_its_attempt(cluster):
    cluster.machine()
    claim = cluster.ready()
    assert cluster.fresh(claim).spec.deadline_at is None
    past = {"spec": {"deadlineAt": "2026-03-04T09:00:00Z"}}
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch({"status": {"attempt": 4}}), subresource="status")
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch(past))
    cluster.run(900)
    assert cluster.phase(claim) == "ready"
    assert commands_of_jobs(cluster) == ["on"]


def test_a_boot_without_a_deadline_that_comes_to_no_end_is_ended_by_force(cluster):
    """Its Job is gone and its node never comes: neither is a verdict, and nobody set a limit."""
    cluster.machine(join_refused=True)
    claim = cluster.claim_by_hand("mine")
    cluster.until("the Job is over", lambda: any(job.succeeded for job in cluster.jobs()))
    for job in cluster.jobs():
        cluster.client.delete(Job, job.name, "lab", propagation="Background")
    started = cluster.fresh(claim).status.started_at
    cluster.until("ended", lambda: cluster.phase(claim) == "failed")
    status = cluster.fresh(claim).status
    assert status.reason == "StuckTransition"
    limit = timedelta(seconds=cluster.settings.stuck_threshold())
    assert limit == timedelta(seconds=1030), "one boot window and one lock window; never less than fifteen minutes"
    assert limit <= status.finished_at - started <= limit + timedelta(seconds=5)
    cluster.run(0.1)
    assert annotations(cluster, Node, "m", names.ANNOTATION_LOCK)[:2] == ["scale-up", None]
    cluster.until("off", lambda: at_rest(cluster), within=600)
    assert commands_of_jobs(cluster) == ["on", "off"]


# --- attempts -----------------------------------------------------------------------------------------------------


def test_an_attempt_is_written_once_for_each_claim_and_numbers_the_machine_that_it_asks_for(cluster):
    """Two boots fail, the third one gets ready, is switched off with trouble, and the next one starts from 1."""
    cluster.machine()
    cluster.script("on", "m", sends=0, code=1)
    claims = []
    for number in range(4):
        if number == 2:
            cluster.scripts.scripts.clear()
        claim = cluster.claim()
        claims.append(claim)
        cluster.until("a verdict", lambda claim=claim: cluster.phase(claim) in {"failed", "ready"})
        if number == 2:
            cluster.behave("m", power_off="lie")
            cluster.unclaim(claim)
            cluster.run(300)
            assert cluster.fresh(claim).status.shutdown_attempts == 3
            cluster.behave("m", power_off="obey")
            cluster.in_loop(cluster.at("m").cut_power)
        if number < 3:
            cluster.until("off", lambda: at_rest(cluster, by_us=False))
        if number == 2:
            assert not cluster.condition(cluster.slot(), "Exhausted"), "it got ready: its streak is over"
    assert [values(cluster, NodeClaim, claim.name, "status.attempt") for claim in claims] == [[1], [2], [3], [1]]


def test_a_digest_has_nothing_left_of_the_one_before(cluster):
    """A failed boot, then one that serves and goes: nothing of the failure is told, or counted, of the second."""
    cluster.machine()
    cluster.script("on", "m", sends=0, code=1)
    first = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(first) == "failed")
    cluster.until("off", lambda: at_rest(cluster))
    failed = cluster.slot().status.last_claim
    assert failed.streak_at is not None
    assert failed.deadline_at is not None
    cluster.scripts.scripts.clear()
    second = cluster.ready()
    cluster.unclaim(second)
    cluster.until("off", lambda: at_rest(cluster))
    served = cluster.slot().status.last_claim
    assert (served.uid, served.attempt, served.reached_ready) == (second.uid, 2, True)
    assert served.streak_at is None
    assert served.deadline_at is None, "a claim that got ready has none"
    assert cluster.fresh(cluster.ready()).status.attempt == 1


def test_past_the_bound_a_claim_fails_before_any_machine_is_asked_for(cluster):
    cluster.machine()
    cluster.script("on", "m", sends=0, code=1)
    for _ in range(3):
        claim = cluster.claim()
        cluster.until("failed", lambda claim=claim: cluster.phase(claim) == "failed")
        cluster.until("off", lambda: at_rest(cluster))
    jobs = {job.name for job in cluster.jobs()}
    since = cluster.plane.server.store.revision
    fourth = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(fourth) == "failed", within=5)
    assert cluster.reason(fourth) == "AttemptLimitExceeded"
    assert cluster.fresh(fourth).status.attempt == 4
    cluster.run(60)
    assert {job.name for job in cluster.jobs()} <= jobs
    assert not [write for write in writes_of(cluster, Node, "m", since) if locked(write.after)]
    assert not cluster.fresh(fourth).committed
    assert cluster.slot().status.last_claim.attempt == 3, "it says nothing about the machine"


def test_an_ended_claim_that_somebody_elses_finalizer_keeps_is_left_in_peace(cluster):
    """Its slot never was, it is deleted and over, and nothing of ours is left to do."""
    body = {
        "metadata": {"name": "mine", "namespace": "lab", "finalizers": ["example.org/keep"]},
        "spec": {"slotRef": {"name": "nowhere"}, "call": "Manual", "group": "pool", "ttlSecondsAfterFinished": 120},
    }
    claim = cluster.client.create_json(NodeClaim, body, "lab")
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "InvalidSlot"
    cluster.client.delete(NodeClaim, "mine", "lab")
    cluster.run(150)
    passes = cluster.operator.passes["claim"]
    cluster.run(60)
    assert cluster.operator.passes["claim"] - passes <= 1
    assert cluster.fresh(claim).marked
