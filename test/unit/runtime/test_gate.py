"""ConsistencyGate: no pass on a cache that has not seen the writes of the one before."""

import threading

import pytest

from homelab_api.core import CoreNode, Job, Pod
from homelab_autoscaler.runtime import Cache, Request, Result, StopSignal
from homelab_autoscaler.runtime.cache import ReflectorOptions, WatchEvent
from homelab_autoscaler.runtime.client import Write
from homelab_autoscaler.runtime.controller import ConsistencyGate, Engine, record_writes
from homelab_autoscaler.runtime.errors import GoneError
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.testing import FakeClock, FakeSource, eventually

OWNER = Request("", "n1")
OTHER = Request("", "n2")


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.nodes = FakeSource(CoreNode.resource)
        self.jobs = FakeSource(Job.resource)
        sources = {CoreNode: self.nodes, Job: self.jobs}
        self.cache = Cache(
            None,
            self.clock,
            options=ReflectorOptions(streaming_list=False),
            make_source=lambda kind, namespace: sources[kind],
        )
        self.cache.informer(CoreNode)
        self.cache.informer(Job)
        self.node = self.nodes.add({"metadata": {"name": "n1", "uid": "u1"}})
        self.gate = ConsistencyGate(self.cache, CoreNode)
        self.stop = StopSignal()
        self.thread = threading.Thread(target=self.cache.run, args=(self.stop,))
        self.thread.start()
        assert self.cache.wait_for_sync(self.stop, 5)
        self.nodes.wait_for_watch()
        self.jobs.wait_for_watch()

    def wrote_job(self, version, **more):
        self.gate.note(OWNER, Write(Job, "ns", "j", "ju", str(version), **more))

    def end(self):
        self.stop.set()
        self.thread.join(10)


@pytest.fixture
def world():
    world = World()
    yield world
    world.end()


def job(name="j", **metadata):
    return {"metadata": {"name": name, "namespace": "ns", **metadata}}


def test_an_object_that_wrote_nothing_passes(world):
    assert world.gate.open_for(OWNER)


def test_the_gate_is_shut_until_the_cache_has_the_write(world):
    world.jobs.hold()
    written = world.jobs.add(job())
    world.wrote_job(written["metadata"]["resourceVersion"])
    assert not world.gate.open_for(OWNER)
    assert world.gate.open_for(OTHER)
    world.jobs.release()
    eventually(lambda: world.gate.open_for(OWNER))


def test_a_bookmark_alone_opens_the_gate(world):
    version = int(world.jobs.touch())
    world.wrote_job(version)
    assert not world.gate.open_for(OWNER)
    world.jobs.bookmark()
    eventually(lambda: world.gate.open_for(OWNER))


def test_another_uid_of_the_owner_clears_the_record(world):
    world.wrote_job(99)
    assert not world.gate.open_for(OWNER)
    world.nodes.add({"metadata": {"name": "n1", "uid": "u2"}})
    eventually(lambda: world.gate.open_for(OWNER))


def test_the_deletion_of_the_owner_clears_the_record(world):
    world.wrote_job(99)
    world.nodes.remove(None, "n1")
    eventually(lambda: world.gate.open_for(OWNER))


def test_a_version_that_is_no_number_does_not_block(world):
    world.wrote_job("not-a-number")
    assert world.gate.open_for(OWNER)


def test_a_kind_without_an_informer_does_not_block(world):
    world.gate.note(OWNER, Write(Pod, "ns", "p", "u", "99"))
    assert world.gate.open_for(OWNER)


def test_a_deletion_is_awaited_until_the_cache_has_lost_the_object(world):
    written = world.jobs.add(job(uid="ju"))
    eventually(lambda: world.cache.lister(Job).get("j", "ns"))
    assert written["metadata"]["uid"] == "ju"
    world.jobs.hold()
    world.jobs.remove("ns", "j")
    world.wrote_job("", deleted=True)
    assert not world.gate.open_for(OWNER)
    world.jobs.release()
    eventually(lambda: world.gate.open_for(OWNER))


def test_a_deletion_is_over_when_another_object_has_the_name(world):
    world.jobs.add(job(uid="ju"))
    eventually(lambda: world.cache.lister(Job).get("j", "ns"))
    world.wrote_job("", deleted=True)
    assert not world.gate.open_for(OWNER)
    world.jobs.add(job(uid="another"))
    eventually(lambda: world.gate.open_for(OWNER))


def test_a_server_whose_versions_went_back_does_not_block_for_ever(world):
    world.wrote_job(10_000)
    assert not world.gate.open_for(OWNER)
    world.jobs.rewind(2)
    world.jobs.list_errors.append(GoneError("gone", status=410))
    world.jobs.emit(WatchEvent("ERROR", {"code": 410, "reason": "Expired"}))
    for _ in range(500):
        if world.gate.open_for(OWNER):
            break
        world.clock.step(30)
        threading.Event().wait(0.02)
    assert world.gate.open_for(OWNER)


def test_only_the_newest_version_of_several_writes_counts(world):
    version = int(world.jobs.touch())
    world.wrote_job(version)
    world.wrote_job(version - 5)
    assert not world.gate.open_for(OWNER)
    world.jobs.bookmark()
    eventually(lambda: world.gate.open_for(OWNER))


def test_a_second_pass_is_put_off_and_not_run_on_the_past(world):
    """The classic: create a dependant, be woken again before the cache shows it, create another."""
    observers = []

    class Api:
        def on_write(self, observer):
            observers.append(observer)

    record_writes(Api())
    created = []

    class CreateOne:
        def reconcile(self, request):
            if not world.cache.lister(Job).list("ns"):
                stored = world.jobs.add(job(f"j{len(created)}"))
                created.append(stored)
                observers[0](Write(Job, "ns", "j", "u", stored["metadata"]["resourceVersion"]))
            return Result()

    metrics = Metrics()
    engine = Engine("once", CreateOne(), world.clock, world.cache, metrics, gate=world.gate)
    world.jobs.hold()

    def turn():
        engine.queue.add(OWNER)
        request, priority = engine.queue.get()
        engine.process(request, priority)
        engine.queue.done(request)

    for _ in range(5):
        turn()
    assert len(created) == 1
    skips = "controller_runtime_reconcile_stale_cache_skips_total"
    assert metrics.registry.get_sample_value(skips, {"controller": "once"}) == 4
    assert engine.queue.delayed() == {OWNER: pytest.approx(0.1)}
    world.jobs.release()
    eventually(lambda: world.gate.open_for(OWNER))
    turn()
    assert len(created) == 1
