"""What a slot and a pool report: written by whom, from what, and read by nobody who decides."""

import json
from datetime import timedelta

import pytest
from virtual.locks import lock
from virtual.rest import at_rest, commands_of_jobs
from virtual.told import OPERATOR, told, values, writes_of

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Group, Node, SlotPhase
from homelab_autoscaler.runtime import MergePatch, Result
from homelab_autoscaler.sandbox.apiserver import Fault

LIES = {
    "previousPhase": "ready",
    "lastTransitionTime": "2020-01-01T00:00:00Z",
    "recentTransitions": [{"at": "2020-01-01T00:00:00Z", "to": "ready"}],
    "recentActivations": ["2020-01-01T00:00:00Z"] * 3,
    "activationsTotal": 900,
    "activationsLast24H": 800,
    "conditions": [
        {"type": kind, "status": status, "reason": "Lie", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        for kind, status in (
            ("Observed", "False"),
            ("Usable", "False"),
            ("Autoscaler", "False"),
            ("NeedsHuman", "True"),
            ("Protected", "True"),
            ("PowerFlapping", "True"),
            ("Exhausted", "True"),
            ("InvalidSlot", "True"),
            ("KubeletAlive", "True"),
        )
    ],
}


def lie(cluster, **status):
    cluster.client.patch(Node, "m", "lab", MergePatch({"status": {**LIES, **status}}), subresource="status")


def ask_for_a_pass(cluster):
    """A write that says nothing: an annotation that nobody of ours reads."""
    at = str(cluster.seconds)
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"annotations": {"example.org/pass": at}}}))


@pytest.mark.parametrize("truth", ["off", "ready", "draining"])
def test_a_report_that_lies_moves_no_machine_and_is_put_right(cluster, truth):
    """Whatever a slot is made to say, the same commands follow as if it had told the truth; the next pass tells it."""
    cluster.machine()
    if truth != "off":
        claim = cluster.ready()
    if truth == "draining":
        cluster.pod("stays")
        cluster.budget("never", {"app": "stays"})
        cluster.unclaim(claim)
    cluster.run(30)
    power = cluster.slot().status.power_state
    for said in SlotPhase:
        lie(cluster, phase=said, powerState="on" if power == "off" else "off")
        ask_for_a_pass(cluster)
        cluster.run(5)
        assert (cluster.slot().status.phase, cluster.slot().status.power_state) == (truth, power)
        assert not cluster.condition(cluster.slot(), "InvalidSlot")
        assert not cluster.condition(cluster.slot(), "Exhausted")
    cluster.run(120)
    assert commands_of_jobs(cluster) == ([] if truth == "off" else ["on"])
    if truth == "draining":
        cluster.until("off", lambda: at_rest(cluster))
        assert commands_of_jobs(cluster) == ["on", "off"]
    elif truth == "off":
        cluster.ready()


def test_a_pools_report_that_lies_moves_no_machine_and_is_put_right(cluster):
    cluster.machine("a")
    cluster.machine("b")
    cluster.ready("a")
    lies = {"slots": 9, "on": 0, "off": 9, "target": 7, "health": "offline", "lastScaleAction": "up: 0 → 7"}
    cluster.client.patch(Group, "pool", "lab", MergePatch({"status": lies}), subresource="status")
    assert cluster.target() == 1
    cluster.run(5)
    status = cluster.get(Group, "pool").status
    assert (status.slots, status.on, status.off, status.target, status.health) == (2, 1, 1, 1, "healthy")
    cluster.run(600)
    assert (cluster.commands("a"), cluster.commands("b")) == (["on"], [])


def test_a_slot_that_was_never_used_reports_itself_off_in_its_first_pass(cluster):
    cluster.machine()
    cluster.run(1)
    status = cluster.slot().status
    assert (status.phase, status.power_state, status.previous_phase) == ("off", "off", None)
    assert [(entry.from_phase, entry.to) for entry in status.recent_transitions] == [(None, "off")]
    assert status.last_transition_time == status.recent_transitions[0].at
    assert (status.activations_total, status.activations_last24_h) == (0, 0)


def test_a_life_is_told_in_order_by_ring_counts_and_times_and_is_there_when_everything_else_is_gone(cluster):
    cluster.machine()
    cluster.run(1)
    began = cluster.clock.now()
    claim = cluster.ready(ttl_seconds_after_finished=120)
    asked = cluster.fresh(claim)
    cluster.run(600)
    cluster.unclaim(claim)
    cluster.until("collected", lambda: cluster.phase(claim) == "gone")
    cluster.run(700)
    assert cluster.claims() == []
    assert cluster.jobs() == []
    status = cluster.slot().status
    assert [entry.to for entry in status.recent_transitions] == [
        "off",
        "pending",
        "booting",
        "ready",
        "draining",
        "off",
    ]
    assert [entry.claim for entry in status.recent_transitions] == ["", *[claim.name] * 5]
    times = [entry.at for entry in status.recent_transitions]
    assert times == sorted(times)
    assert (status.previous_phase, status.last_transition_time) == ("draining", times[-1])
    assert (status.activations_total, status.activations_last24_h) == (1, 1)
    assert status.recent_activations == [times[2]]
    last = status.last_claim
    assert (last.name, last.uid, last.phase, last.attempt) == (claim.name, claim.uid, "completed", 1)
    assert (last.call, last.group, last.reason) == ("IncreaseSize", "pool", "NodeDeleted")
    assert last.requested_at == asked.spec.requested_at
    assert marks(cluster) == ["NotInTarget", "InTarget", "Deleting", "NotInTarget"]
    assert began <= last.requested_at < last.finished_at <= times[-1] + timedelta(seconds=60)


def marks(cluster):
    """What the slot said, one after the other, of its place in the autoscaler's target."""
    found = []
    for write in writes_of(cluster, Node, "m"):
        said = [entry for entry in told(write.after, "status.conditions") or [] if entry["type"] == "Autoscaler"]
        found += [entry["reason"] for entry in said if entry["reason"] not in found[-1:]]
    return found


def test_a_failed_claims_digest_keeps_its_deadline(cluster):
    cluster.machine(power_on="lie")
    claim = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    cluster.until("digested", lambda: cluster.slot().status.last_claim)
    last = cluster.slot().status.last_claim
    assert (last.phase, last.reason) == ("failed", "ReadinessGateTimeout")
    assert last.deadline_at == claim.spec.deadline_at
    assert last.finished_at == cluster.fresh(claim).status.finished_at


# --- two writers --------------------------------------------------------------------------------------------------


def test_observed_power_and_the_report_that_follows_from_it_are_one_write(cluster):
    cluster.machine()
    cluster.run(1)
    cluster.unclaim(cluster.ready())
    cluster.until("off", lambda: at_rest(cluster))
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("on by a hand", lambda: cluster.slot().status.power_state == "on")
    turns = [
        [
            told(write.before, "status.phase"),
            *(told(write.after, f"status.{field}") for field in ("powerState", "phase")),
        ]
        for write in writes_of(cluster, Node, "m")
        if told(write.before, "status.powerState") != told(write.after, "status.powerState")
    ]
    assert turns[0] == [None, "off", "off"]
    assert [power for _, power, _ in turns] == ["off", "on", "off", "on"]
    assert turns[2:] == [["draining", "off", "off"], ["off", "on", "draining"]]


def test_without_any_further_word_of_the_node_the_gate_reports_the_machine_that_it_opened_for(cluster):
    """The slot still records the machine as off when the gate answers: its own read of the node outranks that."""
    cluster.machine()
    claim = cluster.claim()
    cluster.until("booting", lambda: cluster.slot().status.phase == "booting")
    observation = cluster.operator.reconcilers["observation"]
    cluster.operator.reconcilers["observation"] = _Deaf()
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.run(0.1)
    assert cluster.slot().status.power_state == "off", "nobody observed the machine"
    assert cluster.slot().status.phase == "ready"
    cluster.operator.reconcilers["observation"] = observation


class _Deaf:
    """A controller whose events never come."""

    def reconcile(self, _request):
        return Result()


def test_a_claim_that_ends_with_nobody_at_the_node_is_reported_by_the_pass_over_its_slot(cluster):
    """No node object exists, so no event of one comes: the pass that reads the end is the only witness."""
    cluster.machine()
    cluster.run(1)
    lock(cluster, "scale-up", 3600, "somebody/9")
    deadline = cluster.clock.now() + timedelta(seconds=120)
    claim = cluster.claim_by_hand("mine", deadlineAt=deadline.isoformat().replace("+00:00", "Z"))
    cluster.run(60)
    assert cluster.slot().status.phase == "pending"
    cluster.operator.reconcilers["observation"] = _Deaf()
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    cluster.run(1)
    assert cluster.node() is None
    assert cluster.slot().status.phase == "off"


def test_a_pass_with_an_older_view_of_the_node_does_not_write_over_what_was_observed(cluster):
    """The machine is seen going off; a pass of an old view, in which it still is on, has nothing to report."""
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("stays")
    cluster.budget("never", {"app": "stays"})
    cluster.unclaim(claim)
    cluster.until("draining", lambda: cluster.slot().status.phase == "draining")
    cluster.operator.held.add(CoreNode)
    cluster.client.patch(
        Node, "m", "lab", MergePatch({"status": {"phase": "off", "powerState": "off"}}), subresource="status"
    )
    cluster.operator.reconcilers["observation"] = _Deaf()
    since = cluster.plane.server.store.revision
    for _ in range(5):
        ask_for_a_pass(cluster)
        cluster.run(1)
    assert values(cluster, Node, "m", "status.phase", since) == []
    assert cluster.slot().status.phase == "off"


@pytest.mark.parametrize("writer", ["slot", "observation"])
def test_a_report_that_was_refused_is_made_again_though_no_event_follows(cluster, writer):
    """Nobody else writes anything: without a wish of its own the next look would come five minutes later."""
    cluster.machine()
    cluster.run(30)
    other = "observation" if writer == "slot" else "slot"
    cluster.operator.reconcilers[other] = _Deaf()
    refusal = Fault(kind="conflict", verb="patch", resource="*nodes", subresource="status", user="*manager*", count=3)
    cluster.client.patch(Node, "m", "lab", MergePatch({"status": {"phase": "ready"}}), subresource="status")
    cluster.plane.server.faults.add(refusal)
    cluster.run(1)
    assert cluster.slot().status.phase == "ready", "refused"
    cluster.run(4)
    assert cluster.slot().status.phase == "off"


# --- a pool -------------------------------------------------------------------------------------------------------


def test_a_pool_reports_its_sizes_its_health_and_its_last_change_of_size(cluster):
    cluster.run(1)
    assert cluster.get(Group, "pool").status.health == "unknown", "a pool without slots"
    for name in "abc":
        cluster.machine(name)
    cluster.run(1)
    quiet = cluster.get(Group, "pool").status
    assert (quiet.slots, quiet.on, quiet.off, quiet.target, quiet.health) == (3, 0, 3, 0, "healthy")
    assert quiet.last_scale_action is None
    claim = cluster.claim("a")
    cluster.run(1)
    grown = cluster.get(Group, "pool").status
    assert (grown.target, grown.last_scale_action) == (1, "up: 0 → 1")
    assert grown.last_scale_at is not None
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.run(1)
    assert (cluster.get(Group, "pool").status.on, cluster.get(Group, "pool").status.off) == (1, 2)
    cluster.script("on", "b", sends=0, code=1)
    cluster.script("off", "b", seconds=30)
    failed = cluster.claim("b")
    cluster.until("failed", lambda: cluster.phase(failed) == "failed")
    cluster.run(1)
    assert cluster.get(Group, "pool").status.health == "degraded"
    cluster.unclaim(claim)
    cluster.run(1)
    shrunk = cluster.get(Group, "pool").status
    assert (shrunk.target, shrunk.last_scale_action) == (0, "down: 1 → 0")
    assert shrunk.last_scale_at > grown.last_scale_at


# --- who writes what ----------------------------------------------------------------------------------------------

WRITTEN = {
    ("infra.homecluster.dev", "nodes"): {"status", "metadata.finalizers", "metadata.annotations"},
    ("infra.homecluster.dev", "nodeclaims"): {"status", "metadata.finalizers", "spec.deadlineAt"},
    ("infra.homecluster.dev", "groups"): {"status", "metadata.finalizers"},
    ("", "nodes"): {"spec.unschedulable", "spec.taints", "spec.providerID", "metadata.labels", "metadata.annotations"},
    ("batch", "jobs"): {"spec.suspend"},
}
"""What the operator changes of objects that are there: by kind, the beginnings of paths."""


def test_a_life_changes_these_fields_and_no_others_and_leaves_no_state_on_the_slot(cluster):
    """A boot that fails, one that serves, a node that is drained, a machine that a hand switched on."""
    cluster.group(nodeTaints=[{"key": "example.org/pool", "effect": "NoSchedule"}])
    cluster.machine()
    cluster.run(1)
    before = set(cluster.slot().metadata.annotations)
    cluster.script("on", "m", sends=0, code=1)
    failed = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(failed) == "failed")
    cluster.until("off", lambda: at_rest(cluster))
    cluster.scripts.scripts.clear()
    claim = cluster.ready(ttl_seconds_after_finished=120)
    assert set(cluster.slot().metadata.annotations) == before | {
        names.ANNOTATION_SHUTDOWN_SEQ,
        names.ANNOTATION_SHUTDOWN_LEDGER,
    }
    cluster.unclaim(claim)
    cluster.until("off", lambda: at_rest(cluster))
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("on", lambda: cluster.power() == "up")
    cluster.until("off again", lambda: at_rest(cluster))
    cluster.run(4000)
    changed = set()
    for write in cluster.writes():
        if write.user == OPERATOR and write.type == "MODIFIED":
            allowed = WRITTEN.get((write.group, write.resource), set())
            wrong = [path for path in write.fields if not any(path.startswith(start) for start in allowed)]
            gone = "metadata.deletionTimestamp" in write.fields and write.verb == "delete"
            assert not wrong or gone, f"{write.verb} {write.resource}/{write.name}: {wrong}"
            changed |= {(write.group, write.resource)}
    assert changed == WRITTEN.keys()
    kept = cluster.slot().metadata.annotations
    assert json.loads(kept[names.ANNOTATION_SHUTDOWN_LEDGER]).keys() <= {"releases", "jobName", "asker"}
    assert set(kept) == before | {names.ANNOTATION_SHUTDOWN_SEQ, names.ANNOTATION_SHUTDOWN_LEDGER}, (
        "how often, no state"
    )
