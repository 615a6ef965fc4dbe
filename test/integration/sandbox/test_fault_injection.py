"""Faults: what happens to the requests that they hit, and to no others."""

import json
import urllib.error
import urllib.request

import pytest

from homelab_autoscaler.sandbox.apiserver import Fault
from homelab_autoscaler.sandbox.client import ConnectionLostError
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing import running_api_server


@pytest.fixture
def maps(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


def watch(server, path, start, seconds=1, **query):
    """The events of a watch until its end, as (type, name)."""

    async def collect():
        events = server.server.local().watch(path, resource_version=start, query={"timeoutSeconds": seconds, **query})
        return [
            (event["type"], event["object"].get("metadata", {}).get("name") or event["object"].get("code"))
            async for event in events
        ]

    return server.call(collect())


def present(api, path):
    return api.list(path)["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        ({"kind": "conflict"}, 409, "Conflict"),
        ({"kind": "too-many-requests", "retry_after": 7}, 429, "TooManyRequests"),
        ({"kind": "error", "code": 500}, 500, "InternalError"),
        ({"kind": "error", "code": 503}, 503, "ServiceUnavailable"),
        ({"kind": "error", "code": 504}, 504, "Timeout"),
    ],
)
def test_an_error_hits_as_often_as_it_says_and_nothing_is_done(server, api, maps, fault, code, reason):
    server.add_fault(Fault.of({"verb": "create", "resource": "configmaps", "count": 2, **fault}))
    for _ in range(2):
        with pytest.raises(ApiStatusError) as caught:
            api.create(maps, {"metadata": {"name": "x"}})
        assert (caught.value.code, caught.value.reason) == (code, reason)
    assert api.list(maps)["items"] == []
    api.create(maps, {"metadata": {"name": "x"}})


def test_a_fault_spares_other_verbs_kinds_names_and_users(server, api, maps):
    fault = Fault(kind="error", verb="patch", resource="configmaps", name="a*", user="system:serviceaccount:*")
    identity = server.add_fault(fault)
    api.create(maps, {"metadata": {"name": "a1"}})
    api.create(maps, {"metadata": {"name": "b1"}})
    api.patch(f"{maps}/a1", {"data": {"a": "1"}})
    other = server.client("system:serviceaccount:default:robot")
    other.patch(f"{maps}/b1", {"data": {"a": "1"}})
    with pytest.raises(ApiStatusError):
        other.patch(f"{maps}/a1", {"data": {"a": "2"}})
    assert server.run(lambda: server.server.faults.hits(identity)) == 1


def test_a_dropped_reply_comes_after_the_commit_and_a_reset_before(server, api, maps):
    server.add_fault(Fault(kind="drop-reply", verb="create", count=1))
    with pytest.raises(ConnectionLostError):
        api.create(maps, {"metadata": {"name": "committed"}})
    server.add_fault(Fault(kind="reset", verb="create", count=1))
    with pytest.raises(ConnectionLostError):
        api.create(maps, {"metadata": {"name": "never"}})
    assert [item["metadata"]["name"] for item in api.list(maps)["items"]] == ["committed"]


def test_over_http_a_dropped_reply_is_a_closed_connection(server, maps):
    server.add_fault(Fault(kind="drop-reply", verb="create", count=1))
    request = urllib.request.Request(
        server.url + maps,
        json.dumps({"metadata": {"name": "http"}}).encode(),
        {"Content-Type": "application/json"},
    )
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        urllib.request.urlopen(request, timeout=10)
    with urllib.request.urlopen(f"{server.url}{maps}/http", timeout=10) as answer:
        assert answer.status == 200


def test_the_same_seed_hits_the_same_requests(maps):
    def run(seed):
        with running_api_server() as server:
            api = server.client()
            server.run(lambda: server.server.faults.seed(seed))
            server.add_fault(Fault(kind="error", verb="create", probability=0.5))
            found = []
            for number in range(30):
                try:
                    api.create("/api/v1/nodes", {"metadata": {"name": f"n{number}"}})
                    found.append(True)
                except ApiStatusError:
                    found.append(False)
            return found

    first = run(7)
    assert run(7) == first
    assert run(8) != first
    assert 5 < sum(first) < 25


def test_a_stale_read_shows_an_older_state_and_watches_go_on_from_it(server, api, maps):
    api.create(maps, {"metadata": {"name": "a"}, "data": {"v": "1"}})
    api.patch(f"{maps}/a", {"data": {"v": "2"}})
    server.add_fault(Fault(kind="stale-read", resource="configmaps", revisions=1, count=2))
    assert api.get(f"{maps}/a")["data"] == {"v": "1"}
    old = api.list(maps)
    assert old["items"][0]["data"] == {"v": "1"}
    assert watch(server, maps, old["metadata"]["resourceVersion"]) == [("MODIFIED", "a")]
    assert api.get(f"{maps}/a")["data"] == {"v": "2"}


def test_a_watch_is_cut_after_as_many_events_as_it_says(server, api, maps):
    start = present(api, maps)
    for name in "abc":
        api.create(maps, {"metadata": {"name": name}})
    server.add_fault(Fault(kind="watch-cut", resource="configmaps", events=2, count=1))
    assert watch(server, maps, start, 30) == [("ADDED", "a"), ("ADDED", "b")]
    assert watch(server, maps, start) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_a_watch_expires_on_demand(server, api, maps):
    start = present(api, maps)
    api.create(maps, {"metadata": {"name": "a"}})
    server.add_fault(Fault(kind="watch-expired", resource="configmaps", events=1, count=1))
    assert watch(server, maps, start, 30) == [("ADDED", "a"), ("ERROR", 410)]


def test_a_stalled_watch_loses_nothing(server, api, maps):
    start = present(api, maps)
    for name in "ab":
        api.create(maps, {"metadata": {"name": name}})
    server.add_fault(Fault(kind="watch-stall", resource="configmaps", events=1, seconds=0.2, count=1))
    assert watch(server, maps, start) == [("ADDED", "a"), ("ADDED", "b")]


def test_events_come_twice_or_late_but_in_order(server, api, maps):
    start = present(api, maps)
    for name in "abc":
        api.create(maps, {"metadata": {"name": name}})
    server.add_fault(Fault(kind="duplicate-event", resource="configmaps", after=1, count=1))
    server.add_fault(Fault(kind="delay-event", resource="configmaps", seconds=0.1, count=1))
    assert watch(server, maps, start) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b"), ("ADDED", "c")]


def test_a_small_log_forces_clients_to_list_again(server, api, maps):
    start = present(api, maps)
    size = server.run(lambda: server.server.store.log_size)
    server.run(lambda: server.server.faults.limit_log(1))
    for name in "ab":
        api.create(maps, {"metadata": {"name": name}})
    assert watch(server, maps, start) == [("ERROR", 410)]
    server.run(lambda: server.server.faults.limit_log(size))


def call(server, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_faults_and_writes_can_be_reached_over_http(server, api, maps):
    status, answer = call(server, "POST", "/sandbox/faults", {"kind": "error", "verb": "delete", "code": 503})
    assert status == 201
    api.create(maps, {"metadata": {"name": "x"}})
    with pytest.raises(ApiStatusError):
        api.delete(f"{maps}/x")
    rules = call(server, "GET", "/sandbox/faults")[1]["faults"]
    assert [(rule["id"], rule["kind"], rule["hits"]) for rule in rules] == [(answer["id"], "error", 1)]
    assert call(server, "DELETE", f"/sandbox/faults/{answer['id']}")[0] == 200
    assert call(server, "DELETE", f"/sandbox/faults/{answer['id']}")[0] == 404
    api.delete(f"{maps}/x")
    writes = call(server, "GET", "/sandbox/writes?resource=configmaps")[1]["writes"]
    assert [(write["verb"], write["name"]) for write in writes][-2:] == [("create", "x"), ("delete", "x")]
    status, answer = call(server, "POST", "/sandbox/faults", {"kind": "error", "probability": 3})
    assert (status, answer["message"]) == (400, "fault: probability 3 must be between 0 and 1")
