"""Spoilt objects sent to the control plane of the session and to an embedded one: both say the same of them.

With a real kube-apiserver this is the proof that ours is like it. Without one, two of ours are compared, of which one
has a past: what it stored for other tests does not show in its answers.
"""

import json

import pytest
from hostile import GOOD, spoilt
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import Wire

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.testing.control_plane import embedded_control_plane

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATCHES = ["merge-patch", "strategic-merge-patch"]
# Repeatable: what is compared with another program must not change from run to run.
compared = settings(max_examples=80, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module")
def ours(api, widgets_defined):
    """An embedded server with the same kinds."""
    with embedded_control_plane() as plane:
        definition = api.get(f"{CRDS}/widgets.test.example.dev")
        frame = {"apiVersion": "apiextensions.k8s.io/v1", "kind": definition["kind"]}
        metadata = {"name": definition["metadata"]["name"]}
        plane.api().create(CRDS, {**frame, "metadata": metadata, "spec": definition["spec"]})
        yield Wire(plane.kubeconfig)


@pytest.fixture(scope="module")
def both(wire, ours):
    def ask(*request):
        return [facts(one.send(*request)) for one in (wire, ours)]

    return ask


def facts(answer):
    """What clients act on: code, reason, and details with their causes."""
    status, body = answer
    assert isinstance(body, dict), body
    if status < 300:
        return (status,)
    assert "unexpected error" not in body["message"], body
    details = body.get("details") or {}
    causes = sorted({(cause.get("reason", ""), cause.get("field", "")) for cause in details.get("causes") or []})
    named = [details.get(key) or "" for key in ("group", "kind", "name")]
    return status, body.get("reason", ""), *named, causes


@pytest.mark.parametrize("kind", GOOD)
def test_a_spoilt_object_is_taken_or_refused_for_the_same_reasons(both, kind):
    path, good = GOOD[kind]

    @compared
    @given(spoilt(good), st.sampled_from(["", "Strict"]))
    def check(body, validation):
        theirs, ours = both("POST", f"{path}?dryRun=All&fieldValidation={validation}", json.dumps(body))
        assert ours == theirs, body

    check()


@pytest.mark.parametrize("kind", ["ConfigMap", "Node", "Widget"])
def test_a_patch_with_a_spoilt_object_is_taken_or_refused_for_the_same_reasons(both, wire, ours, kind):
    path, good = GOOD[kind]
    for server in (wire, ours):
        server.send("POST", path, json.dumps(good))
        eventually(lambda server=server: server.send("GET", f"{path}/x")[0] == 200)
    body_without_frame = {key: value for key, value in good.items() if key not in {"apiVersion", "kind"}}

    @compared
    @given(spoilt(body_without_frame), st.sampled_from(PATCHES[: 1 if kind == "Widget" else 2]))
    def check(body, form):
        theirs, ours = both("PATCH", f"{path}/x?dryRun=All", json.dumps(body), f"application/{form}+json")
        assert ours == theirs, body

    check()
