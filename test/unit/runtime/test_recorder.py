"""Events: what is written, combined, dropped and tried again."""

import threading

import pytest
import structlog

from homelab_api.core import CoreNode, Job
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.runtime import EventRecorder, StopSignal, TransportError
from homelab_autoscaler.runtime.errors import ForbiddenError, NotFoundError
from homelab_autoscaler.runtime.recorder import COMBINED_PREFIX, CoreSink, EventV1, SeriesSink
from homelab_autoscaler.runtime.testing import FakeClock, eventually


class Api:
    """Stores events; can be told to fail."""

    def __init__(self):
        self.stored = {}
        self.fail = []
        self.calls = 0

    def _enter(self):
        self.calls += 1
        if self.fail:
            error = self.fail.pop(0)
            if error is not None:
                raise error

    def create_json(self, kind, body, namespace):
        self._enter()
        self.stored[body["metadata"]["name"]] = {**body, "kind_class": kind}

    def patch(self, kind, name, namespace, patch):
        self._enter()
        if name not in self.stored:
            raise NotFoundError("no such event", status=404)
        self.stored[name].update(patch.body)

    @property
    def events(self):
        return list(self.stored.values())


JOB = Job(metadata=ObjectMeta(name="j", namespace="ns", uid="u1", resource_version="5"))
NODE = CoreNode(metadata=ObjectMeta(name="n1", uid="u2"))


class World:
    def __init__(self, sink=CoreSink, **options):
        self.clock = FakeClock()
        self.api = Api()
        self.dropped = []
        self.sink = sink(self.api, self.clock, "tester", "tester-1")
        self.recorder = EventRecorder(self.sink, self.clock, on_dropped=self.dropped.append, **options)
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.recorder.run, args=(self.stop,))

    def start(self):
        self.thread.start()
        return self

    def record(self, message="it happened", reason="Happened", obj=JOB, type_="Normal"):
        self.recorder.event(obj, type_, reason, message)

    def settled(self):
        eventually(lambda: not self.recorder._queue and not self.recorder._busy)

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


def test_an_event_names_its_object_source_and_time(world):
    w = world().start()
    w.record(type_="Warning")
    w.settled()
    (event,) = w.api.events
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "ns",
        "name": "j",
        "uid": "u1",
        "resourceVersion": "5",
    }
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("j.")
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Warning",
        "Happened",
        "it happened",
        1,
    )
    assert event["source"] == {"component": "tester"}
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"


def test_events_of_cluster_scoped_objects_are_kept_in_default(world):
    w = world().start()
    w.record(obj=NODE)
    w.settled()
    assert w.api.events[0]["metadata"]["namespace"] == "default"


def test_a_repeat_raises_the_count_and_the_last_time_of_the_stored_event(world):
    w = world().start()
    w.record()
    w.settled()
    w.clock.step(60)
    w.record()
    w.settled()
    (event,) = w.api.events
    assert event["count"] == 2
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:01:00Z"


def test_a_repeat_of_an_event_that_expired_is_a_new_event(world):
    w = world().start()
    w.record()
    w.settled()
    w.api.stored.clear()
    w.record()
    w.settled()
    assert [event["count"] for event in w.api.events] == [1]


def test_the_tenth_different_message_of_a_reason_is_combined(world):
    w = world().start()
    for number in range(12):
        w.record(f"message {number}")
    w.settled()
    messages = [event["message"] for event in w.api.events]
    assert messages[:9] == [f"message {number}" for number in range(9)]
    assert messages[9:] == [f"{COMBINED_PREFIX}message 11"]
    assert w.api.events[9]["count"] == 3


def test_after_a_quiet_window_messages_stand_alone_again(world):
    w = world().start()
    for number in range(9):
        w.record(f"message {number}")
    w.settled()
    w.clock.step(601)
    w.record("message 10")
    w.settled()
    assert w.api.events[-1]["message"] == "message 10"


def test_of_a_burst_about_one_object_25_are_written_and_one_more_every_five_minutes(world):
    w = world().start()
    for number in range(30):
        w.record(reason=f"Reason{number}")
    w.settled()
    assert len(w.api.events) == 25
    assert w.dropped == ["spam"] * 5
    w.record(reason="Another", obj=NODE)
    w.settled()
    assert len(w.api.events) == 26
    w.clock.step(301)
    w.record(reason="Later")
    w.record(reason="TooMuch")
    w.settled()
    assert w.api.events[-1]["reason"] == "Later"


def test_a_server_that_is_away_gets_the_event_later_and_once(world):
    w = world().start()
    w.api.fail = [TransportError("away"), TransportError("away"), None]
    w.record()
    w.clock.wait_for_waiters()
    assert 0 <= w.clock.next_deadline() <= 10
    w.clock.step(10)
    w.clock.wait_for_waiters()
    assert w.clock.next_deadline() == pytest.approx(10)
    w.clock.step(10)
    w.settled()
    (event,) = w.api.events
    assert event["count"] == 1


def test_after_twelve_tries_the_event_is_given_up(world):
    w = world().start()
    w.api.fail = [TransportError("away")] * 12
    with structlog.testing.capture_logs():
        w.record()
        for _ in range(11):
            w.clock.wait_for_waiters()
            w.clock.step(10)
        w.settled()
    assert w.api.calls == 12
    assert w.dropped == ["gave up"]
    w.record(reason="Next")
    w.settled()
    assert len(w.api.events) == 1


def test_what_the_server_refuses_is_not_tried_again(world):
    w = world().start()
    w.api.fail = [ForbiddenError("namespace ns is being terminated", status=403)]
    with structlog.testing.capture_logs() as logs:
        w.record()
        w.settled()
    assert w.dropped == ["refused"]
    assert [entry["log_level"] for entry in logs] == ["debug"]


def test_a_full_queue_drops_without_blocking(world):
    w = world(queue_size=3)
    with structlog.testing.capture_logs():
        for number in range(5):
            w.record(reason=f"R{number}")
    assert w.dropped == ["queue full"] * 2
    w.start()
    w.settled()
    assert [event["reason"] for event in w.api.events] == ["R0", "R1", "R2"]


def test_what_is_queued_at_the_end_is_still_written_and_later_events_are_ignored(world):
    w = world()
    w.record()
    w.stop.set()
    w.start()
    w.thread.join(5)
    assert len(w.api.events) == 1
    w.record(reason="TooLate")
    assert len(w.recorder._queue) == 0


def test_a_message_is_cut_to_what_the_server_takes(world):
    w = world().start()
    w.record("x" * 5000)
    w.settled()
    assert len(w.api.events[0]["message"]) == 1024


def test_an_event_with_the_same_dedupe_values_is_dropped_for_two_minutes_whatever_it_says(world):
    w = world().start()

    def tell(message, *values):
        w.recorder.event(JOB, "Normal", "Waiting", message, dedupe=values)

    tell("for pod a since 1 s", "a")
    tell("for pod a since 2 s", "a")
    tell("for pod b since 1 s", "b")
    w.settled()
    assert [e["message"] for e in w.api.events] == ["for pod a since 1 s", "for pod b since 1 s"]
    w.clock.step(121)
    tell("for pod a since 123 s", "a")
    w.settled()
    assert w.api.events[-1]["message"] == "for pod a since 123 s"


def test_names_of_events_never_repeat(world):
    w = world().start()
    for number in range(5):
        w.record(reason=f"R{number}")
    w.settled()
    assert len(w.api.stored) == 5


# --- events.k8s.io/v1 -------------------------------------------------------------------------------------------------


def test_the_new_form_names_controller_action_and_note(world):
    w = world(SeriesSink).start()
    w.record()
    w.settled()
    (event,) = w.api.events
    assert event["kind_class"] is EventV1
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["regarding"]["name"] == "j"
    assert (event["note"], event["action"], event["reportingController"], event["reportingInstance"]) == (
        "it happened",
        "Happened",
        "tester",
        "tester-1",
    )
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert "series" not in event


def test_the_first_repeat_begins_a_series_and_further_ones_are_counted_in_memory(world):
    w = world(SeriesSink).start()
    for number in range(5):
        w.record(f"message {number}")
    w.settled()
    (event,) = w.api.events
    assert event["series"]["count"] == 2
    assert w.api.calls == 2


def test_a_series_is_written_for_the_last_time_after_six_silent_minutes(world):
    w = world(SeriesSink).start()
    for _ in range(5):
        w.record()
    w.settled()
    w.clock.wait_for_waiters()
    w.clock.step(361)
    eventually(lambda: w.api.events[0]["series"]["count"] == 5)
    w.record()
    eventually(lambda: len(w.api.events) == 2)
    assert "series" not in w.api.events[1]


def test_a_lasting_series_is_refreshed_every_half_hour(world):
    w = world(SeriesSink).start()
    w.record()
    w.record()
    w.settled()
    for _ in range(7):
        w.clock.step(290)
        w.record()
        w.settled()
    assert w.api.calls == 3
    assert w.api.events[0]["series"]["count"] == 8


def test_a_series_whose_event_expired_begins_anew(world):
    w = world(SeriesSink).start()
    w.record()
    w.settled()
    w.api.stored.clear()
    w.record()
    w.settled()
    (event,) = w.api.events
    assert "series" not in event
