"""What counts as silence of a kubelet: evidence that a machine is off, or none."""

import pytest

from homelab_api.core import Lease
from homelab_autoscaler.lifecycle.pulse import KubeletPulse, Pulse
from homelab_autoscaler.runtime import NotFoundError


class Leases:
    """The one Lease of the node; None if there is none. Counts how often it is read."""

    def __init__(self):
        self.version = "1"
        self.uid = "u"
        self.reads = 0

    def get(self, kind, name, namespace):
        assert (kind, name, namespace) == (Lease, "node-worker-01", "kube-node-lease")
        self.reads += 1
        if self.version is None:
            raise NotFoundError("no such Lease", status=404)
        metadata = {"name": name, "namespace": namespace, "uid": self.uid, "resourceVersion": self.version}
        return Lease.from_json({"metadata": metadata})


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def pulse(leases, clock):
    return KubeletPulse(leases, clock, 40)


def test_a_node_that_the_cluster_itself_gave_up_is_silent(make, pulse, leases):
    assert pulse.read(make.node("Unknown", "NodeStatusUnknown")) is Pulse.SILENT
    assert leases.reads == 0


@pytest.mark.parametrize(("status", "reason"), [("False", "KubeletNotReady"), ("Unknown", "NodeStatusNeverUpdated")])
def test_a_node_that_is_merely_not_ready_is_not_silent(make, pulse, status, reason):
    assert pulse.read(make.node(status, reason)) is Pulse.UNKNOWN


def test_silence_is_forty_seconds_between_two_reads_of_an_unchanged_lease(make, pulse, clock):
    node = make.node("False")
    assert pulse.read(node) is Pulse.UNKNOWN
    clock.step(39.9)
    assert pulse.read(node) is Pulse.UNKNOWN
    clock.step(0.1)
    assert pulse.read(node) is Pulse.SILENT


def test_a_lease_that_changed_between_two_reads_is_a_kubelet_that_lives_until_it_is_silent(make, pulse, leases, clock):
    node = make.node("False")
    pulse.read(node)
    clock.step(60)
    leases.version = "2"
    assert pulse.read(node) is Pulse.ALIVE
    clock.step(39)
    assert pulse.read(node) is Pulse.ALIVE
    clock.step(1)
    assert pulse.read(node) is Pulse.SILENT


def test_a_lease_that_was_made_anew_is_another_one(make, pulse, leases, clock):
    node = make.node("False")
    pulse.read(node)
    clock.step(60)
    leases.uid = "another"
    assert pulse.read(node) is Pulse.ALIVE


def test_what_was_seen_before_a_machine_was_on_proves_nothing_after_it(make, pulse, clock):
    node = make.node("False")
    pulse.read(node)
    pulse.forget(node.name)
    clock.step(60)
    assert pulse.read(node) is Pulse.UNKNOWN


def test_a_missing_node_or_lease_is_said_to_be_missing(make, pulse, leases):
    assert pulse.read(None) is Pulse.MISSING
    leases.version = None
    assert pulse.read(make.node("False")) is Pulse.MISSING
