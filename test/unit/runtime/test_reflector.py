"""Reflector: the conversation with a list/watch source, rule by rule."""

import random
import threading

import pytest
import structlog

from homelab_api.core import CoreNode
from homelab_autoscaler.runtime import StopSignal
from homelab_autoscaler.runtime.cache import Backoff, Reflector, ReflectorOptions, WatchEvent
from homelab_autoscaler.runtime.cache.reflector import key_of
from homelab_autoscaler.runtime.errors import (
    ApiError,
    GoneError,
    InternalServerError,
    ServerTimeoutError,
    StallError,
    TooManyRequestsError,
    TransportError,
)
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, eventually


class NoJitter(random.Random):
    def random(self):
        return 0.0


class Recorded:
    """A sink that holds what a store would."""

    def __init__(self):
        self.objects = {}
        self.told = []

    def replace(self, keys, objects, resource_version):
        self.objects = {key_of(obj): obj for obj in objects}
        assert list(self.objects) == list(keys)
        self.told.append(f"list@{resource_version}")

    def upsert(self, obj):
        self.objects[key_of(obj)] = obj
        self.told.append(f"put {obj['metadata']['name']}")

    def remove(self, obj):
        self.objects.pop(key_of(obj), None)
        self.told.append(f"del {obj['metadata']['name']}")

    def bookmark(self, resource_version):
        self.told.append(f"bookmark@{resource_version}")


class World:
    def __init__(self, *, streaming=False, offered=False, **options):
        self.clock = FakeClock()
        self.source = FakeSource(CoreNode.resource, streaming_list=streaming)
        self.sink = Recorded()
        self.errors = []
        self.reflector = Reflector(
            self.source,
            self.sink,
            CoreNode.resource,
            self.clock,
            options=ReflectorOptions(streaming_list=streaming or offered, **options),
            on_error=self.errors.append,
            rng=NoJitter(),
        )
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.reflector.run, args=(self.stop,))

    def start(self):
        self.thread.start()
        return self

    def watching(self):
        self.source.wait_for_watch()
        return self

    def backoff(self):
        """The wait that the reflector is in, in seconds; passes it."""
        self.clock.wait_for_waiters()
        seconds = self.clock.next_deadline()
        self.clock.step(seconds)
        return seconds

    def end(self):
        self.stop.set()
        if self.thread.ident:
            self.thread.join(10)
            assert not self.thread.is_alive()


@pytest.fixture
def world():
    worlds = []

    def make(**options):
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for one in worlds:
        one.end()


def node(name, **metadata):
    return {"metadata": {"name": name, **metadata}}


def test_the_first_list_takes_any_version_and_the_watch_goes_on_from_it(world):
    w = world()
    w.source.add(node("n1"))
    w.start().watching()
    assert w.source.lists == ["0"]
    assert w.source.watches == ["11"]
    w.source.add(node("n2"))
    eventually(lambda: w.reflector.resource_version == "12")
    assert w.sink.told == ["list@11", "put n2"]


def test_each_watch_asks_for_a_time_of_its_own_between_five_and_ten_minutes():
    source = FakeSource(CoreNode.resource)
    clock = FakeClock()
    options = ReflectorOptions(streaming_list=False)
    reflector = Reflector(source, Recorded(), CoreNode.resource, clock, options=options, rng=random.Random(5))
    stop = StopSignal()
    thread = threading.Thread(target=reflector.run, args=(stop,))
    thread.start()
    for number in range(30):
        eventually(lambda number=number: len(source.timeouts) > number and source.open_watches)
        source.bookmark()
        source.cut()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert all(300 <= seconds < 600 for seconds in source.timeouts)
    assert len(set(source.timeouts)) > 20


def test_a_watch_that_ends_by_itself_goes_on_from_the_last_event_without_a_list(world):
    w = world().start().watching()
    w.source.add(node("n1"))
    eventually(lambda: w.sink.told == ["list@10", "put n1"])
    w.source.cut()
    eventually(lambda: w.source.watches == ["10", "11"])
    assert len(w.source.lists) == 1
    assert w.errors == []


def test_a_bookmark_moves_the_position_and_creates_no_object(world):
    w = world().start().watching()
    w.source.touch()
    version = w.source.bookmark()
    eventually(lambda: w.sink.told == ["list@10", f"bookmark@{version}"])
    w.source.cut()
    eventually(lambda: w.source.watches == ["10", version])
    assert w.sink.objects == {}


def test_410_when_the_watch_is_opened_leads_to_a_list_at_the_last_version(world):
    w = world()
    w.start().watching()
    w.source.touch()
    w.source.compact()
    w.source.add(node("n1"))
    eventually(lambda: w.sink.told[-1] == "put n1")
    w.source.hold()
    w.source.add(node("n2"))
    w.source.compact()
    w.source.cut()
    w.source.release()
    assert w.backoff() == pytest.approx(0.8)
    eventually(lambda: w.sink.told[-1] == "list@13")
    assert w.source.lists == ["0", "12"]
    assert isinstance(w.errors[-1], GoneError)
    assert set(w.sink.objects) == {"n1", "n2"}


def test_410_inside_the_stream_leads_to_a_list_at_the_last_version(world):
    w = world().start().watching()
    w.source.emit(WatchEvent("ERROR", {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"}))
    w.backoff()
    eventually(lambda: len(w.source.lists) == 2)
    assert w.source.lists == ["0", "10"]


def test_410_of_the_list_itself_leads_at_once_to_a_quorum_read(world):
    w = world().start().watching()
    w.source.list_errors.append(GoneError("too old", status=410))
    w.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    w.backoff()
    eventually(lambda: w.source.lists == ["0", "10", ""])
    w.source.wait_for_watch()
    w.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    w.backoff()
    eventually(lambda: w.source.lists == ["0", "10", "", "10"])


def test_a_version_that_the_server_does_not_know_yet_leads_at_once_to_a_quorum_read(world):
    w = world()
    w.source.touch()
    w.start().watching()
    w.source.rewind(5)
    w.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    w.backoff()
    eventually(lambda: w.source.lists == ["0", "11", ""])
    eventually(lambda: w.reflector.resource_version == "5")


def test_a_watch_from_the_future_leads_to_a_quorum_read(world):
    w = world()
    details = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
    w.source.watch_errors.append(ServerTimeoutError("Too large resource version", status=504, details=details))
    w.start()
    w.backoff()
    w.watching()
    assert w.source.lists == ["0", ""]


def test_a_bookmark_behind_our_position_leads_to_a_quorum_read(world):
    w = world()
    w.source.add(node("n1"))
    w.start().watching()
    w.source.rewind(4)
    w.source.bookmark()
    w.backoff()
    eventually(lambda: w.source.lists == ["0", ""])
    eventually(lambda: w.reflector.resource_version == "4")


def test_a_repeated_older_event_does_not_move_the_position_back(world):
    w = world().start().watching()
    first = w.source.add(node("n1"))
    w.source.add(node("n2"))
    w.source.emit(WatchEvent("MODIFIED", first))
    w.source.add(node("n3"))
    eventually(lambda: "n3" in w.sink.objects)
    w.source.cut()
    eventually(lambda: w.source.watches == ["10", "13"])


def test_429_or_no_connection_when_opening_backs_off_and_does_not_list(world):
    w = world()
    w.source.watch_errors.extend([TooManyRequestsError("busy", status=429), TransportError("refused", sent=False)])
    w.start()
    assert w.backoff() == pytest.approx(0.8)
    assert w.backoff() == pytest.approx(1.6)
    w.watching()
    assert len(w.source.lists) == 1
    assert w.source.watches == ["10", "10", "10"]


def test_429_inside_the_stream_backs_off_and_does_not_list(world):
    w = world().start().watching()
    w.source.emit(WatchEvent("ERROR", {"code": 429, "reason": "TooManyRequests"}))
    w.backoff()
    eventually(lambda: len(w.source.watches) == 2)
    assert len(w.source.lists) == 1


def test_500_inside_the_stream_lists_again(world):
    w = world().start().watching()
    w.source.emit(WatchEvent("ERROR", {"code": 500, "reason": "InternalError"}))
    w.backoff()
    eventually(lambda: len(w.source.lists) == 2)
    assert isinstance(w.errors[0], InternalServerError)


def test_500_inside_the_stream_may_be_retried_in_place_for_a_while(world):
    w = world(internal_error_retry=5.0).start().watching()
    w.source.emit(WatchEvent("ERROR", {"code": 500, "reason": "InternalError"}))
    w.backoff()
    eventually(lambda: len(w.source.watches) == 2)
    assert len(w.source.lists) == 1


def test_a_connection_that_breaks_in_the_middle_is_watched_again_without_a_list(world):
    w = world().start().watching()
    w.source.add(node("n1"))
    eventually(lambda: w.sink.objects)
    w.source.cut(TransportError("reset"))
    eventually(lambda: w.source.watches == ["10", "11"])
    assert len(w.source.lists) == 1
    assert len(w.errors) == 1


def test_silence_beyond_the_limit_is_watched_again_from_the_last_version(world):
    w = world().start().watching()
    w.clock.step(75)
    w.source.cut(StallError("silent"))
    eventually(lambda: w.source.watches == ["10", "10"])
    assert len(w.source.lists) == 1


def test_a_watch_that_ends_at_once_without_a_word_does_not_spin(world):
    w = world().start().watching()
    w.source.cut()
    assert w.backoff() == pytest.approx(0.8)
    w.watching()
    w.source.cut()
    assert w.backoff() == pytest.approx(1.6)
    w.watching()
    assert len(w.source.lists) == 3


def test_failing_lists_back_off_doubling_up_to_thirty_seconds(world):
    w = world()
    w.source.list_errors.extend(TransportError("away") for _ in range(8))
    w.start()
    assert [w.backoff() for _ in range(8)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])
    w.watching()


def test_two_quiet_minutes_reset_the_back_off():
    clock = FakeClock()
    backoff = Backoff(clock, NoJitter())
    assert [backoff.delay(), backoff.delay()] == pytest.approx([0.8, 1.6])
    clock.step(121)
    assert backoff.delay() == pytest.approx(0.8)


def test_jitter_stretches_a_wait_by_up_to_its_own_length():
    backoff = Backoff(FakeClock(), random.Random(1))
    assert 0.8 <= backoff.delay() <= 1.6


def test_stop_during_a_back_off_ends_at_once(world):
    w = world()
    w.source.list_errors.append(TransportError("away"))
    w.start()
    w.clock.wait_for_waiters()
    w.end()


def test_stop_during_a_watch_ends_at_once(world):
    w = world().start().watching()
    w.end()
    assert w.source.open_watches == 0


def test_stop_during_a_list_ends_after_it_without_a_watch(world):
    w = world()
    entered, leave = threading.Event(), threading.Event()
    inner = w.source.list

    def slow(**query):
        entered.set()
        leave.wait(10)
        return inner(**query)

    w.source.list = slow
    w.start()
    assert entered.wait(5)
    w.stop.set()
    leave.set()
    w.end()
    assert w.source.watches == []


def test_a_long_list_comes_in_pages(world):
    w = world()
    for number in range(501):
        w.source.add(node(f"n{number}"))
    w.start().watching()
    assert len(w.sink.objects) == 501
    assert w.source.pages == [500, 500]
    assert w.source.lists[1].startswith("continue:")


def test_a_continue_token_that_expired_leads_to_one_unpaged_list_at_the_same_version(world):
    w = world(page_size=2)
    for number in range(5):
        w.source.add(node(f"n{number}"))
    inner = w.source.list

    def expiring(**query):
        if query["continue_token"]:
            w.source.list = inner
            raise GoneError("token expired", status=410)
        return inner(**query)

    w.source.list = expiring
    w.start().watching()
    assert len(w.sink.objects) == 5
    assert w.source.lists == ["0", "0"]
    assert w.source.pages == [2, 0]


def test_a_list_at_a_concrete_version_is_not_paged_unless_the_first_one_was(world):
    w = world(page_size=2)
    w.source.add(node("n1"))
    w.start().watching()
    w.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    w.backoff()
    eventually(lambda: len(w.source.pages) == 2)
    assert w.source.pages == [2, 0]


@pytest.mark.parametrize(
    "event",
    [
        WatchEvent("", {}),
        WatchEvent("ADDED", {"kind": "Node"}),
        WatchEvent("ADDED", {"kind": "Node", "metadata": {}}),
        WatchEvent("ADDED", {"kind": "Table", "metadata": {"name": "t", "resourceVersion": "99"}}),
        WatchEvent("SURPRISE", {"kind": "Node", "metadata": {"name": "x"}}),
    ],
)
def test_an_item_that_is_no_object_of_the_kind_is_skipped_and_the_stream_goes_on(world, event):
    w = world().start().watching()
    with structlog.testing.capture_logs():
        w.source.emit(event)
        w.source.add(node("n1"))
        eventually(lambda: "n1" in w.sink.objects)
    assert w.reflector.skipped == 1
    assert w.reflector.resource_version == "11"
    assert len(w.source.watches) == 1


def test_objects_that_a_watch_from_nowhere_makes_up_do_not_move_the_position(world):
    w = world()
    inner = w.source.list

    def without_version(**query):
        page = inner(**query)
        return type(page)([], "", "")

    w.source.list = without_version
    w.source.add(node("n1"))
    w.start().watching()
    eventually(lambda: "n1" in w.sink.objects)
    assert w.reflector.resource_version == ""
    w.source.add(node("n1"))
    eventually(lambda: w.reflector.resource_version == "12")


def test_a_streaming_list_needs_no_list_and_goes_on_in_the_same_stream(world):
    w = world(streaming=True)
    w.source.add(node("n1"))
    w.source.add(node("n2"))
    w.start().watching()
    eventually(lambda: w.sink.told == ["list@12"])
    w.source.add(node("n3"))
    eventually(lambda: w.sink.told == ["list@12", "put n3"])
    assert w.source.lists == []
    assert len(w.source.watches) == 1


def test_a_streaming_list_that_breaks_falls_back_to_a_plain_list(world):
    w = world(streaming=True)
    w.source.add(node("n1"))
    w.source.watch_errors.append(TransportError("reset"))
    w.start().watching()
    eventually(lambda: w.source.lists == ["0"])
    assert set(w.sink.objects) == {"n1"}


def test_a_server_without_streaming_lists_is_asked_once(world):
    w = world(offered=True)
    w.start().watching()
    assert w.source.lists == ["0"]
    w.source.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    w.backoff()
    eventually(lambda: w.source.lists == ["0", "10"])
    w.source.wait_for_watch()
    assert len(w.source.watches) == 3


def test_the_age_of_the_store_is_the_silence_of_the_server(world):
    w = world().start().watching()
    w.clock.step(40)
    assert w.reflector.silence == 40
    w.source.bookmark()
    eventually(lambda: w.reflector.silence == 0)


def test_a_bug_in_the_sink_is_an_error_and_not_the_end(world):
    w = world()
    w.source.add(node("n1"))
    inner, calls = w.sink.replace, []

    def broken(*args):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("bug")
        inner(*args)

    w.sink.replace = broken
    with structlog.testing.capture_logs():
        w.start()
        w.backoff()
        w.watching()
    assert isinstance(w.errors[0], KeyError)
    assert not isinstance(w.errors[0], ApiError)
    assert set(w.sink.objects) == {"n1"}
