"""Views that are older than one's own writes, events that never came, deaths between two writes.

Kinds watch-gap, stale-cache and crash-midway. Here every event of a kind is held back while passes go on; the runtime
would keep a pass from running before it has seen its own writes, so this is worse than what can happen.
"""

import pytest
from virtual.operator import Died, holding

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.runtime import MergePatch

KINDS = [Job, NodeClaim, Node, CoreNode]


def insist(cluster, seconds):
    """Passes over everything, again and again, on whatever the caches have."""
    for _ in range(seconds):
        cluster.operator.resync()
        cluster.run(1)


def made(cluster, what):
    """Names of Jobs that were created."""
    return [
        write.name
        for write in cluster.writes()
        if write.verb == "create" and write.resource.endswith("jobs") and what in write.name
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leader_change", [False, True])
def test_views_that_lag_through_a_boot_buy_one_machine_once(cluster, kind, leader_change):
    cluster.machine()
    cluster.run(1)
    assert cluster.increase()
    cluster.run(0.2)
    (claim,) = cluster.claims()
    with holding(cluster.operator, kind):
        insist(cluster, 10)
        if leader_change:
            cluster.kill()
    if leader_change:
        cluster.start()
        with holding(cluster.operator, kind):
            insist(cluster, 10)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=900)
    assert cluster.commands() == ["on"]
    assert len(made(cluster, "startup")) == 1
    assert cluster.target() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_views_that_lag_through_a_shutdown_send_one_command(cluster, kind):
    cluster.machine()
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.run(0.2)
    with holding(cluster.operator, kind):
        insist(cluster, 20)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=900)
    assert cluster.commands() == ["on", "off"]
    assert cluster.power() == "off"


@pytest.mark.parametrize("seconds", [10, 60])
def test_an_old_view_of_a_deleted_claim_does_nothing_to_the_machine_of_its_successor(cluster, seconds):
    cluster.machine()
    first = cluster.claim_by_hand("mine")
    cluster.until("ready", lambda: cluster.phase(first) == "ready")
    cluster.pod("app")
    cluster.kill()
    cluster.client.delete(NodeClaim, "mine", "lab")
    operator = cluster.start()
    operator.before_turn()
    operator.held.add(NodeClaim)
    forget(cluster, first)
    second = cluster.claim_by_hand("mine")
    insist(cluster, seconds)
    assert cluster.commands() == ["on"]
    assert not cluster.node().spec.unschedulable
    assert [pod.name for pod in cluster.pods() if pod.name == "app" and not pod.marked] == ["app"]
    operator.held.clear()
    cluster.until("ready", lambda: cluster.phase(second) == "ready", within=900)
    assert cluster.commands() == ["on"]
    assert not cluster.node().spec.unschedulable


def forget(cluster, claim):
    """The claim goes as if its finalizer had been taken off elsewhere."""
    cluster.client.patch(NodeClaim, claim.name, "lab", MergePatch({"metadata": {"finalizers": None}}))


@pytest.mark.parametrize("what", ["a claim that came and went", "a node that flickered", "a Job that ended"])
def test_what_happened_inside_a_gap_is_not_needed_to_get_to_the_same_end(cluster, what):
    cluster.machine()
    claim = cluster.ready()
    with holding(cluster.operator, NodeClaim, CoreNode, Job):
        if what == "a claim that came and went":
            brief = cluster.claim_by_hand("brief")
            cluster.run(5)
            cluster.client.delete(NodeClaim, brief.name, "lab")
        elif what == "a node that flickered":
            cluster.behave("m", kubelet_hung=True)
            cluster.run(90)
            assert cluster.node().condition("Ready").status == "Unknown"
            cluster.behave("m", kubelet_hung=False)
            cluster.until("Ready again", lambda: cluster.node().condition("Ready").status == "True")
        else:
            cluster.unclaim(claim)
            cluster.run(120)
    cluster.run(1800)
    if what == "a Job that ended":
        assert cluster.phase(claim) == "gone"
        assert cluster.commands() == ["on", "off"]
    else:
        assert cluster.phase(claim) == "ready"
        assert cluster.slot().status.phase == "ready"
        assert cluster.commands() == ["on"]


def test_a_group_that_arrives_after_its_slots_and_claims_changes_nothing_but_the_time(cluster):
    cluster.operator.held.add(Group)
    cluster.machine(group="late")
    claim = cluster.claim()
    cluster.run(60)
    assert cluster.commands() == []
    cluster.group("late")
    cluster.operator.held.clear()
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.commands() == ["on"]


class Assassin:
    """Ends the operator when the server has taken its write number `at`, before it hears of that."""

    def __init__(self, cluster, at):
        self.struck = False
        self._left = at
        self._cluster = cluster
        self._revived = False
        cluster.operator.client.transport.after = self._strike

    def _strike(self, method, _target, _body):
        if method != "GET" and not self.struck:
            self._left -= 1
            if self._left == 0:
                self.struck = True
                raise Died

    def revive(self):
        """What a Deployment does."""
        if self.struck and not self._revived:
            self._revived = True
            self._cluster.restart()


def test_a_death_after_any_write_of_a_whole_life_is_healed(cluster):
    struck, at = 0, 0
    while struck == at:
        at += 1
        name = f"m{at}"
        cluster.machine(name)
        cluster.run(1)
        assassin = Assassin(cluster, at)
        _live(cluster, name, assassin.revive)
        struck += assassin.struck
        assert cluster.commands(name) == ["on", "off"], f"killed after write {at}"
        assert cluster.power(name) == "off"
        assert cluster.node(name) is None
        assert not [key for key in cluster.slot(name).metadata.annotations if "/lock" in key]
    assert struck >= 25


def _live(cluster, name, revive):
    """A boot and a shutdown, with a new process in the place of one that died."""
    claim = cluster.claim(name)

    def reached(phase):
        def holds():
            revive()
            return cluster.phase(claim) == phase

        return holds

    cluster.until("ready", reached("ready"), within=1800, step=2)
    cluster.unclaim(claim)
    cluster.until("gone", reached("gone"), within=1800, step=2)
    cluster.until("resting", lambda: revive() or cluster.slot(name).status.phase == "off", within=900)
    cluster.run(60)
    revive()
    cluster.run(60)


def test_a_ready_machine_is_not_failed_by_the_deadline_that_a_death_left_on_its_claim(cluster):
    cluster.machine()
    claim = cluster.claim()
    wire = cluster.operator.client.transport

    def strike(method, target, body):
        if method == "PATCH" and "/nodeclaims/" in target and b'"deadlineAt":null' in body:
            raise Died

    wire.before = strike
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.fresh(claim).spec.deadline_at is not None
    cluster.run(900)
    cluster.restart()
    cluster.run(60)
    assert cluster.phase(claim) == "ready"
    assert cluster.fresh(claim).spec.deadline_at is None
    assert cluster.commands() == ["on"]
