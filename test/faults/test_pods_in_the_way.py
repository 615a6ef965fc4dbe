"""Pods that a drain cannot see off as it would like. Budgets: test_reported_cordons_and_drains."""

import pytest
from virtual.rest import at_rest

from homelab_api.core import Pod
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("kind", ["unmanaged", "held by a finalizer"])
def test_a_pod_whose_containers_have_ended_does_not_hold_a_drain_up(cluster, kind):
    """An unmanaged pod is evicted like any other: nobody makes it again. A pod with a foreign finalizer stays as an
    object; its containers end with the machine."""
    cluster.group(drain={"timeout": "3m", "force": True})
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("workload")
    if kind != "unmanaged":
        pod = cluster.client.list(Pod).items[-1]
        held = MergePatch({"metadata": {"finalizers": ["example.org/backup"]}})
        cluster.client.patch(Pod, "workload", pod.namespace, held)
    cluster.unclaim(claim)
    took = cluster.until("off", lambda: cluster.power() == "off")
    assert took <= 60
    assert "DrainForced" not in cluster.reasons("m"), "its containers have ended, and that is what a drain waits for"
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]
    if kind != "unmanaged":
        left = cluster.get(Pod, "workload", "default")
        assert left is None or left.metadata.finalizers == ["example.org/backup"], (
            "a foreign finalizer is not taken off"
        )
