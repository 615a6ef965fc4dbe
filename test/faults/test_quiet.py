"""When nothing happens, nothing is written. On virtual time, with true numbers."""

import pytest
from virtual.cluster import Cluster
from virtual.rest import at_rest

from homelab_autoscaler.settings import Settings

pytestmark = pytest.mark.faults


def test_in_thirty_idle_minutes_with_heartbeats_nothing_is_written(cluster):
    """A machine that serves, one that is off, one that failed and one that never was: kubelets renew, nobody acts."""
    for name in ("serves", "off", "failed", "fresh"):
        cluster.machine(name)
    kept = cluster.claim("serves")
    used = cluster.claim("off")
    cluster.behave("failed", dead=True)
    lost = cluster.claim("failed")
    cluster.until("ready", lambda: cluster.phase(kept) == cluster.phase(used) == "ready")
    cluster.unclaim(used)
    cluster.until("over", lambda: cluster.phase(used) == "gone" and cluster.phase(lost) == "failed")
    cluster.until("free", lambda: cluster.slot("failed").status.phase == "off" and not cluster.fresh(lost).committed)
    cluster.run(600)
    before, passes = cluster.plane.server.store.revision, dict(cluster.operator.passes)
    jobs = [job.uid for job in cluster.jobs()]
    cluster.run(1800)
    written = [(write.resource, write.name, write.fields) for write in cluster.writes(before) if _ours(write)]
    assert written == []
    assert {job.uid for job in cluster.jobs()} <= set(jobs)
    made = {name: count - passes.get(name, 0) for name, count in cluster.operator.passes.items()}
    assert sum(made.values()) < 400, f"four slots are looked at every few minutes, not more: {made}"


def test_when_the_window_has_passed_the_slot_says_so_and_that_is_the_only_write():
    """The window is an hour here, a day by default."""
    with Cluster(settings=Settings(history_window=3600)) as cluster:
        cluster.start()
        cluster.machine()
        cluster.unclaim(cluster.ready())
        cluster.until("free", lambda: at_rest(cluster))
        cluster.run(600)
        before = cluster.plane.server.store.revision
        assert cluster.slot().status.activations_last24_h == 1
        cluster.run(3600)
        written = [write for write in cluster.writes(before) if _ours(write)]
        assert {(write.resource, write.subresource) for write in written} == {("nodes", "status")}
        assert 1 <= len(written) <= 8, "rows leave the ring one by one as they grow old"
        assert cluster.slot().status.activations_last24_h == 0
        assert cluster.slot().status.activations_total == 1


def _ours(write):
    return write.user.startswith("system:serviceaccount:homelab:")
