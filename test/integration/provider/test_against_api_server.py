"""The provider with the real client, informers and API server instead of the memory store."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import yaml

from homelab_api import names
from homelab_api.core import CoreNode, Secret
from homelab_api.crd import definitions
from homelab_api.meta import ObjectMeta
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.server import ProviderOptions, ProviderServer
from homelab_autoscaler.runtime.cache import Cache
from homelab_autoscaler.runtime.client import Client
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.config import load_config
from homelab_autoscaler.runtime.patch import MergePatch
from homelab_autoscaler.runtime.stop import StopSignal
from homelab_autoscaler.sandbox.apiserver.faults import Fault
from homelab_autoscaler.sandbox.testing import running_api_server
from homelab_autoscaler.settings import Settings

SYSTEM = "homelab-autoscaler-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD = {"image": "busybox"}


class Cluster:
    """An API server with our kinds, and a client that plays everybody else."""

    def __init__(self, api):
        self.api = api
        self.admin = Client(load_config(str(api.kubeconfig)), SystemClock())
        sync = api.client()
        for definition in definitions():
            sync.create(CRDS, definition)
        for name in ("pool", SYSTEM):
            sync.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def group(self, name="lab", slots=0, **spec):
        self.admin.create(Group.from_json({"metadata": {"name": name, "namespace": "pool"}, "spec": spec}))
        for number in range(slots):
            self.slot(f"{name}-{number}", name)

    def slot(self, name, group="lab", **spec):
        body = {
            "metadata": {"name": name, "namespace": "pool", "labels": {names.LABEL_GROUP: group}},
            "spec": {"kubernetesNodeName": name, "startupPodSpec": POD, "shutdownPodSpec": POD, **spec},
        }
        return self.admin.create(Node.from_json(body))

    def claims(self):
        return self.admin.list(NodeClaim, "pool").items

    def commit(self, claim, phase="booting"):
        """What the claim's controller does when a boot begins."""
        finalizer = MergePatch({"metadata": {"finalizers": [names.FINALIZER_MACHINE]}})
        claim = self.admin.patch(NodeClaim, claim.name, "pool", finalizer)
        return self.admin.patch_status(claim, {"phase": phase, "nodeName": claim.slot_name})

    @contextmanager
    def provider(self):
        """A provider with its own client and cache, as a manager would run it."""
        clock = SystemClock()
        client = Client(load_config(str(self.api.kubeconfig)), clock, field_manager=names.FIELD_MANAGER)
        cache = Cache(client.transport, clock)
        options = ProviderOptions(address="127.0.0.1:0", secrets_namespace=SYSTEM)
        server = ProviderServer(client, cache, clock, Settings(), None, "pool", options)
        stop = StopSignal()
        threads = [threading.Thread(target=part.run, args=(stop,), daemon=True) for part in (cache, server)]
        for thread in threads:
            thread.start()
        try:
            assert server.wait_serving(90)
            secret = self.admin.get(Secret, f"{options.service}-client", SYSTEM)
            credentials = grpc.ssl_channel_credentials(
                secret.entry("ca.crt"), secret.entry("tls.key"), secret.entry("tls.crt")
            )
            with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
                yield Provider(server, pb_grpc.CloudProviderStub(channel), secret)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
            client.close()


class Provider:
    def __init__(self, server, stub, secret):
        self.server = server
        self.stub = stub
        self.secret = secret

    def target(self, group="lab"):
        return self.stub.NodeGroupTargetSize(pb.NodeGroupTargetSizeRequest(id=group), timeout=5).targetSize

    def increase(self, delta, group="lab"):
        self.stub.NodeGroupIncreaseSize(pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta), timeout=5)

    def decrease(self, delta, group="lab"):
        self.stub.NodeGroupDecreaseTargetSize(pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta), timeout=5)

    def delete(self, *ids, group="lab"):
        nodes = [pb.ExternalGrpcNode(name=one, providerID=one) for one in ids]
        self.stub.NodeGroupDeleteNodes(pb.NodeGroupDeleteNodesRequest(id=group, nodes=nodes), timeout=5)

    def instances(self, group="lab"):
        return list(self.stub.NodeGroupNodes(pb.NodeGroupNodesRequest(id=group), timeout=5).instances)


@pytest.fixture
def cluster():
    with running_api_server() as api:
        made = Cluster(api)
        yield made
        made.admin.close()


def test_a_scale_up_and_its_withdrawal_are_seen_at_once_in_every_answer(cluster):
    cluster.group(slots=3)
    with cluster.provider() as provider:
        for wanted in (1, 2, 3):
            provider.increase(1)
            assert provider.target() == wanted
            assert len(provider.instances()) == wanted
        provider.decrease(-2)
        assert provider.target() == 1
        assert len(cluster.claims()) == 1


def test_the_stored_claim_passes_the_schema_with_its_times(cluster):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
    (claim,) = cluster.claims()
    assert (claim.spec.deadline_at - claim.spec.requested_at).total_seconds() == 900
    assert claim.spec.ttl_seconds_after_finished == 3600


def test_a_committed_claim_is_marked_and_a_pending_one_disappears(cluster):
    cluster.group(slots=2)
    with cluster.provider() as provider:
        provider.increase(2)
        first, second = cluster.claims()
        cluster.commit(first)
        provider.delete(placeholder_id(first), placeholder_id(second))
        assert provider.target() == 0
        (left,) = cluster.claims()
        assert left.uid == first.uid
        assert left.marked
        assert left.metadata.annotations[names.ANNOTATION_END_REASON] == "NodeDeleted"
        provider.delete(placeholder_id(first), placeholder_id(second))
        assert provider.target() == 0


def test_an_increase_costs_one_write_per_machine_and_a_deletion_two(cluster):
    cluster.group(slots=3)
    with cluster.provider() as provider:
        mark = cluster.api.writes()[-1].revision
        provider.increase(2)
        claims = cluster.claims()
        writes = [write for write in cluster.api.writes(mark) if write.resource == "nodeclaims"]
        assert [write.verb for write in writes] == ["create", "create"]
        for claim in claims:
            cluster.commit(claim)
        mark = cluster.api.writes()[-1].revision
        provider.delete(*[placeholder_id(claim) for claim in claims])
        writes = [write for write in cluster.api.writes(mark) if write.resource == "nodeclaims"]
        assert sorted(write.verb for write in writes) == ["delete", "delete", "patch", "patch"]


def test_two_providers_racing_over_one_pool_never_double_a_slot(cluster):
    cluster.group(slots=6)
    with cluster.provider() as one, cluster.provider() as other:
        outcomes = []

        def ask(provider):
            try:
                provider.increase(2)
                outcomes.append(2)
            except grpc.RpcError:
                outcomes.append(0)

        threads = [threading.Thread(target=ask, args=(provider,)) for provider in (one, other, one)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    slots = [claim.slot_name for claim in cluster.claims()]
    assert len(slots) == len(set(slots)) == sum(outcomes)


@pytest.mark.parametrize("kind", ["drop-reply", "conflict"])
def test_a_reply_lost_or_refused_in_the_middle_of_a_deletion_is_settled(cluster, kind):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
        (claim,) = cluster.claims()
        cluster.commit(claim)
        cluster.api.add_fault(Fault(kind=kind, verb="patch", resource="*nodeclaims", count=1))
        cluster.api.add_fault(Fault(kind=kind, verb="delete", resource="*nodeclaims", count=1))
        provider.delete(placeholder_id(claim))
        assert provider.target() == 0


def test_a_create_whose_reply_is_dropped_is_not_repeated(cluster):
    cluster.group(slots=2)
    with cluster.provider() as provider:
        cluster.api.add_fault(Fault(kind="drop-reply", verb="create", resource="*nodeclaims", count=1))
        provider.increase(2)
        assert len(cluster.claims()) == 2
        assert provider.target() == 2


def test_a_watch_that_stalls_does_not_make_the_provider_forget_its_own_writes(cluster):
    cluster.group(slots=3)
    with cluster.provider() as provider:
        provider.increase(1)
        cluster.api.add_fault(Fault(kind="delay-event", resource="*nodeclaims", seconds=30))
        provider.increase(1)
        assert provider.target() == 2
        claims = cluster.claims()
        provider.delete(placeholder_id(claims[0]))
        assert provider.target() == 1
        cluster.api.clear_faults()


def test_an_unreadable_api_server_shows_in_refresh_while_reads_go_on(cluster):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
        cluster.api.add_fault(Fault(kind="reset", verb="list"))
        with pytest.raises(grpc.RpcError) as caught:
            provider.stub.Refresh(pb.RefreshRequest(), timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "cannot be read" in caught.value.details()
        assert provider.target() == 1
        cluster.api.clear_faults()
        provider.stub.Refresh(pb.RefreshRequest(), timeout=30)


def test_a_claim_that_came_and_went_unseen_is_forgotten_at_the_next_refresh(cluster):
    cluster.group(slots=1)
    with cluster.provider() as provider:
        provider.increase(1)
        index = provider.server.index
        (claim,) = cluster.claims()
        ghost = claim.model_copy(
            update={"metadata": ObjectMeta(name="ghost", namespace="pool", uid="ghost", resource_version="999999")}
        )
        index.put(ghost, confirmed=False)
        assert provider.target() == 2
        provider.stub.Refresh(pb.RefreshRequest(), timeout=5)
        assert provider.target() == 1


def test_a_second_manager_takes_over_with_the_same_answers(cluster):
    cluster.group(slots=3)
    with cluster.provider() as first:
        first.increase(2)
        before = sorted(instance.id for instance in first.instances())
    with cluster.provider() as second:
        assert second.target() == 2
        assert sorted(instance.id for instance in second.instances()) == before


def test_the_autoscaler_process_asks_for_machines_for_pods_that_wait(cluster, tmp_path):
    cluster.group(slots=2, template={"capacity": {"cpu": "4", "memory": "8Gi"}})
    sync = cluster.api.client()
    pod = {
        "metadata": {"name": "waiting", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]},
    }
    sync.create("/api/v1/namespaces/default/pods", pod)
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    sync.patch("/api/v1/namespaces/default/pods/waiting/status", {"status": {"conditions": [waiting]}})
    with cluster.provider() as provider:
        files = {"cert": "tls.crt", "key": "tls.key", "cacert": "ca.crt"}
        for entry in files.values():
            (tmp_path / entry).write_bytes(provider.secret.entry(entry))
        config = {"address": f"127.0.0.1:{provider.server.port}"}
        config |= {field: str(tmp_path / entry) for field, entry in files.items()}
        (tmp_path / "cloud-config").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "homelab_autoscaler.sandbox.autoscaler"]
        command += ["--kubeconfig", str(cluster.api.kubeconfig), "--cloud-config", str(tmp_path / "cloud-config")]
        with process([*command, "--speed", "60"], tmp_path / "log") as autoscaler:
            wait_until(lambda: provider.target() == 1, autoscaler)
            autoscaler.terminate()
            assert autoscaler.wait(60) == 0
    (claim,) = cluster.claims()
    assert claim.spec.call == "IncreaseSize"
    assert cluster.admin.list(CoreNode).items == []


@pytest.mark.parametrize(
    ("text", "says"),
    [("address: nowhere", "needs an address of the form host:port"), (None, "cannot read cloud-config")],
)
def test_the_autoscaler_process_refuses_a_cloud_config_that_it_cannot_use(tmp_path, text, says):
    path = tmp_path / "cloud-config"
    if text is not None:
        path.write_text(text)
    command = [sys.executable, "-m", "homelab_autoscaler.sandbox.autoscaler", "--cloud-config", str(path)]
    with process(command, tmp_path / "log") as autoscaler:
        assert autoscaler.wait(100) == 1
    assert says in (tmp_path / "log").read_text()


@contextmanager
def process(command, log: Path):
    with log.open("w") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield running
        finally:
            running.kill()
            running.wait(20)


def wait_until(condition, running, timeout=90.0):
    """Ask again and again, with a deadline; the process must stay alive."""
    pause = threading.Event()
    for _ in range(int(timeout / 0.1)):
        if condition():
            return
        assert running.poll() is None, "the process has ended"
        pause.wait(0.1)
    raise AssertionError("it never happened")
