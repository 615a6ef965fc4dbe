"""Reports that somebody forges, and words of a node that is not to be trusted. On virtual time, with true numbers.

Statuses have a right of their own (docs/install.md, Rights), and what decides is read from claims' existence, nodes and
Jobs. Whoever has that right can cost a request its boot, and nobody a machine its end.
"""

import pytest
from virtual.rest import at_rest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Node, NodeClaim
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults

PHASES = ("booting", "ready")
FORGED = [
    {"phase": phase, "reason": reason}
    for phase, reason in (
        ("pending", None),
        ("booting", "StartupJobCreated"),
        ("ready", "MachineReady"),
        ("completed", "NodeDeleted"),
        ("failed", "MachineGone"),
        ("failed", "EmergencyReclaim"),
    )
] + [
    {"attempt": 99},
    {"startedAt": "2031-01-01T00:00:00Z", "powerRequestedAt": "2031-01-01T00:00:00Z"},
    {"finishedAt": "2031-01-01T00:00:00Z"},
    {"nodeName": "node-elsewhere"},
    {"shutdownAttempts": 99, "lastShutdownAttemptAt": "2031-01-01T00:00:00Z", "shutdownJobName": "m-shutdown-9"},
    {"inheritedDebt": True},
    {"conditions": [{"type": "MachineObservedOff", "status": "True", "reason": "ConfirmedOff"}]},
]


def brought(cluster, phase):
    cluster.machine(boot_seconds=45)
    claim = cluster.claim_by_hand("c")
    cluster.until("booting", lambda: cluster.power() == "booting")
    if phase == "ready":
        cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    return claim


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: " ".join(str(v) for v in forged.values())[:40])
@pytest.mark.parametrize("phase", PHASES)
def test_a_forged_status_of_a_claim_leaves_no_machine_on_and_powers_no_other(cluster, phase, forged):
    claim = brought(cluster, phase)
    cluster.client.patch(NodeClaim, "c", "lab", MergePatch({"status": forged}), subresource="status")
    cluster.run(120)
    assert cluster.commands().count("on") == 1
    found = cluster.fresh(claim)
    if found is not None and not found.marked:
        cluster.client.delete(NodeClaim, "c", "lab")
    cluster.until("free", lambda: at_rest(cluster, by_us=False), within=3 * 3600, step=30)
    again = cluster.claim_by_hand("again")
    cluster.until("ready", lambda: cluster.phase(again) == "ready", step=5)


@pytest.mark.parametrize(
    "forged",
    [
        {"phase": "off", "powerState": "off"},
        {"phase": "ready", "powerState": "on"},
        {"phase": "reclaimed"},
        {"lastClaim": None},
        {"conditions": [{"type": "PowerUnknown", "status": "True", "reason": "ShutdownUnproven"}]},
        {"recentActivations": ["2031-01-01T00:00:00Z"] * 512, "activationsTotal": 7},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("phase", PHASES)
def test_a_forged_report_of_a_slot_changes_no_power_command(cluster, phase, forged):
    claim = brought(cluster, phase)
    cluster.client.patch(Node, "m", "lab", MergePatch({"status": forged}), subresource="status")
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]


def test_what_a_node_says_of_itself_is_cut_and_made_readable_and_fails_no_write(cluster):
    cluster.machine(boot_seconds=20, startup_taints=({"key": "t", "effect": "NoSchedule"},), startup_taints_clear=None)
    claim = cluster.claim()
    cluster.until("it registers", lambda: cluster.node() is not None)
    cluster.behave("m", kubelet_hung=True)
    cluster.until("silent", lambda: cluster.node().condition("Ready").status == "Unknown")
    hostile = {"type": "Ready", "status": "Unknown", "reason": "\x1b[2J\n" + "A" * 100_000}
    cluster.client.patch(
        CoreNode, "node-m", None, MergePatch({"status": {"conditions": [hostile]}}), subresource="status"
    )
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=cluster.settings.gate_timeout + 30)
    assert cluster.reason(claim) == "ReadinessGateTimeout"
    found = cluster.fresh(claim).status
    for text in (found.message, *(entry.message for entry in found.conditions)):
        assert text.isprintable()
        assert len(text) < 2000


KEYS = (
    names.ANNOTATION_LOCK_TIMESTAMP,
    names.ANNOTATION_LOCK_TIMEOUT,
    names.ANNOTATION_LOCK_OWNER,
    names.ANNOTATION_SHUTDOWN_SEQ,
    names.ANNOTATION_SHUTDOWN_LEDGER,
    names.ANNOTATION_RETURN_UNTIL,
)


@pytest.mark.parametrize("text", ["9" * 5000, "inf", "²", "9999-12-31T23:59:59Z"], ids=lambda text: text[:5])
def test_nonsense_in_the_annotations_of_a_slot_holds_nothing_up(cluster, text):
    """What each of them reads as: test/unit/core/test_annotated.py."""
    cluster.machine(boot_seconds=20)
    cluster.run(1)
    nonsense = {names.ANNOTATION_LOCK: "scale-up", **dict.fromkeys(KEYS, text)}
    annotate(cluster, nonsense)
    claim = cluster.ready()
    annotate(cluster, nonsense)
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster), within=600)
    assert cluster.commands() == ["on", "off"]


def annotate(cluster, annotations):
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"annotations": annotations}}))
