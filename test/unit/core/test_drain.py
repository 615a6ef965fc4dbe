"""Drains in steps: who is evicted, who is waited for, and what is said about those who do not go."""

from datetime import timedelta

import pytest

from homelab_api.core import Pod
from homelab_api.v2alpha1 import Drain
from homelab_autoscaler.lifecycle.drain import Drainer
from homelab_autoscaler.runtime import NotFoundError, TooManyRequestsError
from homelab_autoscaler.runtime.errors import InternalServerError
from homelab_autoscaler.runtime.testing import FakeClock


class Listed:
    def __init__(self, items):
        self.items = items


class Cluster:
    """Pods of one node; each eviction takes its time and may be refused."""

    def __init__(self, clock, pods, *, refused=(), seconds=0.0):
        self.clock = clock
        self.pods = {name: Pod.from_json({"metadata": {"name": name, "namespace": "ns"}}) for name in pods}
        self.refused = dict(refused)
        self.seconds = seconds
        self.asked = []

    def list(self, kind, **_):
        return Listed(list(self.pods.values()))

    def evict(self, pod):
        self.clock.step(self.seconds)
        self.asked.append(pod.name)
        error = self.refused.get(pod.name)
        if error is not None:
            raise error
        del self.pods[pod.name]


BUDGET = TooManyRequestsError("the budget allows none", status=429)


@pytest.fixture
def clock():
    return FakeClock()


def drain(cluster, clock, make, *, limit=timedelta(minutes=5), steps=1):
    drainer, began, progress = Drainer(cluster, clock, 1.0), clock.now(), None
    for _ in range(steps):
        progress = drainer.step(make.node(), began, Drain(timeout=limit, force=True))
        if progress.done:
            break
        clock.step(1.0)
    return progress


def test_pods_that_a_budget_keeps_do_not_use_up_the_time_of_the_others(clock, make):
    """Each eviction takes half a step here: in one order alone the last pod would never have its turn."""
    kept = {f"a{number}": BUDGET for number in range(6)}
    cluster = Cluster(clock, [*kept, "z"], refused=kept, seconds=0.5)
    drain(cluster, clock, make, steps=12)
    assert "z" in cluster.asked
    assert sorted(cluster.pods) == sorted(kept)


def test_only_pods_that_do_not_go_are_named_and_in_one_order(clock, make):
    cluster = Cluster(clock, "abcd", refused={"d": BUDGET, "b": InternalServerError("boom", status=500)})
    progress = drain(cluster, clock, make, steps=3)
    assert progress.waiting == (
        "ns/b: its eviction failed: boom",
        "ns/d: a disruption budget does not allow its eviction yet",
    )


def test_a_pod_that_went_by_itself_is_no_reason_to_wait(clock, make):
    cluster = Cluster(clock, ["a"], refused={"a": NotFoundError("gone", status=404)})
    assert drain(cluster, clock, make).waiting == ()
