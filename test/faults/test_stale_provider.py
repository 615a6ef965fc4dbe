"""The provider decides from reads of claims and reclaims; here the API server answers them from before."""

import pytest

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.failure import CallError
from homelab_autoscaler.provider.index import PoolIndex
from homelab_autoscaler.provider.pool import NodeRef, Pool
from homelab_autoscaler.provider.scale import Scaler
from homelab_autoscaler.runtime import Client, SystemClock, load_config

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


class Provider:
    """As a process that has just started sees the pool, through a proxy."""

    def __init__(self, scene):
        self.proxy = scene.proxy()
        self.client = Client(load_config(self.proxy.kubeconfig), SystemClock())
        self._scene = scene
        self._kinds = (Group, Node, NodeClaim, NodeReclaim, CoreNode, Job)

    def past(self):
        """The present state of what it reads anew, for later."""
        namespace = self._scene.pool.namespace
        return self.proxy.past({NodeClaim: namespace, NodeReclaim: namespace})

    def scaler(self):
        namespace = self._scene.pool.namespace
        index = PoolIndex()
        for kind in self._kinds:
            for found in self.client.list(kind, None if kind is CoreNode else namespace).items:
                index.put(found)
        pool = Pool(index, SystemClock(), self._scene.pool.settings, namespace)
        return Scaler(self.client, pool, SystemClock(), self._scene.pool.settings)


@pytest.fixture
def provider(scene):
    made = Provider(scene)
    yield made
    made.client.close()


def test_a_slot_that_was_taken_since_is_not_given_twice(scene, provider):
    past = provider.past()
    claim = scene.pool.claim(scene.machine)
    with past.told():
        scaler = provider.scaler()
        with pytest.raises(CallError, match="0 of 1 slots are free"):
            scaler.increase("pool", 1)
    assert past.served
    assert [entry.uid for entry in scene.pool.claims()] == [claim.uid]


def test_a_slot_that_was_taken_by_hand_since_gets_one_power_on_for_the_two_claims(scene, provider):
    past = provider.past()
    scene.pool.claim_by_hand(scene.machine, "by-hand")
    with past.told():
        made = provider.scaler().increase("pool", 1)
    assert len([claim for claim in scene.pool.claims() if claim.live]) == 2, "its check after the create saw nothing"
    scene.manager()
    scene.pool.until("one serves", lambda: _phases(scene) == ["failed", "ready"])
    assert scene.commands == ["on"]
    assert len(made) == 1


def _phases(scene):
    return sorted(claim.phase for claim in scene.pool.claims())


def test_a_machine_that_went_to_its_owner_since_is_claimed_for_nobody(scene, provider):
    past = provider.past()
    scene.reclaim()
    with past.told():
        claim = provider.scaler().increase("pool", 1)[0]
    scene.manager()
    scene.until_phase(claim, "failed")
    assert scene.commands == []
    assert scene.pool.jobs() == []


def test_deleting_a_node_whose_claim_was_replaced_since_leaves_the_new_claim_alone(scene, provider):
    old = scene.pool.claim(scene.machine)
    past = provider.past()
    scene.pool.unclaim(old)
    new = scene.pool.claim(scene.machine)
    assert new.name == old.name
    version = (new.uid, False, scene.pool.claims()[0].metadata.resource_version)
    identity = placeholder_id(old)
    with past.told(), pytest.raises(CallError, match="try again"):
        provider.scaler().delete("pool", [NodeRef(identity, identity, {})])
    assert provider.scaler().delete("pool", [NodeRef(identity, identity, {})]) == []
    found = scene.pool.claims()
    assert [(claim.uid, claim.marked, claim.metadata.resource_version) for claim in found] == [version]
