"""Operations on a slot: their lock, their Jobs, the readiness gate, and shutdowns that do not land."""

from datetime import datetime, timedelta

import pytest
from virtual.locks import lock
from virtual.rest import at_rest, commands_of_jobs
from virtual.told import annotation, annotations, told, values, writes_of

from homelab_api import names
from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Call, ClaimCondition, Node, NodeClaim
from homelab_autoscaler.runtime import MergePatch

CILIUM = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}


def lock_of(cluster):
    """The four annotations, by the last part of their names."""
    found = cluster.slot().metadata.annotations
    return {key.partition("/")[2]: value for key, value in found.items() if key.startswith("homelab-autoscaler.dev/")}


def ended(cluster, claim, *phases):
    cluster.until("ended", lambda: cluster.phase(claim) in phases)


# --- the lock -----------------------------------------------------------------------------------------------------


def test_a_running_operation_has_the_lock_in_four_annotations_and_nobody_sees_it_run_out(cluster):
    """The Job takes four minutes, its node another three to be ready: longer than a lock lasts."""
    cluster.machine(startup_taints=(CILIUM,), startup_taints_clear=380.0)
    cluster.script("on", "m", seconds=250)
    claim = cluster.claim()
    cluster.until("locked", lambda: lock_of(cluster), step=0.1)
    assert lock_of(cluster) | {"lock-timestamp": ""} == {
        "operation-lock": "scale-up",
        "lock-owner": "manager-1/1",
        "lock-timestamp": "",
        "lock-timeout": "300",
    }
    taken = set()
    while cluster.phase(claim) != "ready":
        since = datetime.fromisoformat(lock_of(cluster)["lock-timestamp"])
        assert cluster.clock.now() < since + timedelta(seconds=300)
        taken.add(since)
        cluster.run(5)
    assert max(taken) - min(taken) >= timedelta(seconds=300)
    assert lock_of(cluster) == {}


@pytest.mark.parametrize("kind", ["scale-up", "scale-down"])
def test_a_successor_takes_the_lock_of_what_it_finds_running_and_keeps_it(cluster, kind):
    """Else the lock of the process before would run out while the operation goes on."""
    cluster.group(maxNodeProvisionTime="30m")
    slow = {"image": "power", "timeoutSeconds": 900}
    cluster.machine(
        slot={f"{word}PodSpec": {**slow, "command": [to, "m"]} for word, to in (("startup", "on"), ("shutdown", "off"))}
    )
    claim = cluster.ready() if kind == "scale-down" else cluster.claim()
    cluster.script("on" if kind == "scale-up" else "off", "m", seconds=800)
    if kind == "scale-down":
        cluster.behave("m", power_off="lie")
        cluster.unclaim(claim)
    cluster.until("it runs", lambda: any(job.status.start_time and not job.finished for job in cluster.jobs()))
    cluster.run(100)
    cluster.restart()
    cluster.run(1)
    for _ in range(60):
        held = lock_of(cluster)
        assert (held["operation-lock"], held["lock-owner"]) == (kind, "manager-2/2")
        assert cluster.clock.now() < datetime.fromisoformat(held["lock-timestamp"]) + timedelta(seconds=300)
        cluster.run(10)
    if kind == "scale-up":
        ended(cluster, claim, "ready")
        assert lock_of(cluster) == {}


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("scale-up", "StartupJobFailed"),
        ("scale-up", "StartupJobTimeout"),
        ("scale-up", "ReadinessGateTimeout"),
        ("scale-down", "ShutdownJobFailed"),
        ("scale-down", "ShutdownJobTimeout"),
        ("scale-down", "off"),
    ],
)
def test_whatever_ends_an_operation_gives_its_lock_back(cluster, kind, end):
    cluster.machine()
    script = {"JobFailed": {"sends": 0, "code": 1}, "JobTimeout": {"sends": 0, "hangs": True}}
    spoilt = next((how for which, how in script.items() if which in end), {})
    if kind == "scale-up":
        cluster.behave("m", join_refused=end == "ReadinessGateTimeout")
        cluster.script("on", "m", **spoilt)
        claim = cluster.claim()
        ended(cluster, claim, "failed")
        assert cluster.reason(claim) == end
    else:
        claim = cluster.ready()
        cluster.script("off", "m", **spoilt)
        cluster.unclaim(claim)
        if end == "off":
            cluster.until("off", lambda: at_rest(cluster))
        else:
            cluster.until("said", lambda: end in cluster.reasons("m"))
            assert cluster.phase(claim) == "ready", "a shutdown that failed ends no claim"
    cluster.run(0.1)
    told = annotations(cluster, Node, "m", names.ANNOTATION_LOCK)
    assert told[told.index(kind) + 1] is None


@pytest.mark.parametrize("kind", ["scale-up", "scale-down"])
def test_a_refused_operation_leaves_nothing_behind_is_not_lost_and_asks_again_when_the_lock_ends(cluster, kind):
    cluster.machine()
    cluster.run(1)
    claim = cluster.ready() if kind == "scale-down" else None
    lock(cluster, kind, 240)
    since, passes = cluster.plane.server.store.revision, cluster.operator.passes["slot"]
    if claim is None:
        claim = cluster.claim()
    else:
        cluster.unclaim(claim)
    cluster.run(235)
    assert not [write for write in cluster.writes(since) if write.resource in {"jobs", "pods"}]
    assert writes_of(cluster, CoreNode, "node-m", since) == []
    assert values(cluster, NodeClaim, claim.name, "status.phase", since) == []
    assert values(cluster, NodeClaim, claim.name, "metadata.finalizers", since) == []
    assert values(cluster, NodeClaim, claim.name, "status.shutdownAttempts", since) == []
    assert [write for write in writes_of(cluster, Node, "m", since) if write.subresource == ""] == []
    assert cluster.slot().status.phase == ("pending" if kind == "scale-up" else "draining"), "reports go on"
    deferred = [entry for entry in cluster.said if entry.reason in {"ScaleUpDeferred", "ScaleDownDeferred"}]
    assert {(entry.name, entry.type, entry.reason) for entry in deferred} == {
        ("m", "Normal", "ScaleUpDeferred" if kind == "scale-up" else "ScaleDownDeferred")
    }
    assert "somebody/99" in deferred[0].message
    assert cluster.operator.passes["slot"] - passes <= 20, (
        "it waits for the end of the lock and does not ask all the time"
    )
    until = cluster.until(
        "it runs", lambda: len(commands_of_jobs(cluster)) == (1 if kind == "scale-up" else 2), step=0.5
    )
    assert until <= 10
    if kind == "scale-up":
        ended(cluster, claim, "ready")
    else:
        cluster.until("off", lambda: at_rest(cluster))


def test_a_machine_that_is_on_already_waits_for_the_lock_and_says_so(cluster):
    cluster.machine(on=True, boot_seconds=10)
    cluster.until("on", lambda: cluster.slot().status.power_state == "on")
    claim = cluster.claim()
    cluster.run(200)
    lock(cluster, "scale-down", 300)
    cluster.run(290)
    assert cluster.phase(claim) == "pending"
    assert ("m", "Normal", "ScaleUpDeferred") in {(entry.name, entry.type, entry.reason) for entry in cluster.said}
    cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=60)
    assert commands_of_jobs(cluster) == []


def test_a_lock_that_nothing_stands_behind_is_taken_away_when_it_has_run_out(cluster):
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-up", 120)
    cluster.run(118)
    assert lock_of(cluster)["lock-owner"] == "somebody/99"
    cluster.run(4)
    assert lock_of(cluster) == {}
    assert commands_of_jobs(cluster) == []


# --- Jobs ---------------------------------------------------------------------------------------------------------


def found(cluster, **labels):
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return [job.name for job in cluster.client.list(Job, "lab", label_selector=selector).items]


def owners(cluster, job):
    references = cluster.raw("batch", "jobs", job)["metadata"]["ownerReferences"]
    return [(entry["kind"], entry["name"], entry.get("controller", False)) for entry in references]


def test_lifecycle_jobs_are_found_by_slot_claim_and_type_belong_to_their_claim_and_go_after_their_time(cluster):
    pod = {"image": "power", "ttlSecondsAfterFinished": 900}
    slot = {"startupPodSpec": {**pod, "command": ["on", "m"]}, "shutdownPodSpec": {**pod, "command": ["off", "m"]}}
    cluster.machine(slot=slot)
    claim = cluster.ready()
    startup = f"{claim.name}-startup"
    of_slot, of_claim = {names.LABEL_NODE: "m"}, {names.LABEL_NODECLAIM: claim.name}
    assert found(cluster, **of_slot) == found(cluster, **of_claim) == found(cluster, type="startup") == [startup]
    assert owners(cluster, startup) == [("NodeClaim", claim.name, True), ("Node", "m", False)]
    cluster.unclaim(claim)
    cluster.until("told to stop", lambda: found(cluster, type="shutdown"))
    (shutdown,) = found(cluster, type="shutdown")
    assert set(found(cluster, **of_slot)) == set(found(cluster, **of_claim)) == {startup, shutdown}
    assert owners(cluster, shutdown) == [("NodeClaim", claim.name, True), ("Node", "m", False)]
    cluster.until("off", lambda: at_rest(cluster))
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("on by a hand", lambda: len(commands_of_jobs(cluster)) == 3)
    unasked = [job for job in found(cluster, type="shutdown") if job != shutdown]
    assert [owners(cluster, job) for job in unasked] == [[("Node", "m", True)]], "nobody asked but the slot"
    cluster.run(600)
    assert set(found(cluster, **of_slot)) >= set(unasked), "a Job is kept for as long as the slot says"
    cluster.run(310)
    assert found(cluster, **of_slot) == []


# --- the readiness gate -------------------------------------------------------------------------------------------


def test_a_machine_is_ready_when_its_readiness_taints_are_gone_and_not_when_its_node_is_ready(cluster):
    cluster.group(nodeTaints=[{"key": "example.org/pool", "value": "lab", "effect": "NoSchedule"}])
    cluster.machine(startup_taints=(CILIUM,), startup_taints_clear=150.0)
    claim = cluster.claim()
    cluster.until("the node is Ready", lambda: cluster.slot().status.power_state == "on")
    cluster.run(120)
    assert cluster.phase(claim) == "booting"
    assert cluster.slot().status.phase == "booting"
    assert cluster.target() == 1
    cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=60)
    assert cluster.slot().status.phase == "ready"
    assert [(taint.key, taint.value) for taint in cluster.node().spec.taints] == [("example.org/pool", "lab")]
    assert not cluster.node().spec.unschedulable


@pytest.mark.parametrize("stage", ["registration", "readiness"])
def test_registration_and_readiness_have_a_time_limit_each_and_a_boot_past_it_is_undone(cluster, stage):
    late = stage == "registration"
    cluster.machine(join_refused=late, startup_taints=(CILIUM,), startup_taints_clear=None)
    claim = cluster.claim()
    if late:
        cluster.until("the Job is over", lambda: any(job.succeeded for job in cluster.jobs()))
    else:
        cluster.until("it registers", lambda: cluster.node() is not None)
    began = cluster.seconds
    ended(cluster, claim, "failed")
    limit = 90 if late else 240
    assert limit - 2 <= cluster.seconds - began <= limit + 3
    assert cluster.reason(claim) == "ReadinessGateTimeout"
    warned = [entry for entry in cluster.said if entry.reason == "ReadinessGateTimeout"]
    assert [(entry.kind, entry.name, entry.type) for entry in warned] == [("Node", "m", "Warning")]
    cluster.until("off", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"]
    assert "ready" not in values(cluster, Node, "m", "status.phase")
    assert cluster.target() == 0
    cluster.behave("m", join_refused=False, startup_taints=())
    again = cluster.ready()
    assert cluster.fresh(again).status.attempt == 2


def test_a_gate_that_gives_up_takes_our_own_cordon_off(cluster):
    """A cordoned node is out of the autoscaler's sight: left so, its machine would be paid for by nobody's decision."""
    cluster.group(deleteNodeObjects=False)
    cluster.machine(startup_taints=(CILIUM,), startup_taints_clear=None)
    cluster.machine("spare")
    claim = cluster.claim()
    cluster.until("it registers", lambda: cluster.node() is not None)
    ours = {"metadata": {"annotations": {names.ANNOTATION_CORDONED_BY: "drain"}}, "spec": {"unschedulable": True}}
    cluster.client.patch(CoreNode, "node-m", None, MergePatch(ours))
    since = cluster.plane.server.store.revision
    ended(cluster, claim, "failed")
    cordons = [told(write.after, "spec.unschedulable") for write in writes_of(cluster, CoreNode, "node-m", since)]
    assert cordons[0] in {None, False}
    assert annotation(writes_of(cluster, CoreNode, "node-m", since)[0].after, names.ANNOTATION_CORDONED_BY) is None


# --- shutdowns that do not land -----------------------------------------------------------------------------------


def test_three_shutdown_jobs_that_do_not_land_are_followed_by_half_an_hour_of_rest_and_another_three(cluster):
    """One attempt for each Job and none for a look; the rest ends at its instant, without a look in between."""
    cluster.machine()
    claim = cluster.ready(call=Call.MANUAL)
    cluster.script("off", "m", sends=0, code=1)
    cluster.unclaim(claim)
    cluster.until("spent", lambda: cluster.fresh(claim).condition(ClaimCondition.NEEDS_HUMAN))
    last = cluster.fresh(claim).status
    assert (last.shutdown_attempts, last.attempt) == (3, 1)
    assert values(cluster, NodeClaim, claim.name, "status.shutdownAttempts") == [1, 2, 3]
    warned = [entry for entry in cluster.said if entry.reason == "ShutdownAttemptLimitReached"]
    assert {(entry.name, entry.type) for entry in warned} == {(claim.name, "Warning")}
    assert cluster.slot().status.phase == "draining"
    assert cluster.fresh(claim).committed
    assert made(cluster) == 3
    since, passes = cluster.plane.server.store.revision, cluster.operator.passes["slot"]
    rest = last.last_shutdown_attempt_at + timedelta(seconds=1800)
    cluster.run((rest - cluster.clock.now()).total_seconds() - 5)
    assert made(cluster) == 3
    assert [write for write in writes_of(cluster, NodeClaim, claim.name, since) if write.subresource] == []
    assert cluster.operator.passes["slot"] - passes <= 25, "the resync, and Jobs that went"
    cluster.run(10)
    assert made(cluster) == 4
    assert cluster.fresh(claim).status.shutdown_attempts == 1
    cluster.scripts.scripts.clear()
    cluster.until("off", lambda: at_rest(cluster))
    assert cluster.slot().status.last_claim.reason == "NodeDeleted"
    assert commands_of_jobs(cluster) == ["on", "off"]


def test_shutdowns_that_nobody_asked_for_are_counted_on_the_slot_until_its_machine_is_off(cluster):
    cluster.machine(on=True)
    cluster.script("off", "m", sends=0, code=1)
    cluster.until("spent", lambda: cluster.condition(cluster.slot(), "NeedsHuman"))
    passes = cluster.operator.passes["slot"]
    cluster.run(900)
    assert made(cluster) == 3
    assert cluster.operator.passes["slot"] - passes <= 20, "it rests"
    assert {entry.name for entry in cluster.said if entry.reason == "ShutdownAttemptLimitReached"} == {"m"}
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.until("off", lambda: cluster.slot().status.phase == "off")
    cluster.scripts.scripts.clear()
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("off again", lambda: commands_of_jobs(cluster) == ["off"], within=300)
    assert made(cluster) == 4


def made(cluster):
    """How many shutdown Jobs there ever were."""
    created = [write.name for write in cluster.writes() if (write.verb, write.resource) == ("create", "jobs")]
    return len([name for name in created if "-shutdown-" in name])


def test_setting_the_counter_back_by_hand_ends_the_rest_at_once(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.script("off", "m", sends=0, code=1)
    cluster.unclaim(claim)
    cluster.until("spent", lambda: cluster.fresh(claim).condition(ClaimCondition.NEEDS_HUMAN))
    cluster.scripts.scripts.clear()
    hatch = {"status": {"shutdownAttempts": 0, "lastShutdownAttemptAt": None}}
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch(hatch), subresource="status")
    cluster.until("off", lambda: at_rest(cluster), within=60)
    assert made(cluster) == 4


# --- at rest ------------------------------------------------------------------------------------------------------


def test_a_slot_is_looked_at_every_five_minutes_and_whenever_anything_is_written_on_it(cluster):
    cluster.machine()
    cluster.run(600)
    before = cluster.operator.passes["slot"]
    cluster.run(1500)
    assert 5 <= cluster.operator.passes["slot"] - before <= 6
    before = cluster.operator.passes["slot"]
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"annotations": {"example.org/look": "please"}}}))
    cluster.run(1)
    assert cluster.operator.passes["slot"] == before + 1


# --- a machine that is gone ---------------------------------------------------------------------------------------


def test_a_machine_that_came_back_is_given_a_whole_boot_window_the_next_time(cluster):
    cluster.machine()
    claim = cluster.ready()
    for away in (600, 640):
        cluster.in_loop(cluster.at("m").cut_power)
        cluster.until("seen", lambda: off_since(cluster, claim))
        since = off_since(cluster, claim)
        cluster.run(away)
        assert (cluster.phase(claim), off_since(cluster, claim)) == ("ready", since)
        assert cluster.slot().status.phase == "booting"
        cluster.in_loop(cluster.at("m").press_button)
        cluster.until("back", lambda: cluster.slot().status.phase == "ready")
        assert off_since(cluster, claim) is None
    assert commands_of_jobs(cluster) == ["on"]
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.until("seen", lambda: off_since(cluster, claim))
    since = off_since(cluster, claim)
    ended(cluster, claim, "failed")
    status = cluster.fresh(claim).status
    assert status.reason == "MachineGone"
    assert timedelta(seconds=730) <= status.finished_at - since <= timedelta(seconds=732)
    cluster.until("free", lambda: cluster.slot().status.phase == "off")
    assert cluster.increase()


def off_since(cluster, claim):
    """Since when the claim says that its machine is off; None if it does not."""
    said = cluster.condition(cluster.fresh(claim), ClaimCondition.MACHINE_OBSERVED_OFF)
    return said and said.last_transition_time


def test_a_slot_that_was_never_used_is_not_looked_at_all_the_time_while_its_machine_is_drained(cluster):
    cluster.machine(on=True)
    cluster.until("on", lambda: cluster.node() is not None)
    cluster.pod("stays")
    cluster.budget("never", {"app": "stays"})
    cluster.until("draining", lambda: cluster.node().spec.unschedulable)
    passes = cluster.operator.passes["slot"]
    cluster.run(60)
    assert cluster.operator.passes["slot"] - passes <= 65, "one step of the drain a second"


# --- the end of claims --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [None, 240])
def test_an_ended_claim_is_kept_for_an_hour_or_as_long_as_it_says(cluster, own):
    cluster.machine()
    cluster.script("on", "m", sends=0, code=1)
    claim = cluster.claim(ttl_seconds_after_finished=own)
    ended(cluster, claim, "failed")
    until = cluster.fresh(claim).status.finished_at + timedelta(seconds=own or 3600)
    cluster.run((until - cluster.clock.now()).total_seconds() - 2)
    assert cluster.phase(claim) == "failed"
    cluster.run(4)
    assert cluster.phase(claim) == "gone"
    assert cluster.slot().status.last_claim.uid == claim.uid


def test_a_slot_that_is_deleted_ends_its_waiting_claim_and_takes_it_along(cluster):
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-up", 3600)
    claim = cluster.claim()
    cluster.run(5)
    assert claim.metadata.owner_references[0].kind == "Node"
    since = cluster.plane.server.store.revision
    cluster.client.delete(Node, "m", "lab")
    cluster.until("gone", lambda: cluster.slot() is None, within=60)
    cluster.until("its claim went with it", lambda: cluster.phase(claim) == "gone", within=60)
    assert values(cluster, NodeClaim, claim.name, "status.reason", since) == ["SlotDeleted"]
    assert cluster.commands() == []


@pytest.mark.parametrize("newest", ["pending", "ready"])
def test_of_several_live_claims_the_newest_has_the_slot_and_the_others_end_superseded(cluster, newest):
    """No webhook stands before this server: it is what happens when admission could not see it."""
    cluster.machine()
    first = cluster.ready() if newest == "ready" else None
    cluster.kill()
    claims = [first] if first else []
    for name in ("one", "two", "three"):
        cluster.run(2)
        claims.append(cluster.claim_by_hand(name))
    cluster.start()
    cluster.until("ready", lambda: cluster.phase(claims[-1]) == "ready")
    assert [cluster.reason(claim) for claim in claims[:-1]] == ["Superseded"] * (len(claims) - 1)
    assert all(cluster.reasons(claim.name).count("ClaimSuperseded") == 1 for claim in claims[:-1])
    cluster.run(900)
    assert cluster.phase(claims[-1]) == "ready"
    assert commands_of_jobs(cluster) == ["on"], "one machine, one power-on"
