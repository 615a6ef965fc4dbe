"""A pool in a memory store and a provider that serves it over the loopback interface."""

from __future__ import annotations

import pytest

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.claim.testing import MemoryStore
from homelab_autoscaler.provider.testing import serve
from homelab_autoscaler.runtime.clock import SystemClock


class Fixture:
    """Declares objects of a pool."""

    def __init__(self, store):
        self.store = store

    def group(self, name="lab", **spec):
        return self.store.put(Group.from_json({"metadata": {"name": name, "namespace": "pool"}, "spec": spec}))

    def slot(self, name, group="lab", **spec):
        body = {
            "metadata": {"name": name, "namespace": "pool", "labels": {names.LABEL_GROUP: group}},
            "spec": {
                "kubernetesNodeName": name,
                "startupPodSpec": {"image": "wol"},
                "shutdownPodSpec": {"image": "ssh"},
                "capacity": {"cpu": "4", "memory": "8Gi"},
                **spec,
            },
        }
        return self.store.put(Node.from_json(body))

    def node(self, name, provider_id="", ready="True"):
        body = {
            "metadata": {"name": name},
            "spec": {"providerID": provider_id},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        return self.store.put(CoreNode.from_json(body))

    def claims(self):
        return self.store.all(NodeClaim)

    def wanted(self):
        return sorted(claim.slot_name for claim in self.claims() if claim.wants_machine)


@pytest.fixture
def store():
    return MemoryStore(SystemClock())


@pytest.fixture
def declared(store):
    pool = Fixture(store)
    pool.group()
    for number in range(3):
        pool.slot(f"w{number}")
    return pool


@pytest.fixture
def served(declared):
    with serve(declared.store) as provider:
        yield provider


@pytest.fixture
def stub(served):
    with served.stub() as client:
        yield client
