"""Informer, store, indexes, handlers: what readers and handlers may rely on."""

import random
import threading

import pytest
import structlog

from homelab_api.core import CoreNode, Job, Pod
from homelab_autoscaler.runtime import Cache, StopSignal, field_indexer
from homelab_autoscaler.runtime.cache import (
    CacheNotStartedError,
    Informer,
    ReflectorOptions,
    WatchEvent,
    field_index_name,
)
from homelab_autoscaler.runtime.errors import GoneError
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, UpdateEvent
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, MutationError, check_mutations, eventually


class World:
    def __init__(self, kind=CoreNode, **options):
        self.clock = FakeClock()
        self.source = FakeSource(kind.resource)
        self.informer = Informer(
            kind, self.source, self.clock, options=ReflectorOptions(streaming_list=False), **options
        )
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.informer.run, args=(self.stop,))
        self.events = []

    def listen(self, events=None, **options):
        sink = self.events if events is None else events
        return self.informer.add_handler(sink.append, **options)

    def start(self):
        self.thread.start()
        self.source.wait_for_watch()
        return self

    def relist(self):
        """Make the reflector list again, past its back-off."""
        before = len(self.source.lists)
        self.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
        self.clock.wait_for_waiters()
        self.clock.step(60)
        eventually(lambda: len(self.source.lists) > before)
        self.source.wait_for_watch()

    def end(self):
        self.stop.set()
        if self.thread.ident:
            self.thread.join(10)
            assert not self.thread.is_alive()


@pytest.fixture
def world():
    worlds = []

    def make(*args, **options):
        worlds.append(World(*args, **options))
        return worlds[-1]

    yield make
    for one in worlds:
        one.end()


def node(name, **metadata):
    return {"metadata": {"name": name, **metadata}}


def test_an_object_is_new_or_changed_by_its_presence_not_by_the_word_of_the_event(world):
    w = world()
    w.listen()
    w.start()
    stored = w.source.add(node("n1"))
    again = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "50"}}
    w.source.emit(WatchEvent("ADDED", again))
    eventually(lambda: len(w.events) == 2)
    assert isinstance(w.events[0], CreateEvent)
    assert not w.events[0].initial
    assert isinstance(w.events[1], UpdateEvent)
    assert w.events[1].old.metadata.resource_version == "11"


def test_the_store_has_taken_a_change_before_a_handler_hears_of_it(world):
    w = world()
    seen = []
    w.informer.add_handler(lambda event: seen.append(w.informer.lister.get("n1")))
    w.start()
    w.source.add(node("n1"))
    eventually(lambda: seen)
    assert seen[0] is not None


def test_a_deletion_tells_the_last_state(world):
    w = world()
    w.listen()
    w.start()
    w.source.add(node("n1", labels={"a": "b"}))
    w.source.remove(None, "n1")
    eventually(lambda: len(w.events) == 2)
    assert isinstance(w.events[1], DeleteEvent)
    assert not w.events[1].state_unknown
    assert w.events[1].object.metadata.labels == {"a": "b"}
    assert w.informer.lister.get("n1") is None


def test_a_missed_deletion_is_found_by_a_list_and_comes_before_new_objects(world):
    w = world()
    w.listen()
    w.source.add(node("gone", labels={"last": "seen"}))
    w.start()
    eventually(lambda: len(w.events) == 1)
    w.source.hold()
    w.source.remove(None, "gone")
    w.source.add(node("new"))
    w.source.cut()
    w.source.release()
    w.source.compact()
    w.clock.step(2)
    w.clock.wait_for_waiters()
    w.clock.step(60)
    eventually(lambda: len(w.events) == 3)
    assert isinstance(w.events[1], DeleteEvent)
    assert w.events[1].state_unknown
    assert w.events[1].object.metadata.labels == {"last": "seen"}
    assert w.events[2].object.name == "new"


def test_a_recreation_that_was_missed_is_one_update_with_another_uid(world):
    w = world()
    w.listen()
    w.source.add(node("n1", uid="first"))
    w.start()
    eventually(lambda: len(w.events) == 1)
    w.source.hold()
    w.source.remove(None, "n1")
    w.source.add(node("n1", uid="second"))
    for watch in list(w.source._open):
        watch._held.clear()
    w.source.release()
    w.relist()
    eventually(lambda: len(w.events) == 2)
    assert isinstance(w.events[1], UpdateEvent)
    assert (w.events[1].old.uid, w.events[1].new.uid) == ("first", "second")


def test_a_list_of_unchanged_objects_is_silent(world):
    w = world()
    w.listen()
    w.source.add(node("n1"))
    w.start()
    eventually(lambda: len(w.events) == 1)
    w.relist()
    w.source.add(node("n2"))
    eventually(lambda: len(w.events) == 2)
    assert w.events[1].object.name == "n2"


def test_a_repeated_older_event_changes_nothing(world):
    w = world()
    w.listen()
    w.start()
    first = w.source.add(node("n1", labels={"v": "1"}))
    w.source.add(node("n1", labels={"v": "2"}))
    w.source.emit(WatchEvent("MODIFIED", first))
    w.source.emit(WatchEvent("DELETED", first))
    w.source.add(node("end"))
    eventually(lambda: len(w.events) == 3)
    assert w.informer.lister.get("n1").metadata.labels == {"v": "2"}


def test_the_store_knows_the_version_that_it_is_in_step_with(world):
    w = world()
    w.start()
    assert w.informer.store.version == "10"
    w.source.add(node("n1"))
    eventually(lambda: w.informer.store.version == "11")
    w.source.remove(None, "n1")
    eventually(lambda: w.informer.store.version == "12")
    w.source.touch()
    w.source.bookmark()
    eventually(lambda: w.informer.store.version == "13")


def test_field_ownership_is_not_stored_and_a_transform_runs_before_storing(world):
    def drop_labels(obj):
        return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "labels"}}

    w = world(transform=drop_labels)
    w.start()
    w.source.add(node("n1", labels={"a": "b"}, managedFields=[{"manager": "x"}]))
    eventually(lambda: w.informer.lister.get("n1"))
    assert w.informer.lister.get("n1").metadata.labels == {}
    ((_, _, raw),) = w.informer.store.decoded()
    assert b"managedFields" not in raw


def test_an_object_that_the_model_cannot_read_is_skipped_by_name(world):
    w = world()
    w.listen()
    w.start()
    with structlog.testing.capture_logs() as logs:
        w.source.add({"metadata": {"name": "bad"}, "spec": {"unschedulable": "not a boolean at all"}})
        w.source.add(node("good"))
        eventually(lambda: w.events)
    assert w.events[0].object.name == "good"
    assert w.informer.unreadable == 1
    entry = next(log for log in logs if log.get("name") == "bad")
    assert "spec.unschedulable" in entry["fields"][0]


def test_an_empty_list_still_syncs(world):
    w = world()
    registration = w.listen()
    w.start()
    assert w.informer.wait_for_sync(w.stop, 5)
    assert registration.wait_for_sync(w.stop, 5)


def test_a_handler_has_synced_only_when_its_initial_events_were_delivered(world):
    w = world()
    leave = threading.Event()
    entered = threading.Event()

    def slow(event):
        entered.set()
        leave.wait(10)

    registration = w.informer.add_handler(slow)
    w.source.add(node("n1"))
    w.start()
    assert entered.wait(5)
    assert w.informer.has_synced()
    assert not registration.has_synced()
    leave.set()
    assert registration.wait_for_sync(w.stop, 5)


def test_waiting_for_a_sync_ends_with_its_time_or_a_stop(world):
    w = world()
    registration = w.listen()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(w.informer.wait_for_sync(w.stop, 30))),
        threading.Thread(target=lambda: results.append(registration.wait_for_sync(w.stop, 30))),
    ]
    threads[0].start()
    threads[1].start()
    w.clock.wait_for_waiters(2)
    w.clock.step(30)
    for thread in threads:
        thread.join(5)
    assert results == [False, False]
    w.stop.set()
    assert not registration.wait_for_sync(w.stop, 30)


def test_a_late_handler_first_hears_what_is_there_then_what_comes(world):
    w = world()
    w.source.add(node("n1"))
    w.start()
    events = []
    registration = w.listen(events)
    assert registration.wait_for_sync(w.stop, 5)
    w.source.add(node("n2"))
    eventually(lambda: len(events) == 2)
    assert [event.initial for event in events] == [True, False]


def test_a_handler_that_raises_loses_that_event_and_goes_on_after_a_second(world):
    w = world()
    heard = []

    def fragile(event):
        if event.object.name == "bad":
            raise RuntimeError("cannot")
        heard.append(event.object.name)

    w.informer.add_handler(fragile)
    other = []
    w.listen(other)
    w.start()
    with structlog.testing.capture_logs():
        for name in ("one", "bad", "two"):
            w.source.add(node(name))
        eventually(lambda: len(other) == 3)
        w.clock.wait_for_waiters()
    assert heard == ["one"]
    assert w.clock.next_deadline() == pytest.approx(1.0)
    w.clock.step(1)
    eventually(lambda: heard == ["one", "two"])


def test_a_handler_removed_during_a_delivery_hears_nothing_more(world):
    w = world()
    entered, leave = threading.Event(), threading.Event()
    heard = []

    def slow(event):
        heard.append(event.object.name)
        entered.set()
        leave.wait(10)

    registration = w.informer.add_handler(slow)
    w.start()
    w.source.add(node("n1"))
    w.source.add(node("n2"))
    assert entered.wait(5)
    w.informer.remove_handler(registration)
    w.informer.remove_handler(registration)
    leave.set()
    w.source.add(node("n3"))
    eventually(lambda: w.informer.lister.get("n3"))
    eventually(lambda: not any(t.name.endswith("/handler") and t.is_alive() for t in w.informer._threads))
    assert heard == ["n1"]


def test_adding_and_removing_handlers_does_not_pile_anything_up(world):
    w = world()
    w.start()
    for _ in range(20):
        w.informer.remove_handler(w.listen([]))
    assert w.informer._registrations == []
    eventually(lambda: not any(thread.is_alive() for thread in w.informer._threads))
    w.listen([])
    assert len(w.informer._threads) == 1


def test_a_direct_handler_has_heard_when_the_change_is_done_and_has_no_thread(world):
    w = world()
    registration = w.listen(direct=True)
    w.source.add(node("n0"))
    w.start()
    assert registration.has_synced()
    w.informer.upsert({"kind": "Node", **node("n1", resourceVersion="90")})
    assert [(event.object.name, event.initial) for event in w.events] == [("n0", True), ("n1", False)]
    assert w.informer._threads == []
    late = []
    assert w.listen(late, direct=True).has_synced()
    assert [event.object.name for event in late] == ["n0", "n1"]
    w.informer.remove_handler(registration)
    w.informer.upsert({"kind": "Node", **node("n2", resourceVersion="91")})
    assert (len(w.events), len(late)) == (2, 3)


def test_a_direct_handler_that_raises_loses_that_event_alone(world):
    w = world()
    heard = []

    def fragile(event):
        heard.append(event.object.name)
        if event.object.name == "bad":
            raise RuntimeError("cannot")

    w.informer.add_handler(fragile, direct=True)
    w.start()
    with structlog.testing.capture_logs() as logs:
        for name in ("one", "bad", "two"):
            w.source.add(node(name))
        eventually(lambda: w.informer.lister.get("two"))
    assert heard == ["one", "bad", "two"]
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["handler failed; the event is lost to it"]


def test_an_informer_that_has_stopped_takes_no_handler_and_never_restarts(world):
    w = world().start()
    w.end()
    with pytest.raises(RuntimeError, match="has stopped"):
        w.listen()
    with pytest.raises(RuntimeError, match="started before"):
        w.informer.run(StopSignal())


class Unspread(random.Random):
    def uniform(self, a, b):
        return (a + b) / 2


def test_a_resync_replays_the_store_to_those_who_asked_and_asks_no_server():
    clock = FakeClock()
    source = FakeSource(CoreNode.resource)
    options = ReflectorOptions(streaming_list=False)
    cache = Cache(None, clock, options=options, make_source=lambda kind, namespace: source, rng=Unspread())
    informer = cache.informer(CoreNode)
    asked, silent = [], []
    informer.add_handler(asked.append, resync_period=10)
    informer.add_handler(silent.append)
    source.add(node("n1"))
    stop = StopSignal()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    eventually(lambda: asked and silent)
    clock.wait_for_waiters()
    clock.step(10)
    eventually(lambda: len(asked) == 2)
    assert asked[1].unchanged
    assert asked[1].old is asked[1].new
    assert len(silent) == 1
    assert len(source.lists) == 1
    stop.set()
    thread.join(5)


def test_a_resync_leaves_out_what_a_handler_has_newer_news_of(world):
    w = world()
    entered, leave = threading.Event(), threading.Event()
    heard = []

    def slow(event):
        heard.append(event)
        entered.set()
        leave.wait(10)

    w.informer.add_handler(slow, resync_period=10)
    w.source.add(node("n1"))
    w.start()
    assert entered.wait(5)
    w.source.add(node("n2"))
    eventually(lambda: w.informer.lister.get("n2"))
    w.clock.step(10)
    w.informer.resync()
    leave.set()
    eventually(lambda: len(heard) == 3)
    assert [(type(event), event.new.name) for event in heard[2:]] == [(UpdateEvent, "n1")]
    assert isinstance(heard[1], CreateEvent)


def test_the_informers_of_a_cache_resync_up_to_a_tenth_apart():
    clock = FakeClock()
    cache = Cache(None, clock, make_source=lambda kind, namespace: FakeSource(kind.resource), rng=random.Random(3))
    dues = []
    for number in range(50):
        informer = cache.informer(CoreNode, namespace=str(number))
        informer.add_handler(print, resync_period=1000)
        dues.append(informer.resync_due())
    assert all(900 <= due <= 1100 for due in dues)
    assert min(dues) < 930
    assert max(dues) > 1070


def test_a_resync_period_is_at_least_a_second(world):
    w = world()
    assert w.listen(resync_period=0.01).resync_period == 1.0


# --- indexes ----------------------------------------------------------------------------------------------------------


def pod(name, node_name="", namespace="ns", **metadata):
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": {"nodeName": node_name}}


def by_node(obj):
    return [obj.spec.node_name]


def names(objects):
    return sorted(obj.name for obj in objects)


def test_a_changed_value_moves_the_object_in_the_index(world):
    w = world(Pod, indexers={"node": by_node})
    w.source.add(pod("p", "n1"))
    w.start()
    assert names(w.informer.lister.by_index("node", "n1")) == ["p"]
    w.source.add(pod("p", "n2"))
    eventually(lambda: names(w.informer.lister.by_index("node", "n2")) == ["p"])
    assert w.informer.lister.by_index("node", "n1") == []
    assert w.informer.lister.index_values("node") == ["n2"]
    w.source.remove("ns", "p")
    eventually(lambda: w.informer.lister.by_index("node", "n2") == [])
    assert w.informer.lister.index_values("node") == []


def test_an_object_may_have_several_values_and_shared_ones_stay(world):
    w = world(indexers={"label": lambda obj: obj.metadata.labels})
    w.source.add(node("a", labels={"x": "", "y": ""}))
    w.source.add(node("b", labels={"y": ""}))
    w.start()
    assert names(w.informer.lister.by_index("label", "y")) == ["a", "b"]
    w.source.add(node("a", labels={"x": ""}))
    eventually(lambda: names(w.informer.lister.by_index("label", "y")) == ["b"])
    assert names(w.informer.lister.by_index("label", "x")) == ["a"]


def test_an_index_added_later_covers_what_is_there(world):
    w = world(Pod)
    w.source.add(pod("p", "n1"))
    w.start()
    w.informer.add_indexers({"node": by_node})
    assert names(w.informer.lister.by_index("node", "n1")) == ["p"]


def test_a_second_index_of_the_same_name_is_an_error(world):
    w = world(Pod, indexers={"node": by_node})
    with pytest.raises(ValueError, match='"node" exists'):
        w.informer.add_indexers({"node": lambda obj: []})


def test_an_unknown_index_is_an_error_and_an_unknown_value_is_empty(world):
    w = world(Pod, indexers={"node": by_node})
    with pytest.raises(KeyError, match="there is: node"):
        w.start().informer.lister.by_index("nodes", "n1")
    assert w.informer.lister.by_index("node", "nowhere") == []


def test_an_empty_value_never_matches(world):
    w = world(Pod, indexers={"node": by_node, field_index_name("n"): field_indexer(lambda p: p.spec.node_name)})
    w.source.add(pod("unscheduled"))
    w.start()
    assert w.informer.lister.by_index("node", "") == []
    assert w.informer.lister.by_fields({"n": ""}) == []


def test_the_namespace_index_is_always_there(world):
    w = world(Pod)
    w.source.add(pod("a", namespace="one"))
    w.source.add(pod("b", namespace="two"))
    w.start()
    assert names(w.informer.lister.by_index("namespace", "two")) == ["b"]
    assert names(w.informer.lister.list("one")) == ["a"]
    assert names(w.informer.lister.list()) == ["a", "b"]


def test_field_selectors_match_exactly_intersect_and_keep_to_a_namespace(world):
    w = world(
        Pod,
        indexers={
            field_index_name("spec.nodeName"): field_indexer(lambda p: p.spec.node_name),
            field_index_name("app"): field_indexer(lambda p: p.metadata.labels.get("app")),
        },
    )
    w.source.add(pod("a", "n1", "one", labels={"app": "x"}))
    w.source.add(pod("b", "n1", "two", labels={"app": "y"}))
    w.source.add(pod("c", "n2", "two", labels={"app": "x"}))
    w.start()
    lister = w.informer.lister
    assert names(lister.by_fields({"spec.nodeName": "n1"})) == ["a", "b"]
    assert names(lister.by_fields({"spec.nodeName": "n1"}, "two")) == ["b"]
    assert names(lister.by_fields({"spec.nodeName": "n1", "app": "x"})) == ["a"]
    assert len(lister.by_fields({"spec.nodeName": "n1"}, limit=1)) == 1
    with pytest.raises(ValueError, match="at least one"):
        lister.by_fields({})


def test_an_index_function_that_fails_hides_the_object_from_that_index_only(world):
    def fragile(obj):
        if obj.name == "odd":
            raise TypeError("odd")
        return ["all"]

    w = world(indexers={"fragile": fragile})
    with structlog.testing.capture_logs():
        w.source.add(node("odd"))
        w.source.add(node("even"))
        w.start()
    assert names(w.informer.lister.by_index("fragile", "all")) == ["even"]
    assert names(w.informer.lister.list()) == ["even", "odd"]


# --- cache ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache():
    return Cache(None, FakeClock(), make_source=lambda kind, namespace: FakeSource(kind.resource))


def test_reading_a_kind_that_nobody_watches_is_an_error_with_the_fix(cache):
    with pytest.raises(LookupError, match=r"jobs\.batch.*cache\.informer\(Job\)"):
        cache.lister(Job)


def test_reading_without_a_start_is_an_error_and_not_an_empty_answer(world):
    w = world()
    errors = []

    def read():
        try:
            w.informer.lister.list()
        except CacheNotStartedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    w.clock.wait_for_waiters()
    w.clock.step(5)
    thread.join(5)
    assert errors == ["nodes was read before the cache was started"]


def test_a_read_that_is_a_little_early_waits_for_the_start(world):
    w = world()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(w.informer.lister.get("n1")))
    thread.start()
    w.clock.wait_for_waiters()
    w.start()
    thread.join(5)
    assert answers == [None]


def test_a_kind_has_one_informer_that_gathers_indexes(cache):
    one = cache.informer(Pod, indexers={"node": by_node})
    two = cache.informer(Pod, indexers={"node": by_node, "name": lambda obj: [obj.name]})
    assert one is two
    assert set(one.store.indexers()) == {"node", "name"}
    with pytest.raises(ValueError, match="exists"):
        cache.informer(Pod, indexers={"node": lambda obj: []})


def test_a_transform_is_given_by_whichever_call_has_one_and_before_the_start(cache):
    def trim(obj):
        return obj | {"metadata": obj["metadata"] | {"labels": {"trimmed": "yes"}}}

    plain = cache.informer(Pod)
    assert cache.informer(Pod, transform=trim) is cache.informer(Pod, transform=trim) is plain
    with pytest.raises(ValueError, match="another transform"):
        cache.informer(Pod, transform=lambda obj: obj)
    plain.upsert({"metadata": {"name": "p", "namespace": "x", "resourceVersion": "1"}})
    assert plain.store.get("x/p").metadata.labels == {"trimmed": "yes"}


def test_a_transform_that_comes_after_the_start_is_refused(world):
    w = world()
    w.start()
    eventually(w.informer.has_synced)
    with pytest.raises(ValueError, match="too late"):
        w.informer.transform_by(lambda obj: obj)


def test_informers_of_several_namespaces_are_told_apart(cache):
    one = cache.informer(Pod, namespace="one")
    cache.informer(Pod, namespace="two")
    assert cache.lister(Pod, namespace="one") is one.lister
    with pytest.raises(LookupError, match="several namespaces"):
        cache.lister(Pod)
    assert cache.covering(Pod, "one") is one
    assert cache.covering(Pod, "three") is None


def test_a_change_of_a_cached_object_is_caught(world):
    clock = FakeClock()
    source = FakeSource(CoreNode.resource)
    cache = Cache(None, clock, make_source=lambda kind, namespace: source)
    informer = cache.informer(CoreNode)
    source.add(node("n1", labels={"a": "b"}))
    stop = StopSignal()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    assert informer.wait_for_sync(stop, 5)
    check_mutations(cache)
    cache.lister(CoreNode).get("n1").metadata.labels["sneaky"] = "yes"
    with pytest.raises(MutationError, match="Node n1 was changed in the cache: metadata"):
        check_mutations(cache)
    stop.set()
    thread.join(5)


def test_decoded_objects_are_bounded_and_the_rest_is_decoded_when_read(world):
    w = world()
    w.informer.store._decoded_limit = 3
    for number in range(10):
        w.source.add(node(f"n{number}"))
    w.start()
    assert len(w.informer.lister.list()) == 10
    assert len(w.informer.store.decoded()) == 3
    assert w.informer.lister.get("n0").name == "n0"


def test_a_server_that_went_back_in_time_is_believed_after_a_list(world):
    w = world()
    w.listen()
    w.source.add(node("n1", labels={"v": "new"}))
    w.start()
    w.source.rewind(3)
    w.source.list_errors.append(GoneError("gone", status=410))
    w.relist()
    w.source.add(node("n1", labels={"v": "restored"}))
    eventually(lambda: w.informer.store.rewinds == 1)
    eventually(lambda: w.informer.store.version == "4")
