"""Client: what travels, what comes back, what is repeated."""

import threading

import pytest

from homelab_api.core import CoreNode, Job, Pod
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.runtime import (
    AlreadyExistsError,
    ApiError,
    ApplyPatch,
    Client,
    ClientConfig,
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    GoneError,
    InternalServerError,
    InvalidError,
    JsonPatch,
    MergePatch,
    NotFoundError,
    StrategicMergePatch,
    TooManyRequestsError,
    TransportError,
    UnavailableError,
    deadline,
)
from homelab_autoscaler.runtime.client import RetryPolicy, TokenBucket, Transport
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.errors import StallError, from_status
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.testing import FakeClock, eventually


class SleeplessClock(FakeClock):
    """Sleeping passes virtual time at once, and is recorded."""

    def __init__(self):
        super().__init__()
        self.slept = []

    def sleep(self, seconds, stop=None):
        self.slept.append(seconds)
        self.step(seconds)
        return False


@pytest.fixture
def clock():
    return SleeplessClock()


@pytest.fixture
def client(script, clock):
    client = Client(script.config, clock, field_manager="tester", timeout=5)
    yield client
    client.close()


NODE = {"kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}}


def test_get_reads_one_object_from_its_path(script, client):
    script.reply(200, NODE)
    node = client.get(CoreNode, "n1")
    assert (node.name, node.metadata.resource_version) == ("n1", "7")
    assert script.seen[0].target == "/api/v1/nodes/n1"


def test_a_namespaced_kind_is_read_in_its_namespace(script, client):
    script.reply(200, {"kind": "Job", "metadata": {"name": "j", "namespace": "a b"}})
    client.get(Job, "j", "a b")
    assert script.seen[0].target == "/apis/batch/v1/namespaces/a%20b/jobs/j"


@pytest.mark.parametrize(("kind", "name", "namespace"), [(CoreNode, "", None), (Job, "j", None), (Job, "j", "")])
def test_a_request_that_the_server_would_take_for_another_is_refused(client, kind, name, namespace):
    with pytest.raises(ValueError, match="needs a"):
        client.get(kind, name, namespace)


def test_a_list_is_read_in_pages_of_one_moment(script, client):
    script.reply(200, {"metadata": {"resourceVersion": "9", "continue": "c1"}, "items": [NODE]})
    script.reply(200, {"metadata": {"resourceVersion": "9"}, "items": [NODE, NODE]})
    nodes = client.list(CoreNode, label_selector="a=b", field_selector="metadata.name=n1")
    assert len(nodes.items) == 3
    assert nodes.resource_version == "9"
    assert "limit=500" in script.seen[0].target
    assert "labelSelector=a%3Db" in script.seen[0].target
    assert "continue=c1" in script.seen[1].target


def test_a_list_whose_moment_is_forgotten_starts_over_unpaged(script, client):
    script.reply(200, {"metadata": {"resourceVersion": "9", "continue": "c1"}, "items": [NODE]})
    script.status(410, "Expired")
    script.reply(200, {"metadata": {"resourceVersion": "12"}, "items": [NODE, NODE]})
    nodes = client.list(CoreNode)
    assert (len(nodes.items), nodes.resource_version) == (2, "12")
    assert "limit" not in script.seen[2].target


def test_what_is_known_of_a_list_is_not_decoded_again(script, client):
    other = {"kind": "Node", "metadata": {"name": "n2", "uid": "u2", "resourceVersion": "8"}}
    script.reply(200, {"metadata": {"resourceVersion": "9"}, "items": [NODE, other]})
    held = CoreNode.from_json(NODE)

    nodes = client.list(CoreNode, known=lambda metadata: held if metadata["uid"] == "u1" else None)

    assert nodes.items[0] is held
    assert [node.name for node in nodes.items] == ["n1", "n2"]


def test_create_posts_the_object_with_the_field_manager(script, client):
    script.reply(201, {"kind": "Job", "metadata": {"name": "j", "namespace": "ns", "uid": "u"}})
    created = client.create(Job(metadata=ObjectMeta(name="j", namespace="ns")))
    assert created.uid == "u"
    assert script.seen[0].target == "/apis/batch/v1/namespaces/ns/jobs?fieldManager=tester"
    assert script.seen[0].json["apiVersion"] == "batch/v1"


@pytest.mark.parametrize(
    ("patch", "content_type"),
    [
        (MergePatch({"a": 1}), "application/merge-patch+json"),
        (JsonPatch([{"op": "test", "path": "/a", "value": 1}]), "application/json-patch+json"),
        (StrategicMergePatch({"a": 1}), "application/strategic-merge-patch+json"),
        (ApplyPatch({"a": 1}), "application/apply-patch+yaml"),
    ],
)
def test_each_sort_of_patch_travels_under_its_type(script, client, patch, content_type):
    script.reply(200, NODE)
    client.patch(CoreNode, "n1", None, patch)
    assert script.seen[0].headers["Content-Type"] == content_type
    assert script.seen[0].json == patch.body


def test_server_side_apply_names_its_manager_and_may_force(script, client):
    script.reply(200, NODE)
    client.patch(CoreNode, "n1", None, ApplyPatch({}, field_manager="me", force=True), subresource="status")
    assert script.seen[0].target == "/api/v1/nodes/n1/status?fieldManager=me&force=true"


def test_server_side_apply_without_a_manager_is_refused(script, clock):
    client = Client(script.config, clock)
    with pytest.raises(ValueError, match="field manager"):
        client.patch(CoreNode, "n1", None, ApplyPatch({}))
    client.close()


def test_a_status_patch_that_changes_nothing_is_not_sent(script, client):
    script.reply(200, NODE)
    node = CoreNode.from_json({**NODE, "status": {"capacity": {"cpu": "1"}, "conditions": []}})
    assert client.patch_status(node, {"capacity": {"cpu": "1"}, "allocatable": {}, "gone": None}) is node
    assert script.seen == []


def test_a_status_patch_carries_only_the_change_and_the_version_to_compare(script, client):
    script.reply(200, NODE)
    node = CoreNode.from_json({**NODE, "status": {"capacity": {"cpu": "1"}}})
    client.patch_status(node, {"capacity": {"cpu": "2"}}, resource_version="7")
    assert script.seen[0].target == "/api/v1/nodes/n1/status?fieldManager=tester"
    assert script.seen[0].json == {"status": {"capacity": {"cpu": "2"}}, "metadata": {"resourceVersion": "7"}}


def test_a_deletion_of_a_status_field_that_is_there_is_sent(script, client):
    script.reply(200, NODE)
    node = CoreNode.from_json({**NODE, "status": {"capacity": {"cpu": "1"}}})
    client.patch_status(node, {"capacity": {"cpu": None}})
    assert len(script.seen) == 1


def test_a_delete_carries_its_preconditions(script, client):
    script.reply(200, {"kind": "Status", "status": "Success"})
    client.delete(Job, "j", "ns", uid="u1", resource_version="5", propagation="Foreground", grace_period=3)
    assert script.seen[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1", "resourceVersion": "5"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 3,
    }


def test_an_eviction_is_for_this_very_pod_and_a_budget_is_an_answer(script, client, clock):
    cause = {"causes": [{"reason": "DisruptionBudget", "message": "no"}]}
    script.status(429, "TooManyRequests", "blocked", cause, Retry_After="10")
    pod = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u9"))
    with pytest.raises(TooManyRequestsError) as caught:
        client.evict(pod, grace_period=5)
    assert caught.value.disruption_budget
    assert clock.slept == []
    assert len(script.seen) == 1
    assert script.seen[0].target == "/api/v1/namespaces/ns/pods/p/eviction"
    assert script.seen[0].json["deleteOptions"] == {"preconditions": {"uid": "u9"}, "gracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", GoneError),
        (422, "Invalid", InvalidError),
    ],
)
def test_refusals_have_classes_of_their_own_and_are_not_repeated(script, client, code, reason, error):
    script.status(code, reason, "because", {"causes": [{"field": "spec.x", "message": "bad", "reason": "R"}]})
    with pytest.raises(error) as caught:
        client.get(CoreNode, "n1")
    assert caught.value.status == code
    assert caught.value.causes() == [("R", "spec.x", "bad")]
    assert len(script.seen) == 1


def test_an_answer_that_is_no_status_becomes_the_message(script, client):
    script.reply(404, b"<html>gateway</html>")
    with pytest.raises(NotFoundError, match="gateway"):
        client.get(CoreNode, "n1")


def test_an_unknown_status_is_still_an_api_error():
    error = from_status({"code": 418, "reason": "Teapot", "message": "short and stout"})
    assert type(error) is ApiError
    assert "Teapot" in str(error)


def test_too_many_requests_waits_as_the_server_says_and_repeats_even_a_create(script, client, clock):
    script.status(429, "TooManyRequests", Retry_After="2")
    script.reply(201, {"kind": "Job", "metadata": {"name": "j", "namespace": "ns"}})
    client.create(Job(metadata=ObjectMeta(name="j", namespace="ns")))
    assert clock.slept == [2.0]


def test_retry_after_may_be_a_date(script, client, clock):
    script.status(503, "ServiceUnavailable", Retry_After="Thu, 01 Jan 2026 00:00:07 GMT")
    script.reply(200, NODE)
    client.get(CoreNode, "n1")
    assert clock.slept == [7.0]


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_server_failures_are_repeated_for_what_may_be_repeated(script, client, clock, code):
    script.status(code, "")
    script.status(code, "")
    script.reply(200, NODE)
    client.patch(CoreNode, "n1", None, MergePatch({}))
    assert len(script.seen) == 3
    assert 0.2 <= clock.slept[0] <= 0.3
    assert 0.4 <= clock.slept[1] <= 0.6


@pytest.mark.parametrize("code", [500, 503, 504])
def test_a_create_or_json_patch_that_may_have_happened_is_not_repeated(script, client, code):
    script.status(code, "")
    with pytest.raises(ApiError):
        client.create(Job(metadata=ObjectMeta(name="j", namespace="ns")))
    with pytest.raises(ApiError):
        client.patch(CoreNode, "n1", None, JsonPatch([]))
    assert len(script.seen) == 2


def test_a_lost_answer_to_a_create_is_told_as_unknown_and_not_repeated(script, client):
    script.answers.append(lambda handler: handler.connection.shutdown(2))
    with pytest.raises(TransportError) as caught:
        client.create(Job(metadata=ObjectMeta(name="j", namespace="ns")))
    assert caught.value.sent
    assert len(script.seen) == 1


def test_a_lost_answer_to_a_read_is_repeated(script, client):
    script.answers.append(lambda handler: handler.connection.shutdown(2))
    script.reply(200, NODE)
    assert client.get(CoreNode, "n1").name == "n1"


def test_a_server_that_is_not_there_cannot_have_seen_the_request(clock):
    client = Client(ClientConfig.for_url("http://127.0.0.1:9"), clock)
    with pytest.raises(TransportError) as caught:
        client.create(Job(metadata=ObjectMeta(name="j", namespace="ns")))
    assert not caught.value.sent
    assert len(clock.slept) == RetryPolicy().attempts - 1


def test_attempts_and_total_time_are_bounded(script, client, clock):
    script.status(503, "", Retry_After="12")
    with pytest.raises(UnavailableError):
        client.get(CoreNode, "n1")
    assert clock.slept == [12.0, 12.0]
    script.answers.clear()
    script.status(500, "")
    with pytest.raises(InternalServerError):
        client.get(CoreNode, "n1")
    assert len(script.seen) == 3 + RetryPolicy().attempts


def test_nothing_is_sent_when_the_time_of_the_reconcile_is_over(script, client, clock):
    script.reply(200, NODE)
    with deadline.time_limit(clock, 10):
        client.get(CoreNode, "n1")
        clock.step(10)
        with pytest.raises(DeadlineExceededError):
            client.get(CoreNode, "n1")
    client.get(CoreNode, "n1")
    assert len(script.seen) == 2


def test_no_wait_goes_beyond_the_time_of_the_reconcile(script, client, clock):
    script.status(503, "", Retry_After="12")
    with deadline.time_limit(clock, 10), pytest.raises(UnavailableError):
        client.get(CoreNode, "n1")
    assert clock.slept == []


def test_a_guard_refuses_writes_and_lets_reads_pass(script, clock):
    class NoMoreError(Exception):
        pass

    def guard():
        raise NoMoreError

    client = Client(script.config, clock, guard=guard)
    script.reply(200, NODE)
    client.get(CoreNode, "n1")
    with pytest.raises(NoMoreError):
        client.patch(CoreNode, "n1", None, MergePatch({}))
    assert [seen.method for seen in script.seen] == ["GET"]
    client.close()


def test_a_rate_limit_delays_requests_beyond_the_burst(script, clock):
    transport = Transport(script.config, clock, limiter=TokenBucket(10, 2, clock))
    script.reply(200, NODE)
    for _ in range(4):
        transport.request("GET", "/x")
    assert clock.slept == pytest.approx([0.1, 0.1])
    transport.close()


def test_the_token_is_sent_with_each_request(script, clock):
    transport = Transport(ClientConfig.for_url(script.url, token="secret"), clock)
    script.reply(200, {})
    transport.request("GET", "/x")
    assert script.seen[0].headers["Authorization"] == "Bearer secret"
    transport.close()


def test_a_credential_is_asked_for_again_after_a_few_seconds_and_after_a_refusal(script, clock):
    asked = []

    def authorization():
        asked.append(clock.monotonic())
        return f"Bearer {len(asked)}"

    config = ClientConfig(host=script.url, authorization=authorization, make_pool=script.config.make_pool)
    transport = Transport(config, clock)

    def sent(status=200):
        script.answers[:] = []
        script.reply(status, {})
        transport.request("GET", "/x")
        return script.seen[-1].headers["Authorization"]

    assert [sent(), sent()] == ["Bearer 1", "Bearer 1"]
    clock.step(5)
    assert [sent(), sent(401), sent()] == ["Bearer 2", "Bearer 2", "Bearer 3"]
    transport.close()


def test_a_connection_that_ended_while_it_was_idle_is_replaced_before_a_request_is_sent(script):
    transport = Transport(script.config, SystemClock())

    def last_words(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        handler.close_connection = True

    script.answers.append(last_words)
    transport.request("GET", "/x")
    connection = transport._connections._idle[0]
    eventually(lambda: not connection.usable())
    script.answers[:] = []
    script.reply(201, {})
    assert transport.request("POST", "/x", body=b"{}").status == 201
    assert connection not in transport._connections._idle
    transport.close()


def test_closing_drops_idle_connections_and_those_that_come_back_later(script):
    transport = Transport(script.config, SystemClock())
    script.reply(200, {})
    transport.request("GET", "/x")
    busy = transport._connections.take(5)
    transport._connections.give(transport._connections.take(5))
    transport.close()
    transport._connections.give(busy)
    assert not transport._connections._idle
    assert busy.sock is None or busy.sock.fileno() == -1
    with pytest.raises(TransportError, match="closed"):
        transport.request("GET", "/x")


def test_the_resolution_of_a_name_is_measured_when_asked_and_an_address_has_none(script, clock):
    seen = []
    named = ClientConfig.for_url(script.url.replace("127.0.0.1", "localhost"))
    script.reply(200, {})
    for config, count in ((script.config, 0), (named, 1)):
        transport = Transport(config, clock, lookup_observer=seen.append)
        transport.request("GET", "/x")
        transport.request("GET", "/x")
        transport.close()
        assert len(seen) == count
    metrics = Metrics(detailed_requests=True)
    metrics.observe_lookup("api")(0.25)
    name = "rest_client_dns_resolution_duration_seconds_sum"
    assert metrics.registry.get_sample_value(name, {"host": "api"}) == 0.25
    assert Metrics().observe_lookup("api") is None


def test_a_path_in_the_host_is_kept(script, clock):
    transport = Transport(ClientConfig.for_url(script.url + "/clusters/a/"), clock)
    script.reply(200, {})
    transport.request("GET", "/api")
    assert script.seen[0].target == "/clusters/a/api"
    transport.close()


def chunk(handler, data):
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


def begin_stream(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def test_a_stream_gives_whole_lines_however_they_are_cut(script):
    def answer(handler):
        begin_stream(handler)
        for part in (b'{"a"', b":1}\n{", b'"b":2}\n\n{"c":3}\nrest'):
            chunk(handler, part)
        chunk(handler, b"")

    script.answers.append(answer)
    transport = Transport(script.config, SystemClock())
    stream = transport.stream("/x?watch=true", inactivity=5)
    assert list(stream.lines()) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    transport.close()


def test_closing_a_stream_wakes_its_reader(script):
    release = threading.Event()

    def answer(handler):
        begin_stream(handler)
        chunk(handler, b"one\n")
        release.wait(10)

    script.answers.append(answer)
    transport = Transport(script.config, SystemClock())
    stream = transport.stream("/x", inactivity=60)
    lines = []
    first = threading.Event()

    def read():
        for line in stream.lines():
            lines.append(line)
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert first.wait(5)
    stream.close()
    thread.join(5)
    assert not thread.is_alive()
    assert lines == [b"one"]
    release.set()
    transport.close()


def test_silence_beyond_the_limit_is_a_stall(script):
    release = threading.Event()

    def answer(handler):
        begin_stream(handler)
        chunk(handler, b"one\n")
        release.wait(10)

    script.answers.append(answer)
    transport = Transport(script.config, SystemClock())
    stream = transport.stream("/x", inactivity=0.1)
    with pytest.raises(StallError):
        list(stream.lines())
    release.set()
    transport.close()


def test_a_stream_that_breaks_is_a_transport_error(script):
    def answer(handler):
        begin_stream(handler)
        chunk(handler, b"one\n")
        handler.connection.shutdown(2)

    script.answers.append(answer)
    transport = Transport(script.config, SystemClock())
    with pytest.raises(TransportError):
        list(transport.stream("/x", inactivity=5).lines())
    transport.close()


def test_writes_are_told_to_observers(script, client):
    told = []
    client.on_write(told.append)
    script.reply(200, NODE)
    client.patch(CoreNode, "n1", None, MergePatch({}))
    client.get(CoreNode, "n1")
    script.answers[:] = []
    script.reply(200, {"kind": "Status", "details": {"uid": "u1"}})
    client.delete(CoreNode, "n1")
    assert [(w.name, w.uid, w.resource_version, w.deleted) for w in told] == [
        ("n1", "u1", "7", False),
        ("n1", "u1", "", True),
    ]


def test_requests_are_counted_and_measured_when_asked(script, clock):
    metrics = Metrics(detailed_requests=True)
    transport = Transport(script.config, clock, observer=metrics.observe_request("api"))
    client = Client(script.config, clock, transport=transport)
    script.status(500, "")
    script.reply(200, NODE)
    client.patch(CoreNode, "n1", None, MergePatch({}))
    client.close()
    value = metrics.registry.get_sample_value
    assert value("rest_client_requests_total", {"code": "500", "method": "PATCH", "host": "api"}) == 1
    assert value("rest_client_requests_total", {"code": "200", "method": "PATCH", "host": "api"}) == 1
    labels = {"verb": "PATCH", "host": "api"}
    assert value("rest_client_request_retries_total", {"code": "200", **labels}) == 1
    assert value("rest_client_request_duration_seconds_count", labels) == 2
    assert value("rest_client_request_size_bytes_sum", labels) == 4
    assert value("rest_client_response_size_bytes_sum", labels) > 50
