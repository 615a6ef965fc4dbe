"""Manager: order of start and stop, grace, failures, probes."""

import threading
import urllib.error
import urllib.request

import pytest

from homelab_api.core import CoreNode
from homelab_autoscaler.runtime import (
    ControllerBuilder,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Result,
    StopSignal,
)
from homelab_autoscaler.runtime.cache import Cache
from homelab_autoscaler.runtime.manager import GracePeriodExceeded, GroupStopped
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, eventually


class Probe:
    """A runnable that notes its start and end."""

    def __init__(self, name, journal):
        self.name = name
        self.journal = journal
        self.started = threading.Event()

    def run(self, stop):
        self.journal.append(f"+{self.name}")
        self.started.set()
        ended = threading.Event()
        stop.on_set(ended.set)
        ended.wait(20)
        self.journal.append(f"-{self.name}")


class Running:
    """A manager in a thread."""

    def __init__(self, manager):
        self.manager = manager
        self.stop = StopSignal()
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def end(self):
        self.stop.set()
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.error


@pytest.fixture
def start(script):
    script.reply(404, {"kind": "Status", "code": 404, "reason": "NotFound"})
    running = []

    def begin(manager):
        running.append(Running(manager))
        return running[-1]

    begin.config = script.config
    yield begin
    for one in running:
        one.end()


def make(start, **options):
    manager = Manager(ManagerOptions(config=start.config, **options))
    source = FakeSource(CoreNode.resource)
    manager.cache = Cache(None, manager.clock, make_source=lambda kind, namespace: source)
    manager.source = source
    return manager


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_groups_stop_in_order_and_each_only_after_the_one_before(start):
    journal = []
    manager = make(start)
    leader, other, webhook = (Probe(name, journal) for name in ("leader", "other", "webhook"))
    manager.add(leader)
    manager.add(other, needs_leader=False)
    manager.add_webhook(webhook)
    running = start(manager)
    for probe in (webhook, other, leader):
        assert probe.started.wait(5)
    assert running.end() is None
    assert journal.index("+webhook") < journal.index("+other") < journal.index("+leader")
    assert [entry for entry in journal if entry[0] == "-"] == ["-other", "-leader", "-webhook"]


def test_a_runnable_that_fails_stops_the_manager_with_its_error(start):
    class Broken:
        def run(self, stop):
            raise OSError("no more disk")

    journal = []
    manager = make(start)
    probe = Probe("leader", journal)
    manager.add(probe)
    running = start(manager)
    assert probe.started.wait(5)
    manager.add(Broken())
    running.thread.join(10)
    assert isinstance(running.error, OSError)
    assert journal == ["+leader", "-leader"]


def test_a_runnable_that_hangs_is_named_when_the_grace_period_is_over(start):
    release = threading.Event()

    class Hung:
        name = "hung-one"

        def run(self, stop):
            release.wait(30)

    manager = make(start, graceful_timeout=0.2)
    manager.add(Hung())
    running = start(manager)
    eventually(lambda: "hung-one" in manager._leaders._running.values())
    error = running.end()
    release.set()
    assert isinstance(error, GracePeriodExceeded)
    assert "hung-one" in str(error)


def test_the_grace_period_is_thirty_seconds_unless_told_otherwise(start):
    release = threading.Event()

    class Hung:
        name = "hung-one"

        def run(self, stop):
            release.wait(30)

    clock = FakeClock()
    manager = make(start, clock=clock)
    manager.add(Hung())
    running = start(manager)
    eventually(lambda: "hung-one" in manager._leaders._running.values())
    clock.wait_for_waiters(1)  # the cache, for its next resync
    running.stop.set()
    clock.wait_for_waiters(2)  # and the manager, for what hangs
    clock.step(29)
    assert running.thread.is_alive()
    clock.step(1)
    error = running.end()
    release.set()
    assert isinstance(error, GracePeriodExceeded)
    assert "30 s" in str(error)


def test_probes_answer_while_everything_else_stops(start):
    release = threading.Event()

    class Slow:
        def run(self, stop):
            release.wait(30)

    manager = make(start, health_address="127.0.0.1:0")
    manager.add(Slow())
    running = start(manager)
    eventually(lambda: manager._leaders._running)
    running.stop.set()
    eventually(lambda: manager._stopping)
    assert get(f"http://127.0.0.1:{manager.health_server.port}/healthz") == (200, "ok\n")
    release.set()
    assert running.end() is None


def test_a_process_that_leads_without_renewing_is_not_healthy(start):
    clock = FakeClock()
    election = LeaderElectionOptions(name="lock", namespace="ns")
    manager = make(start, clock=clock, leader_election=election)
    assert manager.checks.handle("/healthz/leader-election", {}).status == 200
    manager.leadership.renewed(clock.monotonic(), 1)
    clock.step(election.lease_duration + 5)
    assert manager.checks.handle("/healthz/leader-election", {}).status == 200
    clock.step(1)
    assert manager.checks.handle("/healthz/leader-election", {}).status == 500
    assert manager.checks.handle("/readyz", {"exclude": ["informers"]}).status == 200


def test_the_election_has_connections_a_timeout_and_a_limit_of_its_own(start):
    election = LeaderElectionOptions(name="lock", namespace="ns")
    manager = make(start, leader_election=election, queries_per_second=1.0)
    client = manager._elector._client
    assert client.transport is not manager.client.transport
    assert client.transport._limiter is None
    assert client._timeout == 5.0


def test_what_is_added_at_run_time_starts_and_during_the_stop_is_refused(start):
    journal = []
    manager = make(start)
    first = Probe("first", journal)
    manager.add(first)
    running = start(manager)
    assert first.started.wait(5)
    late = Probe("late", journal)
    manager.add(late)
    assert late.started.wait(5)
    running.end()
    with pytest.raises(GroupStopped, match="too late"):
        manager.add(Probe("later", journal))


def test_a_manager_runs_once(start):
    manager = make(start)
    start(manager).end()
    with pytest.raises(RuntimeError, match="ran before"):
        manager.run(StopSignal())


def test_controllers_need_names_of_their_own(start):
    manager = make(start)

    class Nothing:
        def reconcile(self, request):
            return Result()

    ControllerBuilder(manager, "twin").for_(CoreNode).complete(Nothing())
    with pytest.raises(ValueError, match="twin"):
        ControllerBuilder(manager, "twin").for_(CoreNode).complete(Nothing())


def test_probes_answer_before_the_caches_are_synced_and_readiness_follows_them(start):
    manager = make(start, health_address="127.0.0.1:0")
    manager.cache.informer(CoreNode)
    release = threading.Event()
    inner = manager.source.list

    def slow(**query):
        release.wait(10)
        return inner(**query)

    manager.source.list = slow
    running = start(manager)
    eventually(lambda: hasattr(manager, "health_server"))
    base = f"http://127.0.0.1:{manager.health_server.port}"
    assert get(f"{base}/healthz") == (200, "ok\n")
    status, body = get(f"{base}/readyz?verbose")
    assert status == 500
    assert "[-]informers failed: reason withheld" in body
    assert get(f"{base}/readyz/informers")[0] == 500
    assert get(f"{base}/readyz?exclude=informers")[0] == 200
    release.set()
    eventually(lambda: get(f"{base}/readyz")[0] == 200)
    assert get(f"{base}/elsewhere")[0] == 404
    running.end()


def test_a_manager_that_heard_nothing_of_a_kind_for_too_long_is_not_ready_until_it_hears_again(start):
    manager = make(start, health_address="127.0.0.1:0")
    clock = FakeClock()
    manager.cache = Cache(None, clock, make_source=lambda kind, namespace: manager.source)
    manager.cache.informer(CoreNode)
    running = start(manager)
    eventually(lambda: hasattr(manager, "health_server"))
    url = f"http://127.0.0.1:{manager.health_server.port}/readyz/informers"
    eventually(lambda: get(url)[0] == 200)
    clock.step(manager.options.cache_max_silence + 1)
    assert get(url)[0] == 500
    manager.source.bookmark()
    eventually(lambda: get(url)[0] == 200)
    running.end()


def test_metrics_have_their_known_names_from_the_start(start):
    manager = make(start, metrics_address="127.0.0.1:0")

    class Nothing:
        def reconcile(self, request):
            return Result()

    ControllerBuilder(manager, "zero").for_(CoreNode).complete(Nothing())
    start(manager)
    eventually(lambda: hasattr(manager, "metrics_server"))
    _, body = get(f"http://127.0.0.1:{manager.metrics_server.port}/metrics")
    for line in (
        'controller_runtime_reconcile_total{controller="zero",result="success"} 0.0',
        'controller_runtime_reconcile_errors_total{controller="zero"} 0.0',
        'controller_runtime_max_concurrent_reconciles{controller="zero"} 1.0',
        'workqueue_depth{controller="zero",name="zero",priority="0"} 0.0',
        "process_resident_memory_bytes ",
        'workqueue_unfinished_work_seconds{controller="zero",name="zero"} 0.0',
    ):
        assert line in body


def test_no_thread_is_left_behind(start):
    before = set(threading.enumerate())
    manager = make(start, health_address="127.0.0.1:0", metrics_address="127.0.0.1:0")

    class Nothing:
        def reconcile(self, request):
            return Result()

    ControllerBuilder(manager, "some").for_(CoreNode).with_options(workers=3).complete(Nothing())
    running = start(manager)
    eventually(lambda: sum(t.name.startswith("some/worker") for t in threading.enumerate()) == 3)
    get(f"http://127.0.0.1:{manager.health_server.port}/healthz")
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert {"informer/nodes", "recorder/recorder", "leader/some", "some/worker-2", "server/HttpServer"} <= names
    running.end()
    eventually(lambda: not [t for t in set(threading.enumerate()) - before if "process_request" not in t.name])


def test_priorities_beyond_twenty_five_share_one_label():
    metrics = Metrics()
    queue = metrics.queue("many", dict)
    for priority in range(40):
        queue.depth(priority, 1)
    value = metrics.registry.get_sample_value
    labels = {"name": "many", "controller": "many"}
    assert value("workqueue_depth", {**labels, "priority": "24"}) == 1
    assert value("workqueue_depth", {**labels, "priority": "25"}) is None
    assert value("workqueue_depth", {**labels, "priority": "other"}) == 15
