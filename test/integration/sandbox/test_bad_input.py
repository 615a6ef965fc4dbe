"""Requests that cannot be served: always a Status that a client can act on, never a traceback, never a hang."""

import asyncio
import http.client
import json
import logging
import socket
import time
import urllib.parse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/test.example.dev/v1/namespaces/default/widgets"
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def send(server, method, path, body=None, content_type="application/json", accept="application/json"):
    """One raw request; the answer as (status, parsed body or text)."""
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
    try:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(raw)
    except ValueError:
        return response.status, raw.decode(errors="replace")


@pytest.fixture
def quiet(caplog):
    """Fails a test during which the server met an error of its own."""
    with caplog.at_level(logging.ERROR):
        yield
    assert [record.getMessage() for record in caplog.records if "unexpected error" in record.getMessage()] == []


def sound(answer):
    """Whether an answer is one that a client understands."""
    status, body = answer
    if isinstance(body, dict) and body.get("kind") == "Status" and body["status"] == "Failure":
        return body["code"] == status and "unexpected error" not in body["message"]
    return status < 300 or status in {301, 404}


@pytest.mark.parametrize(
    ("body", "content_type", "status", "reason"),
    [
        (b"{", "application/json", 400, "BadRequest"),
        (b"", "application/json", 400, "BadRequest"),
        (b"[]", "application/json", 400, "BadRequest"),
        (b"null", "application/json", 400, "BadRequest"),
        (b"\xff\xfe", "application/json", 400, "BadRequest"),
        (b'{"metadata": []}', "application/json", 400, "BadRequest"),
        (b'{"metadata": {"name": 1}}', "application/json", 400, "BadRequest"),
        (b'{"metadata": {"name": "x"}, "data": {"a": 1}}', "application/json", 400, "BadRequest"),
        (b'{"kind": 1}', "application/json", 400, "BadRequest"),
        (b"a: [", "application/yaml", 400, "BadRequest"),
        (b"a: &a [1]\nb: *a\n", "application/yaml", 400, "BadRequest"),
        (b"x", "text/plain", 415, "UnsupportedMediaType"),
        (b"k8s\x00\xff", "application/vnd.kubernetes.protobuf", 415, "UnsupportedMediaType"),
        (b"[" * 5000, "application/json", 400, "BadRequest"),
        (b"[" * 300 + b"]" * 300, "application/json", 400, "BadRequest"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "application/json", 400, "BadRequest"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(server, quiet, body, content_type, status, reason):
    found, answer = send(server, "POST", CONFIG_MAPS, body, content_type)
    assert (found, answer["reason"]) == (status, reason), answer


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a" * 254, "..", "a/b", "ä", "a b", ""])
def test_a_hostile_name_is_refused(server, quiet, name):
    status, answer = send(server, "POST", CONFIG_MAPS, json.dumps({"metadata": {"name": name}}))
    assert (status, answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("path", ["%00", "%ff%fe", "..%2f..%2fetc", "%2e%2e", "a%2Fb", "x" * 5000])
def test_a_hostile_path_finds_nothing(server, quiet, path):
    assert send(server, "GET", f"{CONFIG_MAPS}/{path}")[0] in {400, 404}


def test_a_body_of_ten_megabytes_is_too_large(server, quiet):
    status, answer = send(server, "POST", CONFIG_MAPS, b'{"data": {"a": "' + b"x" * 10_000_000 + b'"}}')
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("labelSelector=a%20in%20b", 400),
        ("fieldSelector=spec.odd%3D1", 400),
        ("limit=x", 400),
        ("limit=-1", 200),
        ("resourceVersion=x", 400),
        ("resourceVersion=99999999999", 504),
        ("continue=garbage", 400),
        ("continue=e30", 400),
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("watch=true&resourceVersion=x", 500),
        ("watch=true&timeoutSeconds=x", 400),
        ("watch=true&sendInitialEvents=true", 422),
        ("%ff=%ff&=&&a", 200),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(server, quiet, query, status):
    assert send(server, "GET", f"{CONFIG_MAPS}?{query}")[0] == status


def test_a_continue_token_from_before_the_log_is_expired_and_offers_the_rest(server, api, quiet):
    for name in ("stale-a", "stale-b"):
        api.create(CONFIG_MAPS, {"metadata": {"name": name}})
    token = api.list(CONFIG_MAPS, limit=1)["metadata"]["continue"]
    api.create(CONFIG_MAPS, {"metadata": {"name": "stale-c"}})
    server.run(server.server.faults.forget_history)
    status, answer = send(server, "GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")
    status, answer = send(server, "GET", f"{CONFIG_MAPS}?continue={answer['metadata']['continue']}")
    assert (status, [item["metadata"]["name"] for item in answer["items"]][-1]) == (200, "stale-c")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(
    [
        "name",
        "generateName",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "managedFields",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "odd",
    ]
)
spec_names = st.sampled_from(
    [
        "containers",
        "size",
        "low",
        "high",
        "fixed",
        "free",
        "parts",
        "template",
        "selector",
        "taints",
        "nodeName",
        "replicas",
        "suspend",
        "rules",
        "webhooks",
        "minAvailable",
        "holderIdentity",
        "renewTime",
        "versions",
        "names",
        "group",
        "scope",
    ]
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "metadata": json_values | st.dictionaries(field_names, json_values, max_size=4),
        "spec": json_values | st.dictionaries(spec_names, json_values, max_size=4),
        "status": json_values,
        "data": json_values,
        "rules": json_values,
        "webhooks": json_values
        | st.lists(st.dictionaries(st.sampled_from(["name", "clientConfig", "rules"]), json_values)),
        "roleRef": json_values,
        "subjects": json_values,
        "involvedObject": json_values,
        "type": json_values,
        "deleteOptions": json_values,
    },
)
paths = st.sampled_from(
    [
        (CONFIG_MAPS, "v1", "ConfigMap"),
        ("/api/v1/nodes", "v1", "Node"),
        ("/api/v1/namespaces", "v1", "Namespace"),
        ("/api/v1/namespaces/default/pods", "v1", "Pod"),
        ("/api/v1/namespaces/default/secrets", "v1", "Secret"),
        ("/api/v1/namespaces/default/services", "v1", "Service"),
        ("/api/v1/namespaces/default/events", "v1", "Event"),
        ("/apis/events.k8s.io/v1/namespaces/default/events", "events.k8s.io/v1", "Event"),
        ("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job"),
        ("/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment"),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "coordination.k8s.io/v1", "Lease"),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1", "ClusterRole"),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
        ),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "authorization.k8s.io/v1", "SubjectAccessReview"),
        (WIDGETS, "test.example.dev/v1", "Widget"),
    ]
)


@fuzz
@given(paths, bodies)
def test_any_object_is_stored_or_refused_with_a_status(server, quiet, target, body):
    path, api_version, kind = target
    framed = {"apiVersion": api_version, "kind": kind, **body}
    data = json.dumps(framed)
    assert sound(send(server, "POST", f"{path}?dryRun=All", data))


@fuzz
@given(
    paths,
    json_values | bodies,
    st.sampled_from(
        [
            "application/merge-patch+json",
            "application/json-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]
    ),
)
def test_any_patch_is_applied_or_refused_with_a_status(server, quiet, target, patch, kind):
    path, api_version, name = target
    if kind.endswith("yaml") and isinstance(patch, dict):
        patch = {"apiVersion": api_version, "kind": name, **patch}
    where = f"{path}/fuzzed?dryRun=All&fieldManager=fuzz"
    assert sound(send(server, "PATCH", where, json.dumps(patch), kind))


@fuzz
@given(bodies.map(lambda body: body.get("metadata")) | json_values, st.sampled_from(["merge-patch", "json-patch"]))
def test_any_patch_of_a_present_object_is_applied_or_refused_with_a_status(server, quiet, value, kind):
    send(server, "POST", CONFIG_MAPS, json.dumps({"metadata": {"name": "fuzzed"}, "data": {"a": "1"}}))
    patch = {"metadata": value} if kind == "merge-patch" else [{"op": "add", "path": "/metadata", "value": value}]
    where = f"{CONFIG_MAPS}/fuzzed?dryRun=All"
    assert sound(send(server, "PATCH", where, json.dumps(patch), f"application/{kind}+json"))


@fuzz
@given(
    st.dictionaries(
        st.sampled_from(["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"]),
        st.text(max_size=12),
    )
)
def test_any_parameters_are_served_or_refused_with_a_status(server, quiet, query):
    assert sound(send(server, "GET", f"{CONFIG_MAPS}?{urllib.parse.urlencode(query)}"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "page.example:80"},
    ],
)
def test_a_web_page_in_a_browser_is_not_served(server, quiet, headers):
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
    connection.request("POST", CONFIG_MAPS, json.dumps({"metadata": {"name": "csrf"}}), headers)
    with connection.getresponse() as response:
        assert response.status == 403
    connection.close()
    assert send(server, "GET", f"{CONFIG_MAPS}/csrf")[0] == 404


def test_a_watch_ends_when_its_client_goes_away(server, quiet):
    address = urllib.parse.urlsplit(server.url)
    before = server.run(lambda: server.server.open_watches)
    connections = []
    for _ in range(20):
        connection = socket.create_connection((address.hostname, address.port), timeout=10)
        connection.sendall(b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
        connections.append(connection)
    assert server.run(lambda: server.server.open_watches) == before + 20
    for connection in connections:
        connection.close()

    deadline = time.monotonic() + 20
    while server.run(lambda: server.server.open_watches) > before:
        assert time.monotonic() < deadline, "watches of clients that have gone are still open"
        server.call(asyncio.sleep(0.01))


def test_a_client_that_hangs_up_in_the_middle_of_a_request_disturbs_nobody(server, api, quiet):
    address = urllib.parse.urlsplit(server.url)
    for text in (
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"",
    ):
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
    assert api.list("/api/v1/namespaces")["items"]
