"""What Git does to objects while the operator works on them. On virtual time, with true numbers."""

import pytest
from virtual.cluster import at_once
from virtual.rest import at_rest

from homelab_api import names
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.cli.snapshot import take_what_is_left
from homelab_autoscaler.cli.still_on import still_on
from homelab_autoscaler.runtime import ApplyPatch, MergePatch
from homelab_autoscaler.sandbox import resources

pytestmark = pytest.mark.faults


STRIPPED = {
    "before the boot": lambda cluster, claim: cluster.phase(claim) == "pending",
    "while it boots": lambda cluster, claim: cluster.commands() == ["on"],
    "while it serves": lambda cluster, claim: cluster.phase(claim) == "ready",
    "while it is drained": lambda cluster, claim: cluster.slot().status.phase == "draining",
    "after its shutdown": lambda cluster, claim: "off" in cluster.commands(),
}


@pytest.mark.parametrize("when", STRIPPED)
def test_a_slot_whose_annotations_are_stripped_by_git_is_powered_as_if_they_were_there(cluster, when):
    """A lock, a sequence number and a ledger are lost: belts, beside the names of Jobs and the second read."""
    cluster.machine()
    claim = cluster.claim()
    stripped = False
    for _ in range(4000):
        if (
            cluster.phase(claim) == "ready"
            and not claim_is_marked(cluster, claim)
            and (when != "while it serves" or stripped)
        ):
            cluster.unclaim(claim)
        if not stripped and STRIPPED[when](cluster, claim):
            strip(cluster)
            stripped = True
        if cluster.phase(claim) == "gone":
            break
        cluster.run(0.5)
    assert stripped
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]


def claim_is_marked(cluster, claim):
    found = cluster.fresh(claim)
    return found is None or found.marked


def strip(cluster):
    slot = cluster.slot()
    gone = dict.fromkeys(slot.metadata.annotations)
    cluster.client.patch(type(slot), "m", "lab", MergePatch({"metadata": {"annotations": gone}}))


def test_a_manifest_that_is_applied_again_every_half_minute_changes_nothing(cluster):
    cluster.machine()
    body = cluster.slot_body("m")
    declared = cluster.slot().spec.to_json()
    claim = cluster.claim()
    for _ in range(20):
        apply(cluster, body)
        cluster.run(30)
    assert cluster.phase(claim) == "ready"
    version = cluster.slot().metadata.resource_version
    apply(cluster, body)
    cluster.run(300)
    assert cluster.slot().metadata.resource_version == version, "neither Git nor the operator has anything to write"
    cluster.unclaim(claim)
    for _ in range(20):
        apply(cluster, body)
        cluster.run(30)
    assert at_rest(cluster)
    assert cluster.commands() == ["on", "off"]
    assert cluster.slot().spec.to_json() == declared, "what Git owns is written by nobody of ours"
    assert cluster.slot().metadata.generation == 1


def apply(cluster, body):
    """Server-side apply, by another manager."""
    full = {"apiVersion": f"{names.GROUP}/v2alpha1", "kind": "Node", **body}
    cluster.client.patch(type(cluster.slot()), "m", "lab", ApplyPatch(full, field_manager="git", force=True))


@pytest.mark.parametrize("on", [False, True])
def test_a_slot_and_a_claim_applied_before_their_group_wait_for_it(cluster, on):
    cluster.machine(on=on, group="late", boot_seconds=30)
    claim = cluster.claim_by_hand("early", group="late")
    cluster.run(600)
    assert cluster.condition(cluster.slot(), "UnknownGroup").reason == "GroupNotFound"
    assert cluster.phase(claim) == "pending"
    assert (cluster.commands(), cluster.jobs()) == ([], [])
    assert cluster.power() == ("up" if on else "off")
    cluster.group("late")
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.commands() == ([] if on else ["on"])
    assert cluster.condition(cluster.slot(), "UnknownGroup") is None


# --- uninstalled in the wrong order -----------------------------------------------------------------------------


def test_a_namespace_deleted_before_its_machines_are_off_says_so_and_goes_when_a_person_gives_them_up(cluster):
    """No Job can be created in a namespace that is being deleted, so a person has the next word."""
    cluster.machine()
    claim = cluster.ready()
    cluster.in_loop(lambda: at_once(cluster.plane.server.local().delete("/api/v1/namespaces/lab")))
    said = cluster.until("it says so", lambda: cluster.condition(cluster.fresh(claim), "NeedsHuman"))
    assert said <= 120
    assert cluster.condition(cluster.fresh(claim), "NeedsHuman").reason == "NamespaceTerminating"
    cluster.until("the slot too", lambda: cluster.condition(cluster.slot(), "NeedsHuman"))
    assert (cluster.commands(), cluster.power()) == (["on"], "up")
    cluster.run(120)
    assert (cluster.phase(claim), claim_is_marked(cluster, claim)) == ("ready", True)
    for found in (cluster.fresh(claim), cluster.slot()):
        note = {"metadata": {"annotations": {names.ANNOTATION_ABANDON: found.uid}}}
        cluster.client.patch(type(found), found.name, "lab", MergePatch(note))
    cluster.until("all is gone", lambda: cluster.slot() is None and cluster.claims() == [])
    assert cluster.node() is not None, "the node of a machine that may be on is left alone"


def test_a_namespace_deleted_before_its_machines_are_off_goes_when_they_are_switched_off_by_hand(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.in_loop(lambda: at_once(cluster.plane.server.local().delete("/api/v1/namespaces/lab")))
    cluster.until("it says so", lambda: cluster.condition(cluster.fresh(claim), "NeedsHuman"))
    cluster.in_loop(lambda: cluster.at("m").press_button() and None)
    cluster.until("all is gone", lambda: cluster.slot() is None and cluster.claims() == [])
    assert (cluster.commands(), cluster.power()) == (["on", "off"], "off"), "the second one is the hand's"


def test_whatever_is_taken_away_first_the_machines_that_are_still_on_can_be_listed(cluster):
    """Slots, then their namespace, then the kinds: what is left is read, down to the labels of the nodes."""
    for name in ("on", "silent", "off"):
        cluster.machine(name)
    claims = {name: cluster.ready(name) for name in ("on", "silent", "off")}
    cluster.unclaim(claims["off"])
    cluster.until("off", lambda: at_rest(cluster, "off"))
    cluster.behave("silent", kubelet_hung=True)
    cluster.run(120)
    assert listed(cluster) == {"node-on": "on", "node-silent": "maybe"}
    cluster.kill()
    cluster.in_loop(lambda: at_once(cluster.plane.server.local().delete("/api/v1/namespaces/lab")))
    assert listed(cluster) == {"node-on": "on", "node-silent": "maybe"}
    for kind in (Group, Node, NodeClaim):
        for found in cluster.client.list(kind, "lab").items:
            cluster.client.patch(kind, found.name, "lab", MergePatch({"metadata": {"finalizers": None}}))
    cluster.run(30)
    assert cluster.slot("on") is None
    assert listed(cluster) == {"node-on": "on", "node-silent": "maybe"}
    for kind in (Group, Node, NodeClaim, NodeReclaim):
        target = resources.path(resources.CRDS, name=f"{kind.resource.plural}.{names.GROUP}")
        cluster.in_loop(lambda target=target: at_once(cluster.plane.server.local().delete(target)))
    cluster.run(30)
    assert listed(cluster) == {"node-on": "on", "node-silent": "maybe"}


def listed(cluster):
    """What `homelab-autoscaler status --on` prints."""
    return {machine.node: machine.power for machine in still_on(take_what_is_left(cluster.client, "lab"))}
