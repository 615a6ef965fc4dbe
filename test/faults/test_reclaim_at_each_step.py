"""A machine's owner takes it back in the middle of an operation, at each of its writes.

While the NodeReclaim names the slot, no power command is released. A Job that was released in the instant before may
have sent its command already: that cannot be called back, and nothing else is sent. Deleting the NodeReclaim lets the
law go on from where it stands: nobody wants the machine any more, so it ends off.
"""

import pytest
from lab.proxy import Asked
from lab.steps import releases_job
from virtual.cluster import Cluster
from virtual.rest import at_rest

from homelab_api.v2alpha1 import NodeReclaim
from homelab_autoscaler.claim.moves import LEGAL_MOVES

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

TTL = 3600.0


def reclaim(cluster):
    body = {"metadata": {"name": "m"}, "spec": {"slotRef": {"name": "m"}, "source": "Manual"}}
    cluster.client.create_json(NodeReclaim, body, "lab")


def boot(cluster):
    return cluster.claim


def shutdown(cluster):
    claim = cluster.ready()
    cluster.pod("workload")
    return lambda: cluster.unclaim(claim)


def cancelled_boot(cluster):
    claim = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    return lambda: cluster.unclaim(claim)


def unwanted(cluster):
    cluster.unclaim(cluster.ready())
    cluster.until("free", lambda: at_rest(cluster))
    return lambda: cluster.in_loop(lambda: cluster.at("m").press_button() and None)


STORIES = [boot, shutdown, cancelled_boot, unwanted]
"""Each prepares the machine and returns what begins the operation."""


class Owner:
    """Takes the machine at a write of the operator: before the server has it, or when it was carried out."""

    def __init__(self, cluster, at, *, after):
        self.cluster = cluster
        self.at = at
        self.writes = []
        self.commands = None
        self.released_then = False
        wire = cluster.operator.client.transport
        wire.before = lambda *asked: self._count(asked, strike=not after)
        wire.after = lambda *asked: after and self._strike_if_due(asked)

    def _is_write(self, asked):
        return asked[0] != "GET"

    def _count(self, asked, *, strike):
        if self._is_write(asked):
            self.writes.append(Asked(*asked))
            if strike:
                self._strike_if_due(asked)

    def _strike_if_due(self, asked):
        if self._is_write(asked) and len(self.writes) == self.at and self.commands is None:
            reclaim(self.cluster)
            self.commands = self.cluster.commands()
            self.released_then = any(not job.suspended and not job.finished for job in self.cluster.jobs())
            self.released_then |= releases_job("")(Asked(*asked))


def play(story, at=0, *, after=False):
    """Tell the story; returns the cluster's ledger and the owner's record."""
    with Cluster() as cluster:
        cluster.machine()
        cluster.start()
        cluster.until("seen", lambda: cluster.slot().status.phase == "off")
        begin = story(cluster)
        owner = Owner(cluster, at, after=after)
        begin()
        if at:
            hold_and_give_back(cluster, owner)
        else:
            cluster.run(400)
        return owner


def hold_and_give_back(cluster, owner):
    cluster.run(400)
    assert owner.commands is not None, "the write came"
    sent = cluster.commands()[len(owner.commands) :]
    assert len(sent) <= int(owner.released_then), f"while the owner has the machine it is told {sent}"
    assert cluster.slot().status.phase == "reclaimed"
    assert not [claim for claim in cluster.claims() if claim.live], "no claim outlives the owner's taking"
    ended = {claim.status.reason for claim in cluster.claims()}
    assert ended <= {"EmergencyReclaim", *LEGAL_MOVES_TO_AN_END}
    before = cluster.commands()
    on = cluster.power() != "off"
    cluster.client.delete(NodeReclaim, "m", "lab")
    cluster.until("given back", lambda: at_rest(cluster), within=4 * TTL)
    assert set(cluster.commands()[len(before) :]) <= {"off"}
    assert not on or cluster.commands()[len(before) :] or cluster.node() is None


LEGAL_MOVES_TO_AN_END = {
    reason for moves in LEGAL_MOVES.values() for phase, reasons in moves.items() if phase.terminal for reason in reasons
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_machine_that_its_owner_takes_at_any_write_of_an_operation_is_powered_by_nobody(story):
    writes = play(story).writes
    assert len(writes) >= 5
    for at, write in enumerate(writes, start=1):
        if write.subresource == "status" and write.kind in {"slots", "groups"}:
            continue  # reports, from which nothing is decided
        for after in (False, True) if write.kind == "jobs" else (True,):
            try:
                play(story, at, after=after)
            except AssertionError as error:
                place = f"{'after' if after else 'before'} write {at}: {write.method} {write.target}"
                raise AssertionError(f"{place}: {error}") from error
