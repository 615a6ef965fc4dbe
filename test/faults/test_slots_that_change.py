"""Pools and slots that are deleted, renamed, moved or asked for in opposite ways, in each phase of a machine.

On virtual time, with true numbers. Admission is not asked here: these are the rules that hold without it.
"""

import pytest
from virtual.locks import lock
from virtual.rest import at_rest, commands_of_jobs

from homelab_api import names
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.runtime import MergePatch, NotFoundError

pytestmark = pytest.mark.faults

PHASES = ("booting", "ready", "shutting down")


def brought(cluster, phase):
    """A claim whose machine is in the phase."""
    cluster.machine(boot_seconds=45, stop_seconds=45)
    claim = cluster.claim()
    if phase == "booting":
        cluster.until("booting", lambda: cluster.power() == "booting")
        return claim
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    if phase == "shutting down":
        cluster.unclaim(claim)
        cluster.until("stopping", lambda: cluster.power() == "stopping")
    return claim


def ended(cluster, claim, phase):
    """Whatever was changed: the request still comes to what it asked for, and the machine goes off afterwards."""
    if phase != "shutting down":
        cluster.until("ready", lambda: cluster.phase(claim) == "ready")
        cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_group_that_is_deleted_stays_until_its_machines_are_off(cluster, phase):
    claim = brought(cluster, phase)
    cluster.client.delete(Group, "pool", "lab")
    cluster.run(120)
    if phase != "shutting down":
        assert cluster.phase(claim) == "ready", "its rules are there as long as a machine needs them"
        assert not cluster.increase()
    ended(cluster, claim, phase)
    cluster.until("the group is gone", lambda: cluster.get(Group, "pool") is None)


@pytest.mark.parametrize("phase", PHASES)
def test_a_group_that_a_hand_takes_away_and_puts_back_changes_nothing_but_the_time(cluster, phase):
    claim = brought(cluster, phase)
    cluster.client.patch(Group, "pool", "lab", MergePatch({"metadata": {"finalizers": None}}))
    cluster.client.delete(Group, "pool", "lab")
    cluster.until("said", lambda: cluster.condition(cluster.slot(), "UnknownGroup"))
    cluster.run(90)
    sent = cluster.commands()
    cluster.group()
    ended(cluster, claim, phase)
    assert sent == (["on", "off"] if phase == "shutting down" else ["on"])
    assert cluster.condition(cluster.slot(), "UnknownGroup") is None


@pytest.mark.parametrize("phase", PHASES)
def test_a_slot_that_moves_to_another_group_takes_its_request_along(cluster, phase):
    cluster.group("other")
    claim = brought(cluster, phase)
    label = {"metadata": {"labels": {names.LABEL_GROUP: "other"}}}
    cluster.client.patch(Node, "m", "lab", MergePatch(label))
    cluster.run(1)
    if phase != "shutting down":
        assert (cluster.target("pool"), cluster.target("other")) == (0, 1)
    ended(cluster, claim, phase)


@pytest.mark.parametrize("phase", PHASES)
def test_a_node_name_that_changes_loses_no_machine(cluster, phase):
    """Without admission, which refuses it: the request goes on with the name that it was committed to."""
    claim = brought(cluster, phase)
    cluster.client.patch(Node, "m", "lab", MergePatch({"spec": {"kubernetesNodeName": "node-renamed"}}))
    ended(cluster, claim, phase)


@pytest.mark.parametrize("phase", PHASES)
def test_a_slot_that_is_renamed_switches_its_machine_off_under_the_old_name_first(cluster, phase):
    """Renamed in Git: the old slot is deleted and one with another name names the same node, at the same time."""
    brought(cluster, phase)
    cluster.run(1)  # Slots of one second are told apart by their uids, which nobody can foresee.
    body = cluster.slot_body("m")
    body["metadata"]["name"] = "renamed"
    cluster.client.delete(Node, "m", "lab")
    cluster.client.create_json(Node, body, "lab")
    cluster.until("the new one waits", lambda: "InvalidSlot" in cluster.reasons("renamed"))
    cluster.until("the old one is gone", lambda: cluster.slot("m") is None)
    assert (cluster.power(), cluster.commands()) == ("off", ["on", "off"])
    again = cluster.ready("renamed")
    assert cluster.commands() == ["on", "off", "on"]
    cluster.unclaim(again)
    cluster.until("off", lambda: cluster.phase(again) == "gone")


def test_a_second_slot_of_a_node_can_be_deleted_while_the_first_ones_machine_serves(cluster):
    cluster.machine()
    claim = cluster.ready()
    body = cluster.slot_body("m")
    body["metadata"]["name"] = "twin"
    cluster.client.create_json(Node, body, "lab")
    cluster.until("said", lambda: cluster.condition(cluster.slot("twin"), "InvalidSlot"))
    cluster.client.delete(Node, "twin", "lab")
    cluster.until("it is gone", lambda: cluster.slot("twin") is None, within=60)
    cluster.run(300)
    assert (cluster.phase(claim), cluster.commands()) == ("ready", ["on"])


# --- wanted and not wanted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [0.0, 0.2, 0.9])
def test_asked_for_and_given_back_within_a_second_is_one_operation_after_the_other(cluster, apart):
    cluster.machine()
    cluster.run(1)
    assert cluster.increase()
    (claim,) = cluster.claims()
    cluster.run(apart)
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster, by_us=bool(cluster.commands())))
    assert cluster.commands() in ([], ["off"], ["on", "off"])
    again = cluster.ready()
    assert cluster.fresh(again).status.attempt == 1, "a request that was taken back is no failed boot"


@pytest.mark.parametrize("apart", [0.0, 0.2, 0.9])
def test_given_back_and_asked_for_within_a_second_is_one_operation_after_the_other(cluster, apart):
    cluster.machine(stop_seconds=5)
    first = cluster.ready()
    cluster.unclaim(first)
    cluster.run(apart)
    second = cluster.claim_by_hand("again")
    cluster.until("ready", lambda: cluster.phase(second) == "ready")
    assert cluster.commands() in (["on"], ["on", "off", "on"])
    assert cluster.fresh(second).status.attempt == 1
    assert cluster.target() == 1


def test_requests_that_come_and_go_by_the_second_in_a_whole_pool_are_served_one_operation_after_the_other(cluster):
    """Five requests a minute for each of ten slots, each withdrawn when the next one comes."""
    slots = [f"m{number}" for number in range(10)]
    for name in slots:
        cluster.machine(name, boot_seconds=20)
    cluster.run(1)
    newest = {}
    for tick in range(10):
        for name in slots[tick % 2 :: 2]:
            if name in newest:
                withdraw(cluster, newest[name])
            newest[name] = cluster.claim_by_hand(f"{name}-{tick}", name)
        cluster.run(6)
    cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in newest.values()), step=10)
    for name in slots:
        sent = commands_of_jobs(cluster, name)
        assert (sent[0], sent[-1]) == ("on", "on")
        assert sent.count("on") <= 5, "one for each request at the most"
        assert cluster.fresh(newest[name]).status.attempt == 1
    assert cluster.target() == 10


def withdraw(cluster, claim):
    try:
        cluster.client.delete(NodeClaim, claim.name, "lab")
    except NotFoundError:
        return


# --- the gate ---------------------------------------------------------------------------------------------------

NOT_READY = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}


def test_a_readiness_taint_that_never_goes_fails_its_claim_once_and_leaves_no_cordon(cluster):
    cluster.machine(startup_taints=(NOT_READY,), startup_taints_clear=None)
    claim = cluster.claim()
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "ReadinessGateTimeout"
    assert "node.cilium.io/agent-not-ready:NoExecute" in cluster.fresh(claim).status.message
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]
    assert cluster.reasons(claim.name).count("ClaimFailed") == 1


def test_a_readiness_taint_that_goes_and_returns_changes_the_report_and_not_the_claim(cluster):
    cluster.machine(startup_taints=(NOT_READY,), startup_taints_clear=20.0)
    claim = cluster.ready()
    taints = [taint.to_json() for taint in cluster.node().spec.taints]
    returned = MergePatch({"spec": {"taints": [*taints, NOT_READY]}})
    cluster.client.patch(type(cluster.node()), "node-m", None, returned)
    cluster.run(1200)
    assert (cluster.phase(claim), cluster.slot().status.phase) == ("ready", "booting")
    assert not cluster.node().spec.unschedulable
    cluster.client.patch(type(cluster.node()), "node-m", None, MergePatch({"spec": {"taints": taints}}))
    cluster.until("usable", lambda: cluster.slot().status.phase == "ready")
    assert cluster.commands() == ["on"]


def test_a_lock_that_another_manager_takes_in_a_long_gate_leads_to_no_second_command(cluster):
    """Renewing failed half-way: the belt is somebody else's now, and the one power-on was sent."""
    cluster.group(maxNodeProvisionTime="40m")
    cluster.machine(boot_seconds=900)
    assert cluster.increase()
    (claim,) = cluster.claims()
    cluster.until("booting", lambda: cluster.power() == "booting")
    cluster.run(200)
    lock(cluster, "scale-down", 300, "other-1/9")
    cluster.run(100)
    assert cluster.slot().metadata.annotations[names.ANNOTATION_LOCK_OWNER] == "other-1/9", "not ours to renew"
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.commands() == ["on"]
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]


def test_marks_of_another_version_are_kept_and_a_lock_that_it_took_is_respected(cluster):
    """An upgrade that is taken back: what the newer one wrote must neither stop this one nor be lost by it."""
    cluster.machine()
    cluster.run(1)
    newer = {
        "finalizers": [*cluster.slot().metadata.finalizers, "infra.homecluster.dev/of-a-newer-version"],
        "annotations": {
            "infra.homecluster.dev/of-a-newer-version": '{"v":2}',
            names.ANNOTATION_SHUTDOWN_LEDGER: '{"v":2,"attempts":"many","more":{}}',
            names.ANNOTATION_LOCK: "firmware-update",
            names.ANNOTATION_LOCK_OWNER: "manager-of-a-newer-version/12",
            names.ANNOTATION_LOCK_TIMESTAMP: cluster.clock.now().isoformat(),
            names.ANNOTATION_LOCK_TIMEOUT: "300",
        },
    }
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": newer}))
    claim = cluster.claim()
    cluster.run(280)
    assert cluster.commands() == []
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]
    kept = cluster.slot().metadata
    assert "infra.homecluster.dev/of-a-newer-version" in kept.finalizers
    assert kept.annotations["infra.homecluster.dev/of-a-newer-version"] == '{"v":2}'
