"""Whatever the server does to lists and watches, the store ends up equal to it, and handlers hear a true story."""

import random
import threading

import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homelab_api.core import CoreNode
from homelab_autoscaler.runtime import StopSignal
from homelab_autoscaler.runtime.cache import Informer, ReflectorOptions, WatchEvent
from homelab_autoscaler.runtime.errors import (
    GoneError,
    InternalServerError,
    StallError,
    TooManyRequestsError,
    TransportError,
)
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, eventually

NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
ERRORS = st.sampled_from(
    [
        TransportError("reset"),
        TransportError("refused", sent=False),
        GoneError("too old", status=410),
        TooManyRequestsError("busy", status=429),
        InternalServerError("oops", status=500),
    ]
)
STATUSES = st.sampled_from(
    [
        {"code": 410, "reason": "Expired"},
        {"code": 410, "reason": "Gone"},
        {"code": 429, "reason": "TooManyRequests"},
        {"code": 500, "reason": "InternalError"},
    ]
)


class HurriedClock(FakeClock):
    """Back-off passes virtual time at once: the test need not wait for it."""

    def sleep(self, seconds, stop=None):
        self.step(seconds)
        return stop is not None and stop.wait(0, self)


class Story:
    """What a handler makes of the events: its own picture of the objects, refusing what cannot be true."""

    def __init__(self):
        self.objects = {}
        self.lies = []

    def __call__(self, event):
        if isinstance(event, CreateEvent):
            if event.object.name in self.objects:
                self.lies.append(f"{event.object.name} created twice")
            self.objects[event.object.name] = event.object
        elif isinstance(event, DeleteEvent):
            if self.objects.pop(event.object.name, None) is None:
                self.lies.append(f"{event.object.name} deleted without being there")
        else:
            known = self.objects.get(event.new.name)
            if known is None or known.metadata.resource_version != event.old.metadata.resource_version:
                self.lies.append(f"{event.new.name} changed from a state that was never told")
            self.objects[event.new.name] = event.new


class HostileServer(RuleBasedStateMachine):
    """A server that cuts, delays, repeats, compacts and refuses."""

    streaming = False

    def __init__(self):
        super().__init__()
        self.logs = structlog.testing.capture_logs()
        self.logs.__enter__()
        self.source = FakeSource(CoreNode.resource, streaming_list=self.streaming)
        self.story = Story()
        self.clock = HurriedClock()
        self.informer = Informer(
            CoreNode,
            self.source,
            self.clock,
            options=ReflectorOptions(streaming_list=self.streaming, page_size=3),
            indexers={"label": lambda node: node.metadata.labels.values()},
            rng=random.Random(1),
        )
        self.informer.add_handler(self.story)
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.informer.run, args=(self.stop,))
        self.thread.start()
        self.told = []
        self.gone = []

    @rule(name=NAMES, value=st.sampled_from("xyz"), uid=st.sampled_from(["u1", "u2"]))
    def store(self, name, value, uid):
        self.told.append(self.source.add({"metadata": {"name": name, "uid": uid, "labels": {"l": value}}}))

    @precondition(lambda self: self.source.keys())
    @rule(data=st.data())
    def delete(self, data):
        self.gone.append(self.source.remove(None, data.draw(st.sampled_from(sorted(self.source.keys())))))

    @rule()
    def bookmark(self):
        self.source.bookmark()

    @rule()
    def touch(self):
        self.source.touch()

    @rule(error=st.sampled_from([None, TransportError("reset"), StallError("silent")]))
    def cut(self, error):
        self.source.cut(error)

    @rule()
    def compact(self):
        self.source.compact()

    @rule()
    def hold(self):
        self.source.hold()

    @rule()
    def release(self):
        self.source.release()

    @rule(error=ERRORS)
    def refuse_a_list(self, error):
        self.source.list_errors.append(error)

    @rule(error=ERRORS)
    def refuse_a_watch(self, error):
        self.source.watch_errors.append(error)

    @rule(status=STATUSES)
    def report_an_error(self, status):
        self.source.emit(WatchEvent("ERROR", {"kind": "Status", **status}))

    @precondition(lambda self: self.told)
    @rule(data=st.data(), kind=st.sampled_from(["ADDED", "MODIFIED"]))
    def repeat_something_old(self, data, kind):
        """A repetition of what is or was; of a deleted object only while a newer state is there to refute it."""
        held = self.source.keys()
        candidates = [o for o in self.told if o["metadata"]["name"] in held]
        if candidates:
            self.source.emit(WatchEvent(kind, data.draw(st.sampled_from(candidates))))

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def repeat_an_old_deletion(self, data):
        """Of an object that was created again since: the news of its end is no news."""
        candidates = [obj for obj in self.gone if obj["metadata"]["name"] in self.source.keys()]  # noqa: SIM118
        if candidates:
            self.source.emit(WatchEvent("DELETED", data.draw(st.sampled_from(candidates))))

    @rule(nonsense=st.sampled_from([WatchEvent("", {}), WatchEvent("ADDED", {"kind": "Table"})]))
    def talk_nonsense(self, nonsense):
        self.source.emit(nonsense)

    @invariant()
    def handlers_hear_a_true_story(self):
        assert self.story.lies == []

    def teardown(self):
        try:
            self.source.release()
            self.source.list_errors.clear()
            self.source.watch_errors.clear()
            self.source.cut()
            self.source.compact()
            eventually(self._in_step, what="store equals server")
            eventually(lambda: self.informer.pending == 0)
            assert self.story.lies == []
            assert {n: o.metadata.resource_version for n, o in self.story.objects.items()} == self._server()
            for value in "xyz":
                indexed = {node.name for node in self.informer.lister.by_index("label", value)}
                assert indexed == {n.name for n in self.informer.lister.list() if n.metadata.labels["l"] == value}
        finally:
            self.stop.set()
            self.thread.join(10)
            self.logs.__exit__(None, None, None)
        assert not self.thread.is_alive()

    def _server(self):
        return {key: obj["metadata"]["resourceVersion"] for key, obj in self.source._objects.items()}

    def _in_step(self):
        store = {node.name: node.metadata.resource_version for node in self.informer.lister.list()}
        return self.informer.has_synced() and store == self._server()


class HostileStreamingServer(HostileServer):
    streaming = True


OPTIONS = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TestHostileServer = HostileServer.TestCase
TestHostileServer.settings = OPTIONS
TestHostileStreamingServer = HostileStreamingServer.TestCase
TestHostileStreamingServer.settings = OPTIONS
