"""A manager as a process of its own: signals, a lost lease, a freeze."""

import signal
import subprocess
import sys

import pytest

from homelab_api.core import CoreNode, Lease
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.runtime import Client, NotFoundError, SystemClock, load_config
from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.apiserver import Fault

# Touches its own node again and again for as long as it leads; with "hang", its worker never comes back.
OPERATOR = """
import sys, threading
from homelab_api.core import CoreNode
from homelab_autoscaler.runtime import *

kubeconfig, name, mode = sys.argv[1:]
election = LeaderElectionOptions(
    name="lock", namespace="default", lease_duration=1.5, renew_deadline=1.0, retry_period=0.1, identity=name
)
manager = Manager(ManagerOptions(config=load_config(kubeconfig), leader_election=election))
manager.cache.informer(CoreNode)

class Touch:
    turns = 0

    def reconcile(self, request):
        if request.name != name:
            return Result()
        self.turns += 1
        patch = MergePatch({"metadata": {"labels": {"turn": str(self.turns)}}})
        manager.client.patch(CoreNode, name, None, patch)
        if mode == "hang":
            threading.Event().wait()
        return Result(requeue_after=0.02)

ControllerBuilder(manager, "touch").for_(CoreNode).complete(Touch())
run_process(manager)
"""


@pytest.fixture
def client(embedded):
    client = Client(load_config(str(embedded.kubeconfig)), SystemClock())
    for name in ("first", "second"):
        client.create(CoreNode(metadata=ObjectMeta(name=name)))
    yield client
    client.close()


@pytest.fixture
def operator(embedded, client):
    processes = []

    def start(name, mode="touch"):
        command = [sys.executable, "-c", OPERATOR, str(embedded.kubeconfig), name, mode]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(10)


def turn(client, name):
    return int(client.get(CoreNode, name).metadata.labels.get("turn", "0"))


def holder(client):
    try:
        return client.get(Lease, "lock", "default").spec.holder_identity
    except NotFoundError:
        return None


def test_sigterm_ends_cleanly_and_hands_the_lease_over(client, operator):
    process = operator("first")
    eventually(lambda: turn(client, "first") > 2, 30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert holder(client) == ""


def test_a_second_signal_ends_a_process_that_hangs(client, operator):
    process = operator("first", "hang")
    eventually(lambda: turn(client, "first") == 1, 30)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 1


def test_a_lost_lease_ends_the_process_at_once_even_if_it_hangs(embedded, client, operator):
    process = operator("first", "hang")
    eventually(lambda: turn(client, "first") == 1, 30)
    embedded.add_fault(Fault(kind="error", code=503, resource="*leases"))
    assert process.wait(20) == 1


def test_a_leader_that_was_frozen_begins_no_write_after_another_has_led(embedded, client, operator):
    first = operator("first")
    eventually(lambda: turn(client, "first") > 2, 30)
    first.send_signal(signal.SIGSTOP)
    operator("second")
    eventually(lambda: turn(client, "second") > 2, 40)
    before = turn(client, "first")
    first.send_signal(signal.SIGCONT)
    assert first.wait(20) == 1
    # An election does not fence: the one request that was past its check when the process froze may still go out.
    assert turn(client, "first") - before <= 1
    assert holder(client) == "second"
