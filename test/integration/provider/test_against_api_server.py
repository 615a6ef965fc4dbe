"""The provider with the real client, informers and API server instead of the memory store."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import yaml
from provided import Cluster

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.meta import ObjectMeta
from homelab_api.v2alpha1 import SlotRef
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb


@pytest.fixture
def cluster(control_plane, our_kinds, make_namespace):
    made = Cluster(control_plane.kubeconfig, make_namespace(), make_namespace())
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


def test_a_claim_that_came_and_went_unseen_is_forgotten_at_the_next_refresh(cluster):
    cluster.group(slots=2)
    with cluster.provider() as provider:
        provider.increase(1)
        index = provider.server.index
        (claim,) = cluster.claims()
        metadata = ObjectMeta(name="ghost", namespace=cluster.pool, uid="ghost", resource_version="999999")
        (free,) = {"lab-0", "lab-1"} - {claim.slot_name}
        spec = claim.spec.model_copy(update={"slot_ref": SlotRef(name=free)})
        ghost = claim.model_copy(update={"metadata": metadata, "spec": spec})
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


def test_the_autoscaler_process_asks_for_machines_for_pods_that_wait(cluster, admin, tmp_path):
    cluster.group(slots=2, template={"capacity": {"cpu": "4", "memory": "8Gi"}})
    before = [node.name for node in cluster.admin.list(CoreNode).items]
    pods = f"/api/v1/namespaces/{cluster.pool}/pods"
    pod = {
        "metadata": {"name": "waiting"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]},
    }
    admin.create(pods, pod)
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    admin.patch(f"{pods}/waiting/status", {"status": {"conditions": [waiting]}})
    with cluster.provider() as provider:
        files = {"cert": "tls.crt", "key": "tls.key", "cacert": "ca.crt"}
        for entry in files.values():
            (tmp_path / entry).write_bytes(provider.secret.entry(entry))
        config = {"address": f"127.0.0.1:{provider.server.port}"}
        config |= {field: str(tmp_path / entry) for field, entry in files.items()}
        (tmp_path / "cloud-config").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "homelab_autoscaler.sandbox.autoscaler"]
        command += ["--kubeconfig", str(cluster.kubeconfig), "--cloud-config", str(tmp_path / "cloud-config")]
        with process([*command, "--speed", "60"], tmp_path / "log") as autoscaler:
            wait_until(lambda: provider.target() == 1, autoscaler)
            autoscaler.terminate()
            assert autoscaler.wait(60) == 0
    (claim,) = cluster.claims()
    assert claim.spec.call == "IncreaseSize"
    assert [node.name for node in cluster.admin.list(CoreNode).items] == before


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
