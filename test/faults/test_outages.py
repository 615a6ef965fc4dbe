"""An API server that is away, takes no writes, refuses one write again and again, or tells of things in any order.

On virtual time, with true numbers: an outage of an hour is an hour.
"""

import random

import pytest
from virtual.operator import WATCHED
from virtual.rest import at_rest

from homelab_autoscaler.runtime import ConflictError
from homelab_autoscaler.runtime.errors import InternalServerError, TransportError

pytestmark = pytest.mark.faults

SOON = 15 * 60
"""Whatever was out, and however long: so much later the machine is what it was wanted to be."""


JOB_TTL = 600


def away(_method, target, _body):
    raise TransportError(f"{target}: nobody answers", sent=False)


def read_only(method, target, _body):
    if method != "GET":
        raise InternalServerError(f"{method} {target}: etcdserver: mvcc: database space exceeded", status=500)


class Outage:
    """The operator is cut off from some point of a life on, and from some later point it is not."""

    def __init__(self, cluster, how):
        self.cluster = cluster
        self.how = how

    def last(self, seconds):
        operator = self.cluster.operator
        operator.client.transport.before = self.how
        if self.how is away:
            operator.held.update(WATCHED)
        # Whoever is asked in vain asks again, and each list that fails wakes nobody.
        for _ in range(6):
            operator.resync()
            self.cluster.run(seconds / 6)
        operator.client.transport.before = lambda *_: None
        operator.held.clear()
        self.cluster.run(1)


@pytest.mark.parametrize(("how", "minutes"), [(away, 1), (read_only, 10), (away, 60)])
class TestWhileTheApiServer:
    """Is away, or takes no writes: its disk is full, or it has no quorum."""

    def test_cannot_be_used_a_boot_is_neither_repeated_nor_forgotten(self, cluster, how, minutes):
        cluster.machine()
        claim = cluster.claim()
        cluster.until("asked to start", lambda: cluster.commands() == ["on"])
        Outage(cluster, how).last(minutes * 60)
        cluster.run(SOON)
        if minutes * 60 < cluster.settings.boot_budget:
            assert (cluster.phase(claim), cluster.slot().status.phase) == ("ready", "ready")
            assert cluster.commands() == ["on"]
        else:
            assert cluster.reason(claim) in {"DeadlineExceeded", "StuckTransition"}, "whoever looks first says so"
            assert at_rest(cluster)
            assert cluster.commands() == ["on", "off"]

    def test_cannot_be_used_a_ready_machine_that_nobody_sees_stays_ready(self, cluster, how, minutes):
        cluster.machine()
        claim = cluster.ready()
        Outage(cluster, how).last(minutes * 60)
        cluster.run(SOON)
        assert (cluster.phase(claim), cluster.slot().status.phase) == ("ready", "ready")
        assert cluster.commands() == ["on"]

    def test_cannot_be_used_a_shutdown_is_finished_afterwards_with_one_command(self, cluster, how, minutes):
        cluster.machine(stop_seconds=30)
        claim = cluster.ready()
        cluster.unclaim(claim)
        cluster.until("asked to stop", lambda: cluster.commands() == ["on", "off"])
        Outage(cluster, how).last(minutes * 60)
        # The Job that proved the machine off may have left with its time to live: then the node stays until a boot.
        cluster.until("free", lambda: at_rest(cluster, by_us=minutes * 60 < JOB_TTL), within=SOON)
        assert cluster.commands() == ["on", "off"]

    def test_cannot_be_used_a_request_made_meanwhile_waits_for_its_end(self, cluster, how, minutes):
        cluster.machine()
        cluster.run(1)
        cluster.operator.client.transport.before = how
        claim = cluster.claim_by_hand("meanwhile")
        Outage(cluster, how).last(minutes * 60)
        assert cluster.commands() == []
        cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=SOON)
        assert cluster.commands() == ["on"]


@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.parametrize("resource", ["nodeclaims", "nodes"])
def test_a_status_write_that_conflicts_again_and_again_is_made_from_a_fresh_read_each_time(cluster, resource, times):
    """The other writer's field is kept: here a condition that somebody else sets on the same object meanwhile."""
    cluster.machine()
    cluster.run(1)
    refused = {}

    def conflict(method, target, body):
        path = target.partition("?")[0]
        what = (path, body.split(b'"phase":"')[1].split(b'"')[0] if b'"phase":"' in body else b"")
        if method == "PATCH" and f"/{resource}/" in path and path.endswith("/status"):
            refused[what] = refused.get(what, 0) + 1
            if refused[what] <= times:
                raise ConflictError("the object has been modified", status=409)

    cluster.operator.client.transport.before = conflict
    claim = cluster.claim()
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.unclaim(claim)
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]
    assert max(refused.values()) > times
    assert cluster.slot().status.last_claim.phase == "completed"
    assert cluster.slot().status.activations_total == 1


@pytest.mark.parametrize("seed", range(5))
def test_events_that_come_twice_and_in_any_order_across_kinds_change_nothing(cluster, seed):
    chance = random.Random(seed)
    cluster.machine(boot_seconds=20)
    claim = cluster.claim()

    def shuffle():
        operator = cluster.operator
        operator.held.clear()
        operator.held.update(kind for kind in WATCHED if chance.random() < 0.5)
        operator.resync()

    def reached(holds):
        def look():
            shuffle()
            return holds()

        return look

    cluster.until("ready", reached(lambda: cluster.phase(claim) == "ready"))
    cluster.unclaim(claim)
    cluster.until("gone", reached(lambda: cluster.phase(claim) == "gone"))
    cluster.operator.held.clear()
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]
    assert cluster.slot().status.activations_total == 1


def test_an_operator_that_is_killed_every_twenty_seconds_keeps_every_time_that_stands_on_an_object(cluster):
    cluster.group(drain={"timeout": "10m"})
    cluster.machine("serves")
    cluster.machine("never-joins", join_refused=True)
    cluster.machine("drains")
    serving, doomed, leaving = cluster.claim("serves"), cluster.claim("never-joins"), cluster.claim("drains")
    began = cluster.seconds
    ended = {}
    for tick in range(60):
        cluster.run(20)
        cluster.restart()
        if tick == 10:
            assert cluster.phase(serving) == cluster.phase(leaving) == "ready"
            cluster.pod("stays", "node-drains")
            cluster.budget("never", {"app": "stays"})
            withdrawn = cluster.seconds
            cluster.unclaim(leaving)
        if cluster.phase(doomed) == "failed":
            ended.setdefault("boot", cluster.seconds - began)
        if tick > 10 and "off" in cluster.commands("drains"):
            ended.setdefault("drain", cluster.seconds - withdrawn)
    assert cluster.phase(serving) == "ready"
    assert cluster.commands("serves") == ["on"]
    assert cluster.settings.registration_wait <= ended["boot"] <= cluster.settings.boot_budget
    assert 600 <= ended["drain"] <= 680
    for name in ("never-joins", "drains"):
        assert cluster.commands(name) == ["on", "off"]
        cluster.until("free", lambda name=name: at_rest(cluster, name))
