"""Requests that cannot be served: always a Status that a client can act on, never a traceback, never a hang."""

import json
import logging
import socket
import urllib.parse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Nine levels of ten references each: a few hundred bytes that stand for a thousand million texts.
BILLION_LAUGHS = "\n".join(
    ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))]
).encode()
pytestmark = pytest.mark.usefixtures("widgets_defined")
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/test.example.dev/v1/namespaces/default/widgets"
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


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
        (b"null", "application/json", 422, "Invalid"),
        (b"\xff\xfe", "application/json", 400, "BadRequest"),
        (b'{"metadata": []}', "application/json", 400, "BadRequest"),
        (b'{"metadata": {"name": 1}}', "application/json", 400, "BadRequest"),
        (b'{"metadata": {"name": "x"}, "data": {"a": 1}}', "application/json", 400, "BadRequest"),
        (b'{"kind": 1}', "application/json", 400, "BadRequest"),
        (b"a: [", "application/yaml", 400, "BadRequest"),
        (b"a: &a [1]\nb: *a\n", "application/yaml", 422, "Invalid"),
        (b"a: &a [*a]\n", "application/yaml", 400, "BadRequest"),
        (BILLION_LAUGHS, "application/yaml", 400, "BadRequest"),
        (b"x", "text/plain", 415, "UnsupportedMediaType"),
        (b"k8s\x00\xff", "application/vnd.kubernetes.protobuf", 400, "BadRequest"),
        (b"{}", "application/vnd.kubernetes.protobuf", 400, "BadRequest"),
        (b"[" * 5000, "application/json", 400, "BadRequest"),
        (b"[" * 300 + b"]" * 300, "application/json", 400, "BadRequest"),
        (b'{"a":' * 11_000 + b"1" + b"}" * 11_000, "application/json", 400, "BadRequest"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(wire, quiet, body, content_type, status, reason):
    found, answer = wire.send("POST", CONFIG_MAPS, body, content_type)
    assert (found, answer["reason"]) == (status, reason), answer


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a" * 254, "..", "a/b", "ä", "a b", ""])
def test_a_hostile_name_is_refused(wire, quiet, name):
    status, answer = wire.send("POST", CONFIG_MAPS, json.dumps({"metadata": {"name": name}}))
    assert (status, answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("path", ["%00", "%ff%fe", "..%2f..%2fetc", "%2e%2e", "a%2Fb", "x" * 5000])
def test_a_hostile_path_finds_nothing(wire, quiet, path):
    assert wire.send("GET", f"{CONFIG_MAPS}/{path}")[0] in {400, 404}


def test_a_body_over_three_mebibytes_is_too_large(wire, quiet):
    head, tail = b'{"metadata": {"name": "large"}, "data": {"a": "', b'"}}'
    body = head + b"x" * (3 * 1024 * 1024 + 1 - len(head) - len(tail)) + tail
    status, answer = wire.send("POST", CONFIG_MAPS, body)
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


def test_a_body_of_ten_megabytes_is_turned_away_and_disturbs_nobody(wire, api, quiet):
    try:
        outcome = wire.send("POST", CONFIG_MAPS, b'{"data": {"a": "' + b"x" * 10_000_000 + b'"}}')[0]
    except OSError:
        # A server may close the connection while the client still sends: the answer is lost then.
        outcome = 413
    assert outcome == 413
    assert api.list("/api/v1/namespaces")["items"]


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
def test_a_parameter_that_makes_no_sense_is_refused(wire, quiet, query, status):
    assert wire.send("GET", f"{CONFIG_MAPS}?{query}")[0] == status


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
def test_any_object_is_stored_or_refused_with_a_status(wire, quiet, target, body):
    path, api_version, kind = target
    framed = {"apiVersion": api_version, "kind": kind, **body}
    data = json.dumps(framed)
    assert sound(wire.send("POST", f"{path}?dryRun=All", data))


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
def test_any_patch_is_applied_or_refused_with_a_status(wire, quiet, target, patch, kind):
    path, api_version, name = target
    if kind.endswith("yaml") and isinstance(patch, dict):
        patch = {"apiVersion": api_version, "kind": name, **patch}
    where = f"{path}/fuzzed?dryRun=All&fieldManager=fuzz"
    assert sound(wire.send("PATCH", where, json.dumps(patch), kind))


@fuzz
@given(bodies.map(lambda body: body.get("metadata")) | json_values, st.sampled_from(["merge-patch", "json-patch"]))
def test_any_patch_of_a_present_object_is_applied_or_refused_with_a_status(wire, quiet, value, kind):
    wire.send("POST", CONFIG_MAPS, json.dumps({"metadata": {"name": "fuzzed"}, "data": {"a": "1"}}))
    patch = {"metadata": value} if kind == "merge-patch" else [{"op": "add", "path": "/metadata", "value": value}]
    where = f"{CONFIG_MAPS}/fuzzed?dryRun=All"
    assert sound(wire.send("PATCH", where, json.dumps(patch), f"application/{kind}+json"))


@fuzz
@given(
    st.dictionaries(
        st.sampled_from(["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"]),
        st.text(max_size=12),
    )
)
def test_any_parameters_are_served_or_refused_with_a_status(wire, quiet, query):
    assert sound(wire.send("GET", f"{CONFIG_MAPS}?{urllib.parse.urlencode(query)}"))


def test_a_client_that_hangs_up_in_the_middle_of_a_request_disturbs_nobody(wire, api, quiet):
    for text in (
        wire.head("POST", "/api/v1/namespaces", "Content-Type: application/json", "Content-Length: 100") + b"{",
        wire.head("GET", "/api/v1/nodes?watch=true"),
        b"nonsense\r\n\r\n",
        b"",
    ):
        with wire.connect() as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
    assert api.list("/api/v1/namespaces")["items"]
