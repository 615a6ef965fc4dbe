"""The Job controller's steps in a small world of pods that end at random, with a crash after any single write."""

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.controllers.job_plan import TRACKING_FINALIZER, is_finished, plan


class CrashError(Exception):
    pass


class Cluster:
    """What the API server holds for one Job. Each method that writes may be the last one before a crash."""

    def __init__(self, spec):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.job = {"metadata": {"name": "j", "namespace": "n", "uid": "job"}, "spec": spec, "status": {}}
        self.pods = {}
        self.numbers = itertools.count()
        self.most_active = 0
        self.ended = {"Succeeded": 0, "Failed": 0}
        self.fuse = None

    def write(self):
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise CrashError

    def step(self):
        """What JobController does with a plan, in its order."""
        found = plan(self.job, list(self.pods.values()), self.now)
        for _ in range(found.create):
            self.create()
            self.write()
        for pod in found.withdraw:
            self.release(pod)
            self.write()
            self.delete(pod)
            self.write()
        for pod in found.delete:
            self.delete(pod)
            self.write()
        if found.noted is not None:
            self.job = {**self.job, "status": found.noted}
            self.write()
        for pod in found.release:
            self.release(pod)
            self.write()
        if found.settled is not None:
            self.job = {**self.job, "status": found.settled}
            self.write()
        return found

    def create(self):
        name = f"j-{next(self.numbers)}"
        meta = {"name": name, "namespace": "n", "uid": f"uid-{name}", "finalizers": [TRACKING_FINALIZER]}
        self.pods[name] = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
        active = [pod for pod in self.pods.values() if pod["status"]["phase"] == "Running"]
        self.most_active = max(self.most_active, len(active))

    def release(self, pod):
        found = self.pods.get(pod["metadata"]["name"])
        if found is not None:
            found["metadata"]["finalizers"] = []
            self.bury(found)

    def delete(self, pod):
        found = self.pods.get(pod["metadata"]["name"])
        if found is not None:
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.bury(found)

    def end(self, name, phase):
        found = self.pods[name]
        if found["status"]["phase"] == "Running" and "deletionTimestamp" not in found["metadata"]:
            stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            state = {"terminated": {"finishedAt": stamp}}
            found["status"] = {"phase": phase, "containerStatuses": [{"state": state}]}
            self.ended[phase] += 1

    def bury(self, pod):
        if "deletionTimestamp" in pod["metadata"] and not pod["metadata"]["finalizers"]:
            del self.pods[pod["metadata"]["name"]]

    def settle(self):
        """Passes until nothing is written any more; the kubelet's part for deleted pods included."""
        for _ in range(20):
            before = (self.job, {name: repr(pod) for name, pod in self.pods.items()})
            self.step()
            if before == (self.job, {name: repr(pod) for name, pod in self.pods.items()}):
                return
        raise AssertionError("the controller never comes to rest")


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("succeed"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.integers(0, 5)),
        st.tuples(st.just("crash"), st.integers(0, 6)),
        st.tuples(st.just("time"), st.sampled_from([1, 15, 700])),
        st.tuples(st.just("suspend"), st.booleans()),
    ),
    max_size=20,
)


@settings(max_examples=300, deadline=None)
@given(
    actions=ACTIONS,
    parallelism=st.integers(1, 3),
    completions=st.integers(1, 4),
    limit=st.integers(0, 2),
    deadline=st.sampled_from([None, 100]),
)
def test_pods_are_counted_once_and_the_end_is_final(actions, parallelism, completions, limit, deadline):
    spec = {"parallelism": parallelism, "completions": completions, "backoffLimit": limit, "suspend": False}
    if deadline is not None:
        spec["activeDeadlineSeconds"] = deadline
    cluster = Cluster(spec)
    cluster.settle()
    last = None
    for action, value in actions:
        match action:
            case "succeed" | "fail":
                names = sorted(cluster.pods)
                if names:
                    cluster.end(names[value % len(names)], "Succeeded" if action == "succeed" else "Failed")
            case "time":
                cluster.now += timedelta(seconds=value)
            case "suspend":
                cluster.job = {**cluster.job, "spec": {**cluster.job["spec"], "suspend": value}}
            case "crash":
                cluster.fuse = value
        try:
            cluster.settle()
        except CrashError:
            cluster.settle()
        cluster.fuse = None
        status = cluster.job["status"]
        assert status.get("succeeded", 0) == cluster.ended["Succeeded"]
        assert status.get("failed", 0) >= cluster.ended["Failed"]
        assert cluster.most_active <= parallelism
        assert not status["uncountedTerminatedPods"]
        if is_finished(cluster.job):
            assert not status.get("active")
            ends = {item["type"] for item in status["conditions"] if item["status"] == "True"} & {"Complete", "Failed"}
            assert len(ends) == 1
            assert last in (None, ends)
            last = ends
        else:
            assert last is None, "a finished Job stays finished"
    kept = [pod for pod in cluster.pods.values() if pod["status"]["phase"] != "Running"]
    assert all(not pod["metadata"]["finalizers"] for pod in kept)
