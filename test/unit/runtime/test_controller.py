"""Controllers: from events to passes, and from outcomes to the queue."""

import threading

import pytest
import structlog

from homelab_api.core import CoreNode, Job
from homelab_autoscaler.runtime import Cache, Channel, Request, Result, StopSignal, TerminalError
from homelab_autoscaler.runtime.controller import CacheSyncError, Engine
from homelab_autoscaler.runtime.errors import ConflictError, DeadlineExceededError, TransportError
from homelab_autoscaler.runtime.handler import enqueue_mapped, enqueue_owner, enqueue_self
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.predicate import labels
from homelab_autoscaler.runtime.reconcile import LOW_PRIORITY
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, eventually

REQUEST = Request("", "n1")


class Scripted:
    """A reconciler whose outcomes a test lists; records the requests it got."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.seen = []

    def reconcile(self, request):
        self.seen.append(request)
        outcome = self.outcomes.pop(0) if self.outcomes else Result()
        if callable(outcome):
            outcome = outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class World:
    def __init__(self, reconciler, **options):
        self.clock = FakeClock()
        self.sources = {CoreNode: FakeSource(CoreNode.resource), Job: FakeSource(Job.resource)}
        self.cache = Cache(None, self.clock, make_source=lambda kind, namespace: self.sources[kind])
        self.metrics = Metrics()
        self.engine = Engine("test", reconciler, self.clock, self.cache, self.metrics, **options)
        self.stop = StopSignal()
        self.threads = []
        self.errors = []

    def start(self):
        for target in (self.cache.run, self._run):
            thread = threading.Thread(target=target, args=(self.stop,))
            thread.start()
            self.threads.append(thread)

    def _run(self, stop):
        try:
            self.engine.run(stop)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.errors.append(error)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    def count(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, {"controller": "test", **labels}) or 0


@pytest.fixture
def world():
    worlds = []

    def make(reconciler, **options):
        worlds.append(World(reconciler, **options))
        return worlds[-1]

    yield make
    for one in worlds:
        one.end()


def process(world, request=REQUEST, priority=0):
    world.engine.queue.add(request, priority=priority)
    got, level = world.engine.queue.get()
    world.engine.process(got, level)
    world.engine.queue.done(got)


TOTAL = "controller_runtime_reconcile_total"


def test_a_plain_success_forgets_failures_and_asks_for_nothing(world):
    w = world(Scripted(TransportError("x"), Result()))
    process(w)
    assert w.engine.queue.retries(REQUEST) == 1
    w.clock.step(1)
    process(w)
    assert w.engine.queue.retries(REQUEST) == 0
    assert w.engine.queue.delayed() == {}
    assert (w.count(TOTAL, result="success"), w.count(TOTAL, result="error")) == (1, 1)


def test_requeue_after_waits_exactly_so_long_with_the_same_priority(world):
    w = world(Scripted(Result(requeue_after=30)))
    process(w, priority=LOW_PRIORITY)
    assert w.engine.queue.delayed() == {REQUEST: 30}
    assert w.count(TOTAL, result="requeue_after") == 1
    w.clock.step(30)
    assert w.engine.queue.get() == (REQUEST, LOW_PRIORITY)


def test_a_result_may_name_another_priority(world):
    w = world(Scripted(Result(requeue_after=30, priority=7)))
    process(w)
    w.clock.step(30)
    assert w.engine.queue.get() == (REQUEST, 7)


def test_an_exception_backs_off_with_the_same_priority(world):
    w = world(Scripted(RuntimeError("boom"), RuntimeError("boom")))
    process(w, priority=LOW_PRIORITY)
    assert w.engine.queue.delayed()[REQUEST] == pytest.approx(0.005)
    w.clock.step(1)
    got, level = w.engine.queue.get()
    assert level == LOW_PRIORITY
    w.engine.process(got, level)
    w.engine.queue.done(got)
    assert w.engine.queue.delayed()[REQUEST] == pytest.approx(0.01)
    assert w.count("controller_runtime_reconcile_errors_total") == 2
    assert w.count("controller_runtime_reconcile_panics_total") == 0


def test_a_terminal_error_is_counted_and_not_retried_nor_forgotten(world):
    w = world(Scripted(RuntimeError("boom"), TerminalError("never")))
    process(w)
    w.clock.step(1)
    process(w)
    assert w.engine.queue.delayed() == {}
    assert len(w.engine.queue) == 0
    assert w.engine.queue.retries(REQUEST) == 1
    assert w.count("controller_runtime_terminal_reconcile_errors_total") == 1
    assert w.count(TOTAL, result="error") == 2


def test_a_bug_is_counted_as_a_panic_and_retried(world):
    w = world(Scripted(AttributeError("no such thing")))
    process(w)
    assert w.count("controller_runtime_reconcile_panics_total") == 1
    assert REQUEST in w.engine.queue.delayed()


def test_a_conflict_is_retried_quietly(world):
    w = world(Scripted(ConflictError("changed meanwhile", status=409)))
    with structlog.testing.capture_logs() as logs:
        process(w)
    assert REQUEST in w.engine.queue.delayed()
    assert [entry["log_level"] for entry in logs] == ["debug"]


def test_only_the_own_time_limit_counts_as_a_timeout(world):
    clock_of = []
    slow = Scripted(lambda: clock_of[0].step(61) or Result(), Result())
    w = world(slow, reconcile_timeout=60.0)
    clock_of.append(w.clock)
    process(w)
    assert w.count("controller_runtime_reconcile_timeouts_total") == 1
    process(w)
    assert w.count("controller_runtime_reconcile_timeouts_total") == 1
    assert w.count(TOTAL, result="success") == 2


def test_a_request_refused_for_lack_of_time_is_a_timeout_and_an_error(world):
    w = world(Scripted(DeadlineExceededError("late")))
    process(w)
    assert w.count("controller_runtime_reconcile_timeouts_total") == 1
    assert w.count(TOTAL, result="error") == 1


def test_every_pass_has_the_controller_object_and_an_id_of_its_own_in_its_log_context(world):
    contexts = []

    class Logging:
        def reconcile(self, request):
            contexts.append(structlog.contextvars.get_contextvars())
            return Result()

    w = world(Logging())
    w.sources[CoreNode].add({"metadata": {"name": "n1"}})
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    w.start()
    eventually(lambda: len(contexts) == 1)
    w.sources[CoreNode].add({"metadata": {"name": "n2"}})
    eventually(lambda: len(contexts) == 2)
    assert [c["object"] for c in contexts] == ["n1", "n2"]
    assert {c["controller"] for c in contexts} == {"test"}
    assert len({c["reconcile_id"] for c in contexts}) == 2


def test_done_is_called_on_every_path(world):
    w = world(Scripted(Result(), RuntimeError("x"), TerminalError("x"), KeyError("x"), Result(requeue_after=1)))
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    w.start()
    for n in range(5):
        w.sources[CoreNode].add({"metadata": {"name": f"n{n}"}})
    eventually(lambda: len(w.engine._reconciler.seen) >= 5)
    eventually(lambda: w.engine.queue.processing() == {})


def test_workers_start_only_when_every_first_list_was_delivered(world):
    r = Scripted()
    w = world(r)
    w.sources[Job].list_errors.extend([TransportError("away")] * 3)
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    w.engine.watch(w.cache.informer(Job), enqueue_owner(CoreNode))
    w.sources[CoreNode].add({"metadata": {"name": "n1"}})
    w.start()
    eventually(lambda: len(w.engine.queue) == 1)
    assert r.seen == []
    for _ in range(20):
        if r.seen:
            break
        w.clock.step(31)
        try:
            eventually(lambda: r.seen, 0.3)
        except TimeoutError:
            continue
    assert r.seen == [REQUEST]


def test_a_kind_that_never_lists_ends_the_controller_with_its_name(world):
    w = world(Scripted(), sync_timeout=120.0)
    w.engine.watch(w.cache.informer(Job), enqueue_self)
    w.sources[Job].list_errors.extend([TransportError("away")] * 10_000)
    w.start()
    for _ in range(40):
        if w.errors:
            break
        w.clock.step(31)
        try:
            eventually(lambda: w.errors, 0.1)
        except TimeoutError:
            continue
    assert isinstance(w.errors[0], CacheSyncError)
    assert "jobs.batch" in str(w.errors[0])


def test_a_standby_fills_its_queue_and_works_on_it_only_when_it_runs(world):
    r = Scripted()
    w = world(r)
    w.sources[CoreNode].add({"metadata": {"name": "n1"}})
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    caching = threading.Thread(target=w.cache.run, args=(w.stop,))
    caching.start()
    w.engine.warm_up(w.stop)
    assert len(w.engine.queue) == 1
    assert r.seen == []
    working = threading.Thread(target=w.engine.run, args=(w.stop,))
    working.start()
    w.threads += [caching, working]
    eventually(lambda: r.seen == [REQUEST])


def test_a_watch_added_after_the_start_begins_at_once(world):
    r = Scripted()
    w = world(r)
    informer = w.cache.informer(CoreNode)
    w.sources[CoreNode].add({"metadata": {"name": "n1"}})
    w.start()
    eventually(lambda: w.engine._warm)
    w.engine.watch(informer, enqueue_self)
    eventually(lambda: r.seen == [REQUEST])


def test_starting_twice_is_an_error(world):
    w = world(Scripted())
    w.start()
    eventually(lambda: w.engine._started)
    with pytest.raises(RuntimeError, match="started before"):
        w.engine.run(w.stop)


def test_the_first_listing_is_overtaken_by_a_real_change(world):
    order = []
    gate = threading.Event()

    class Slow:
        def reconcile(self, request):
            order.append(request.name)
            gate.wait(10)
            return Result()

    w = world(Slow())
    for n in range(20):
        w.sources[CoreNode].add({"metadata": {"name": f"n{n}"}})
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    w.start()
    eventually(lambda: order == ["n0"])
    w.sources[CoreNode].add({"metadata": {"name": "n19", "labels": {"a": "b"}}})
    eventually(lambda: w.cache.lister(CoreNode).get("n19").metadata.labels)
    eventually(lambda: w.cache.registered(CoreNode).pending == 0)
    gate.set()
    eventually(lambda: len(order) >= 20)
    assert order[1] == "n19"


def node_named(name, **metadata):
    return CoreNode.from_json({"metadata": {"name": name, **metadata}})


def test_a_channel_wakes_every_controller_that_listens_even_before_it_starts(world):
    first, second = Scripted(), Scripted()
    w, other = world(first), world(second)
    channel = Channel()
    w.engine.listen(channel, enqueue_self, labels({"ours": "yes"}))
    other.engine.listen(channel, enqueue_mapped(lambda node: [Request("", f"{node.name}-mapped")]))
    channel.send(node_named("n1", labels={"ours": "yes"}))
    channel.send(node_named("n2"))
    w.start()
    other.start()
    eventually(lambda: first.seen == [Request("", "n1")])
    eventually(lambda: second.seen == [Request("", "n1-mapped"), Request("", "n2-mapped")])
    channel.send(node_named("n1", labels={"ours": "yes"}))
    eventually(lambda: len(first.seen) == 2 and len(second.seen) == 3)


def test_a_listener_of_a_channel_that_raises_hurts_neither_the_sender_nor_other_listeners():
    channel = Channel()
    heard = []

    def broken(event):
        raise RuntimeError("cannot")

    channel.listen(broken)
    channel.listen(heard.append)
    with structlog.testing.capture_logs() as logs:
        channel.send(node_named("n1"))
    assert [event.object.name for event in heard] == ["n1"]
    assert [log["name"] for log in logs] == ["n1"]


def test_a_mapper_that_hangs_holds_up_only_its_own_controller(world):
    quick, slow = Scripted(), Scripted()
    w, other = world(quick), world(slow)
    informer = w.cache.informer(CoreNode)
    leave = threading.Event()

    def hang(node):
        leave.wait(10)
        return [Request("", node.name)]

    w.engine.watch(informer, enqueue_self)
    other.engine.watch(informer, enqueue_mapped(hang))
    w.sources[CoreNode].add({"metadata": {"name": "n1"}})
    w.start()
    other.start()
    eventually(lambda: quick.seen == [REQUEST])
    assert slow.seen == []
    leave.set()
    eventually(lambda: slow.seen == [REQUEST])


def test_both_old_and_new_owner_hear_of_a_change(world):
    r = Scripted()
    w = world(r)
    w.engine.watch(w.cache.informer(Job), enqueue_owner(CoreNode, controller_only=True))

    def job(owner, *, controller=True):
        reference = {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": "u", "controller": controller}
        return {"metadata": {"name": "j", "namespace": "ns", "ownerReferences": [reference]}}

    w.start()
    w.sources[Job].wait_for_watch()
    w.sources[Job].add(job("n1"))
    eventually(lambda: r.seen == [Request("", "n1")])
    w.sources[Job].add(job("n2"))
    eventually(lambda: len(r.seen) == 3)
    assert set(r.seen[1:]) == {Request("", "n1"), Request("", "n2")}
    w.sources[Job].add(job("n3", controller=False))
    eventually(lambda: len(r.seen) == 4)
    assert r.seen[3] == Request("", "n2")


def test_a_mapped_event_wakes_each_request_once(world):
    r = Scripted()
    w = world(r)
    w.engine.watch(w.cache.informer(Job), enqueue_mapped(lambda job: [REQUEST, REQUEST, Request("", "n2")]))
    w.start()
    w.sources[Job].wait_for_watch()
    w.sources[Job].add({"metadata": {"name": "j", "namespace": "ns"}})
    eventually(lambda: len(r.seen) == 2)
    assert r.seen == [REQUEST, Request("", "n2")]


def test_a_deletion_that_was_missed_still_wakes_the_object(world):
    r = Scripted()
    w = world(r)
    source = w.sources[CoreNode]
    source.add({"metadata": {"name": "n1"}})
    w.engine.watch(w.cache.informer(CoreNode), enqueue_self)
    w.start()
    eventually(lambda: len(r.seen) == 1)
    source.hold()
    source.remove(None, "n1")
    source.compact()
    source.release()
    source.cut()
    source.held = False
    for _ in range(30):
        if len(r.seen) > 1:
            break
        w.clock.step(31)
        try:
            eventually(lambda: len(r.seen) > 1, 0.2)
        except TimeoutError:
            continue
    assert r.seen[1:] == [REQUEST]
    assert w.cache.lister(CoreNode).get("n1") is None


def test_stop_lets_the_worker_end_its_pass(world):
    entered, leave, ended = threading.Event(), threading.Event(), []

    class Slow:
        def reconcile(self, request):
            entered.set()
            leave.wait(10)
            ended.append(request)
            return Result()

    w = world(Slow())
    w.start()
    w.engine.enqueue(REQUEST)
    assert entered.wait(5)
    w.stop.set()
    leave.set()
    w.end()
    assert ended == [REQUEST]
