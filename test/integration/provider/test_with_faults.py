"""The provider when the API server loses replies, refuses and stalls, and what it writes: embedded server only."""

import grpc
import pytest
from provided import Cluster

from homelab_api.crd import definitions
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.sandbox.apiserver.faults import Fault
from homelab_autoscaler.sandbox.testing import running_api_server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def api():
    with running_api_server() as running:
        client = running.client()
        for definition in definitions():
            client.create(CRDS, definition)
        for name in ("pool", "system"):
            client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        yield running


@pytest.fixture
def cluster(api):
    made = Cluster(api.kubeconfig, "pool", "system")
    yield made
    made.admin.close()


def test_an_increase_costs_one_write_per_machine_and_a_deletion_two(cluster, api):
    cluster.group(slots=3)
    with cluster.provider() as provider:
        mark = api.writes()[-1].revision
        provider.increase(2)
        claims = cluster.claims()
        writes = [(write.resource, write.verb) for write in api.writes(mark)]
        assert writes == [("nodeclaims", "create")] * 2, "and nothing else: no slot, no group"
        for claim in claims:
            cluster.commit(claim)
        mark = api.writes()[-1].revision
        provider.delete(*[placeholder_id(claim) for claim in claims])
        writes = sorted((write.resource, write.verb) for write in api.writes(mark))
        assert writes == [("nodeclaims", "delete")] * 2 + [("nodeclaims", "patch")] * 2


@pytest.mark.parametrize("kind", ["drop-reply", "conflict"])
def test_a_reply_lost_or_refused_in_the_middle_of_a_deletion_is_settled(cluster, api, kind):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
        (claim,) = cluster.claims()
        cluster.commit(claim)
        api.add_fault(Fault(kind=kind, verb="patch", resource="*nodeclaims", count=1))
        api.add_fault(Fault(kind=kind, verb="delete", resource="*nodeclaims", count=1))
        provider.delete(placeholder_id(claim))
        assert provider.target() == 0


def test_a_create_whose_reply_is_dropped_is_not_repeated(cluster, api):
    cluster.group(slots=2)
    with cluster.provider() as provider:
        api.add_fault(Fault(kind="drop-reply", verb="create", resource="*nodeclaims", count=1))
        provider.increase(2)
        assert len(cluster.claims()) == 2
        assert provider.target() == 2


def test_a_watch_that_stalls_does_not_make_the_provider_forget_its_own_writes(cluster, api):
    cluster.group(slots=3)
    with cluster.provider() as provider:
        provider.increase(1)
        api.add_fault(Fault(kind="delay-event", resource="*nodeclaims", seconds=30))
        provider.increase(1)
        assert provider.target() == 2
        claims = cluster.claims()
        provider.delete(placeholder_id(claims[0]))
        assert provider.target() == 1
        api.clear_faults()


def test_an_unreadable_api_server_shows_in_refresh_while_reads_go_on(cluster, api):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
        api.add_fault(Fault(kind="reset", verb="list"))
        with pytest.raises(grpc.RpcError) as caught:
            provider.stub.Refresh(pb.RefreshRequest(), timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "cannot be read" in caught.value.details()
        assert provider.target() == 1
        api.clear_faults()
        provider.stub.Refresh(pb.RefreshRequest(), timeout=30)
