"""Leader election: who may believe that it leads, and for how long."""

import copy
import itertools
import random
import threading
from datetime import timedelta

import pytest
import structlog

from homelab_api.core import Lease
from homelab_api.meta import format_micro_time
from homelab_autoscaler.runtime import LeaderElectionOptions, LeadershipLost, StopSignal, TransportError
from homelab_autoscaler.runtime.errors import AlreadyExistsError, ConflictError, NotFoundError
from homelab_autoscaler.runtime.leaderelection import LeaderElector, Leadership, always_leading
from homelab_autoscaler.runtime.patch import merge
from homelab_autoscaler.runtime.testing import FakeClock, eventually


class LeaseServer:
    """The three requests of an elector against one lease, with faults."""

    def __init__(self):
        self.lock = threading.Lock()
        self.body = None
        self.version = 1
        self.down = False
        self.conflicts = 0
        self.requests = []

    def _enter(self, what):
        self.requests.append(what)
        if self.down:
            raise TransportError("away")

    def get(self, kind, name, namespace):
        with self.lock:
            self._enter("get")
            if self.body is None:
                raise NotFoundError("no lease", status=404)
            return Lease.from_json(copy.deepcopy(self.body))

    def create(self, lease):
        with self.lock:
            self._enter("create")
            if self.body is not None:
                raise AlreadyExistsError("there", status=409)
            self.body = lease.to_json()
            return self._stored()

    def patch(self, kind, name, namespace, patch):
        with self.lock:
            self._enter("patch")
            if self.body is None:
                raise NotFoundError("no lease", status=404)
            if self.conflicts or patch.body["metadata"]["resourceVersion"] != str(self.version):
                self.conflicts = max(0, self.conflicts - 1)
                raise ConflictError("changed", status=409)
            self.body = merge(self.body, patch.body)
            return self._stored()

    def _stored(self):
        self.version += 1
        self.body["metadata"]["resourceVersion"] = str(self.version)
        return Lease.from_json(copy.deepcopy(self.body))

    @property
    def spec(self):
        return self.body["spec"]


class Candidate:
    def __init__(self, server, clock, identity, **options):
        self.clock = clock
        self.slow = []
        self.elector = LeaderElector(
            server,
            clock,
            LeaderElectionOptions(name="lock", identity=identity, **options),
            "ns",
            on_slow_path=lambda: self.slow.append(1),
            rng=random.Random(3),
        )
        self.leadership = self.elector.leadership
        self.stop = StopSignal()
        self.outcome = None
        self.thread = None

    def compete(self):
        self.thread = threading.Thread(target=self._compete)
        self.thread.start()
        return self

    def _compete(self):
        try:
            if self.elector.acquire(self.stop):
                self.elector.hold(self.stop)
                self.outcome = "stopped"
        except LeadershipLost as error:
            self.outcome = error

    def end(self):
        self.stop.set()
        if self.thread:
            self.thread.join(10)
            assert not self.thread.is_alive()


@pytest.fixture
def server():
    return LeaseServer()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def candidate(server, clock):
    made = []

    def make(identity, own_clock=None, **options):
        made.append(Candidate(server, own_clock or clock, identity, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


def pass_time(clock, seconds, until=lambda: False, step=0.5):
    """Let virtual time pass in small steps, with the candidates keeping up."""
    passed = 0.0
    while passed < seconds and not until():
        try:
            clock.wait_for_waiters(1, 2.0)
        except TimeoutError:
            return passed
        clock.step(step)
        passed += step
        settle = threading.Event()
        settle.wait(0.003)
    return passed


def test_the_first_candidate_creates_the_lease_and_leads(server, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    assert server.spec["holderIdentity"] == "a"
    assert server.spec["leaseDurationSeconds"] == 15
    assert server.spec["leaseTransitions"] == 0
    assert server.spec["acquireTime"].endswith("Z")
    assert len(server.spec["renewTime"].split(".")[1]) == 7


def test_a_second_candidate_waits_while_the_first_renews(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    b = candidate("b").compete()
    pass_time(clock, 60)
    assert a.leadership.is_leader()
    assert not b.leadership.is_leader()


def test_after_a_crash_the_other_takes_over_when_the_lease_has_not_changed_for_its_duration(server, clock, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    b = candidate("b").compete()
    eventually(lambda: "get" in server.requests)
    passed = pass_time(clock, 60, b.leadership.is_leader)
    assert b.leadership.is_leader()
    assert 15 <= passed <= 15 + 5
    assert server.spec["leaseTransitions"] == 1
    assert b.leadership.transitions == 1
    assert not a.leadership.is_leader()


def test_a_clean_release_lets_the_other_lead_at_its_next_try(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    b = candidate("b").compete()
    a.end()
    assert a.elector.release()
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1
    assert not a.leadership.is_leader()
    passed = pass_time(clock, 30, b.leadership.is_leader)
    assert passed <= 5
    assert server.spec["leaseTransitions"] == 1


def test_a_release_is_repeated_on_conflict(server, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    server.conflicts = 2
    assert a.elector.release()
    assert server.spec["holderIdentity"] == ""


def test_a_release_leaves_a_lease_of_somebody_else_alone(server, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    server.body["spec"]["holderIdentity"] = "b"
    assert not a.elector.release()
    assert server.spec["holderIdentity"] == "b"


def test_an_outage_shorter_than_the_renew_deadline_is_survived(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    server.down = True
    with structlog.testing.capture_logs():
        pass_time(clock, 8)
        server.down = False
        pass_time(clock, 20)
    assert a.leadership.is_leader()
    assert a.outcome is None


def test_an_outage_longer_than_the_renew_deadline_loses_the_lease(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    server.down = True
    with structlog.testing.capture_logs():
        passed = pass_time(clock, 60, lambda: a.outcome is not None)
    assert isinstance(a.outcome, LeadershipLost)
    assert passed <= 10 + 2 + 1
    assert not a.leadership.is_leader()


def test_a_lease_taken_by_another_is_lost_at_once(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    with server.lock:
        server.body["spec"]["holderIdentity"] = "usurper"
        server._stored()
    passed = pass_time(clock, 30, lambda: a.outcome is not None)
    assert isinstance(a.outcome, LeadershipLost)
    assert "usurper" in str(a.outcome)
    assert passed <= 3


def test_renewals_need_no_read_unless_somebody_else_wrote(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    server.requests.clear()
    pass_time(clock, 10)
    assert set(server.requests) == {"patch"}
    assert a.slow == []
    with server.lock:
        server.body["metadata"]["labels"] = {"by": "a person"}
        server._stored()
    pass_time(clock, 6)
    assert a.leadership.is_leader()
    assert len(a.slow) == 1


def test_clocks_that_differ_by_a_day_do_not_matter(server, clock, candidate):
    skewed = FakeClock(clock.now() + timedelta(days=1))
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    b = candidate("b", skewed).compete()
    for _ in range(60):
        pass_time(clock, 0.5)
        pass_time(skewed, 0.5)
    assert a.leadership.is_leader()
    assert not b.leadership.is_leader()


def test_a_lease_from_the_future_expires_by_our_own_observation(server, clock, candidate):
    future = format_micro_time(clock.now() + timedelta(days=365))
    server.body = {
        "metadata": {"name": "lock", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": future, "leaseTransitions": 4},
    }
    b = candidate("b").compete()
    passed = pass_time(clock, 60, b.leadership.is_leader)
    assert 15 <= passed <= 20
    assert b.leadership.transitions == 5


def test_a_process_that_was_frozen_does_not_lead_when_it_wakes(server, clock, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    assert a.leadership.is_leader()
    clock.step(12)
    assert not a.leadership.is_leader()
    with pytest.raises(LeadershipLost):
        a.leadership.check()


def test_a_process_that_never_led_may_write(clock):
    Leadership(clock, "me", 10.0).check()


def test_without_an_election_leadership_is_immediate_and_for_good(clock):
    leadership = always_leading(clock, "me")
    clock.step(1e6)
    assert leadership.is_leader()
    leadership.check()


def test_the_acquire_time_is_kept_when_renewing(server, clock, candidate):
    a = candidate("a").compete()
    eventually(a.leadership.is_leader)
    acquired, renewed = server.spec["acquireTime"], server.spec["renewTime"]
    pass_time(clock, 6)
    assert server.spec["acquireTime"] == acquired
    assert server.spec["renewTime"] != renewed


def test_the_same_identity_gets_its_lease_back_without_a_transition(server, clock, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    again = candidate("a")
    assert again.elector.acquire(again.stop)
    assert server.spec["leaseTransitions"] == 0


def test_tries_are_spread_by_up_to_120_percent(server, clock, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    candidate("b").compete()
    clock.wait_for_waiters()
    assert 2.0 <= clock.next_deadline() <= 4.4


def test_stop_ends_the_waiting(server, clock, candidate):
    a = candidate("a")
    a.elector.acquire(a.stop)
    b = candidate("b").compete()
    clock.wait_for_waiters()
    b.end()
    assert b.outcome is None


@pytest.mark.parametrize(
    "options",
    [
        {"lease_duration": 10.0},
        {"renew_deadline": 2.4},
        {"retry_period": 0.0},
        {"retry_period": 9.0},
        {"name": ""},
    ],
)
def test_numbers_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match="leader election"):
        LeaderElectionOptions(**{"name": "lock", **options})


def test_identities_never_repeat():
    assert LeaderElectionOptions(name="x").identity != LeaderElectionOptions(name="x").identity


def test_a_renewal_that_is_slow_now_and_then_costs_no_lead(server, clock, candidate):
    """It is committed, and its answer comes after the client has given up: half of the renew deadline later."""
    leader = candidate("a")
    inner, count = server.patch, itertools.count(1)

    def patch(*args):
        renewed = inner(*args)
        if next(count) % 4 == 0:
            clock.sleep(5.0)
            raise TransportError("no answer within 5 s")
        return renewed

    server.patch = patch
    leader.compete()
    pass_time(clock, 600)
    assert leader.leadership.is_leader()
    assert leader.outcome is None
    assert server.spec["leaseTransitions"] == 0
