"""The runtime on an API server that is busy, broken or away."""

import threading

import pytest
import structlog

from homelab_api.core import CoreNode, Job
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.runtime import (
    AlreadyExistsError,
    Client,
    ConflictError,
    ControllerBuilder,
    LeaderElectionOptions,
    LeadershipLost,
    MergePatch,
    NotFoundError,
    Result,
    StopSignal,
    SystemClock,
    TransportError,
    load_config,
)
from homelab_autoscaler.runtime.cache import Cache, ReflectorOptions
from homelab_autoscaler.runtime.client import RetryPolicy, Transport
from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.apiserver import Fault
from homelab_autoscaler.sandbox.testing import running_api_server

QUICK = RetryPolicy(base=0.01, cap=0.02)


@pytest.fixture
def client(embedded):
    client = Client(load_config(str(embedded.kubeconfig)), SystemClock(), retry=QUICK)
    yield client
    client.close()


@pytest.fixture
def quiet():
    with structlog.testing.capture_logs() as logs:
        yield logs


def node(name, **labels):
    return CoreNode(metadata=ObjectMeta(name=name, labels=labels))


def stored(embedded):
    """Name and version of every node, as the server has them."""
    items = embedded.client().list("/api/v1/nodes")["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


class Following:
    """A cache of nodes that follows a server."""

    def __init__(self, embedded, **options):
        self.config = load_config(str(embedded.kubeconfig))
        self.transport = Transport(self.config, SystemClock())
        self.errors = []
        self.cache = Cache(
            self.transport, SystemClock(), on_error=lambda kind, error: self.errors.append(error), **options
        )
        self.informer = self.cache.informer(CoreNode)
        self.events = []
        self.informer.add_handler(self.events.append)
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.cache.run, args=(self.stop,))
        self.thread.start()

    def state(self):
        return {obj.name: obj.metadata.resource_version for obj in self.informer.lister.list()}

    def end(self):
        self.stop.set()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.transport.close()


@pytest.fixture
def following(embedded, quiet):
    made = []

    def make(**options):
        made.append(Following(embedded, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="watch-cut", resource="nodes", events=2),
        Fault(kind="watch-expired", resource="nodes", events=2, count=2),
        Fault(kind="duplicate-event", resource="nodes"),
        Fault(kind="delay-event", resource="nodes", seconds=0.02),
        Fault(kind="error", resource="nodes", verb="watch", code=500, count=1),
        Fault(kind="too-many-requests", resource="nodes", verb="watch", count=1),
        Fault(kind="reset", resource="nodes", verb="watch", count=1),
        Fault(kind="error", resource="nodes", verb="list", code=503, count=1),
        Fault(kind="stale-read", resource="nodes", verb="list", revisions=3),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.verb}",
)
def test_the_cache_ends_up_equal_to_the_server(embedded, client, following, fault):
    for number in range(4):
        client.create(node(f"before{number}"))
    embedded.add_fault(fault)
    follower = following(options=ReflectorOptions(streaming_list=fault.verb != "list"))
    if fault.verb == "list":
        eventually(follower.informer.has_synced)
        embedded.clear_faults()
    for number in range(8):
        client.create(node(f"n{number}"))
        client.patch(CoreNode, f"n{number}", None, MergePatch({"metadata": {"labels": {"turn": "two"}}}))
    client.delete(CoreNode, "n3")
    eventually(lambda: follower.state() == stored(embedded), 20, what="cache equals server")
    eventually(lambda: follower.informer.pending == 0)


def test_a_watch_that_falls_silent_is_noticed_and_replaced(embedded, client, following):
    follower = following(inactivity=0.3)
    eventually(follower.informer.has_synced)
    embedded.add_fault(Fault(kind="watch-stall", resource="nodes", seconds=30, count=1))
    client.create(node("unseen"))
    eventually(lambda: "unseen" in follower.state(), 20)


def test_a_server_that_comes_back_with_nothing_is_believed(quiet):
    with running_api_server() as first:
        port = int(first.url.rsplit(":", 1)[1])
        client = Client(load_config(str(first.kubeconfig)), SystemClock(), retry=QUICK)
        for number in range(5):
            client.create(node(f"old{number}"))
        follower = Following(first, options=ReflectorOptions(watch_timeout=3))
        eventually(lambda: len(follower.state()) == 5)
    try:
        with running_api_server(port=port):
            client.create(node("new"))
            eventually(lambda: set(follower.state()) == {"new"}, 30, what="the new world")
            assert follower.informer.store.rewinds == 1
    finally:
        follower.end()
        client.close()


# --- writes -----------------------------------------------------------------------------------------------------------


def fault_on(verb, kind, **more):
    return Fault(kind=kind, verb=verb, resource="nodes", count=1, **more)


@pytest.mark.parametrize("kind", ["drop-reply", "reset"])
def test_a_create_without_an_answer_is_told_as_unknown_and_settled_by_reading_back(embedded, client, kind):
    embedded.add_fault(fault_on("create", kind))
    with pytest.raises(TransportError) as caught:
        client.create(node("n1"))
    assert caught.value.sent
    if kind == "drop-reply":
        assert client.get(CoreNode, "n1").name == "n1"
        with pytest.raises(AlreadyExistsError):
            client.create(node("n1"))
    else:
        with pytest.raises(NotFoundError):
            client.get(CoreNode, "n1")
        client.create(node("n1"))
    creates = [write for write in embedded.writes() if "n1" in str(write) and "create" in str(write).lower()]
    assert len(creates) == 1


@pytest.mark.parametrize("kind", ["drop-reply", "reset"])
def test_a_merge_patch_without_an_answer_is_repeated_with_the_same_effect(embedded, client, kind):
    client.create(node("n1"))
    embedded.add_fault(fault_on("patch", kind))
    patched = client.patch(CoreNode, "n1", None, MergePatch({"metadata": {"labels": {"a": "b"}}}))
    assert patched.metadata.labels["a"] == "b"


def test_a_patch_with_a_version_whose_answer_was_lost_ends_in_a_conflict_not_in_a_second_change(embedded, client):
    created = client.create(node("n1"))
    embedded.add_fault(fault_on("patch", "drop-reply"))
    body = {"metadata": {"resourceVersion": created.metadata.resource_version, "labels": {"a": "b"}}}
    with pytest.raises(ConflictError):
        client.patch(CoreNode, "n1", None, MergePatch(body))
    assert client.get(CoreNode, "n1").metadata.labels["a"] == "b"


def test_a_delete_whose_answer_was_lost_finds_nothing_the_second_time(embedded, client):
    client.create(node("n1"))
    embedded.add_fault(fault_on("delete", "drop-reply"))
    with pytest.raises(NotFoundError):
        client.delete(CoreNode, "n1")


def test_a_server_that_sheds_half_of_all_requests_gets_every_write_in_the_end(embedded, quiet):
    client = Client(load_config(str(embedded.kubeconfig)), SystemClock(), retry=RetryPolicy(attempts=20))
    embedded.add_fault(Fault(kind="too-many-requests", resource="nodes", verb="create", probability=0.5, retry_after=0))
    for number in range(20):
        client.create(node(f"n{number}"))
    assert len(stored(embedded)) == 20
    client.close()


# --- controllers ------------------------------------------------------------------------------------------------------


class Label:
    """Gives each node a label from a fresh look at the cache; counts its passes."""

    def __init__(self, manager):
        self.manager = manager
        self.nodes = manager.cache.lister(CoreNode)
        self.passes = []

    def reconcile(self, request):
        self.passes.append(request)
        found = self.nodes.get(request.name)
        if found is not None and "seen" not in found.metadata.labels:
            body = {"metadata": {"resourceVersion": found.metadata.resource_version, "labels": {"seen": "yes"}}}
            self.manager.client.patch(CoreNode, found.name, None, MergePatch(body))
        return Result()


def labelling(manager_for, embedded, **options):
    running = manager_for(load_config(str(embedded.kubeconfig)), **options)
    running.manager.cache.informer(CoreNode)
    running.label = Label(running.manager)
    ControllerBuilder(running.manager, "label").for_(CoreNode).with_options(workers=3).complete(running.label)
    return running


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="conflict", resource="nodes", verb="patch", probability=0.5, count=20),
        Fault(kind="error", code=500, resource="nodes", verb="patch", probability=0.5, count=10),
        Fault(kind="drop-reply", resource="nodes", verb="patch", probability=0.5, count=10),
        Fault(kind="reset", resource="nodes", verb="patch", probability=0.5, count=10),
        Fault(kind="delay-event", resource="nodes", seconds=0.05, count=20),
        Fault(kind="watch-cut", resource="nodes", events=3),
    ],
    ids=lambda fault: fault.kind,
)
def test_every_object_gets_there_whatever_happens_on_the_way(embedded, client, manager_for, quiet, fault):
    embedded.add_fault(fault)
    running = labelling(manager_for, embedded).start()
    for number in range(12):
        client.create(node(f"n{number}"))
    eventually(
        lambda: sum("seen" in n.metadata.labels for n in client.list(CoreNode).items) == 12, 40, what="12 labels"
    )
    assert running.end() is None


def test_no_pass_runs_on_a_cache_that_has_not_seen_the_write_before(embedded, client, manager_for, quiet):
    """Events are held back, so that the cache shows the past: without the gate each wake-up would write again."""
    running = manager_for(load_config(str(embedded.kubeconfig)))
    manager = running.manager
    manager.cache.informer(CoreNode)
    lister = manager.cache.lister(CoreNode)
    writes = []

    class Count:
        def reconcile(self, request):
            found = lister.get(request.name)
            if found is not None and found.metadata.labels.get("count") is None:
                writes.append(request)
                manager.client.patch(
                    CoreNode, found.name, None, MergePatch({"metadata": {"labels": {"count": str(len(writes))}}})
                )
            return Result(requeue_after=0.02)

    ControllerBuilder(manager, "count").for_(CoreNode).complete(Count())
    embedded.add_fault(Fault(kind="delay-event", resource="nodes", seconds=0.2))
    client.create(node("n1"))
    running.start()
    eventually(lambda: (found := lister.get("n1")) and found.metadata.labels.get("count"), 20)
    assert len(writes) == 1
    skips = manager.metrics.registry.get_sample_value(
        "controller_runtime_reconcile_stale_cache_skips_total", {"controller": "count"}
    )
    assert skips > 0


# --- leadership -------------------------------------------------------------------------------------------------------


def electing(manager_for, embedded, **options):
    election = LeaderElectionOptions(
        name="lock", namespace="default", lease_duration=1.5, renew_deadline=1.0, retry_period=0.1
    )
    return labelling(manager_for, embedded, leader_election=election, **options)


def test_a_leader_that_cannot_renew_ends_and_writes_nothing_more(embedded, client, manager_for, quiet):
    leader = electing(manager_for, embedded).start()
    eventually(leader.manager.leadership.is_leader)
    agent = Fault(kind="error", code=503, resource="*leases", verb="patch")
    embedded.add_fault(agent)
    embedded.add_fault(Fault(kind="error", code=503, resource="*leases", verb="get"))
    leader.thread.join(20)
    assert isinstance(leader.error, LeadershipLost)
    embedded.clear_faults()
    with pytest.raises(LeadershipLost):
        leader.manager.client.create(node("too-late"))
    assert "too-late" not in stored(embedded)
    successor = electing(manager_for, embedded).start()
    eventually(successor.manager.leadership.is_leader, 20)
    assert successor.manager.leadership.transitions == 1
    for group in (leader.manager._leaders, leader.manager._caches, leader.manager._recorders):
        group.signal()


def test_a_short_outage_of_the_lease_is_survived(embedded, client, manager_for, quiet):
    leader = electing(manager_for, embedded).start()
    eventually(leader.manager.leadership.is_leader)
    embedded.add_fault(Fault(kind="error", code=503, resource="*leases", count=3))
    client.create(node("n1"))
    eventually(lambda: "seen" in client.get(CoreNode, "n1").metadata.labels)
    assert leader.manager.leadership.is_leader()
    assert leader.end() is None


def test_jobs_of_another_namespace_do_not_reach_an_informer_of_one(embedded, client, following):
    follower = following()
    informer = follower.cache.informer(Job, namespace="default")
    eventually(informer.has_synced)
    body = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "i"}]}}}}  # fmt: skip
    for namespace in ("kube-system", "default"):
        client.create_json(Job, {**body, "apiVersion": "batch/v1", "kind": "Job"}, namespace)
    eventually(lambda: informer.lister.get("j", "default"))
    assert informer.lister.get("j", "kube-system") is None


def test_a_lease_is_renewed_beside_a_queue_of_limited_requests(embedded, manager_for, quiet):
    """Renewals have a client of their own: requests that wait for their turn do not hold them up."""
    leader = electing(manager_for, embedded, queries_per_second=1.0, burst=1).start()
    eventually(leader.manager.leadership.is_leader)
    asking = [threading.Thread(target=leader.manager.client.list, args=(CoreNode,)) for _ in range(4)]
    for thread in asking:
        thread.start()
    renewals = len(renewed(embedded))
    eventually(lambda: len(renewed(embedded)) >= renewals + 10)
    assert any(thread.is_alive() for thread in asking), "the queue was there all the time"
    assert leader.manager.leadership.is_leader()
    for thread in asking:
        thread.join(20)


def renewed(embedded):
    return [write for write in embedded.writes() if write.resource.endswith("leases")]
