from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from homelab_api.core import CoreNode, Job, Pod
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.cli.snapshot import Snapshot, slot_views

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def slot(phase=None, *, name="rack-1", power="off", spec=None, **status):
    return Node.from_json(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": {"infra.homecluster.dev/group": "rack"},
            },
            "spec": {
                "kubernetesNodeName": name,
                "startupPodSpec": {"image": "a"},
                "shutdownPodSpec": {"image": "a"},
                **(spec or {}),
            },
            "status": {"phase": phase, "powerState": power, "lastTransitionTime": NOW.isoformat(), **status},
        }
    )


def claim(phase, *, name="rack-1-0a", call="IncreaseSize", created=NOW, conditions=()):
    return NodeClaim.from_json(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "creationTimestamp": created.isoformat(),
            },
            "spec": {"slotRef": {"name": "rack-1"}, "call": call, "group": "rack"},
            "status": {"phase": phase, "conditions": list(conditions)},
        }
    )


def job(kind, *, suspend=False, done=False):
    return Job.from_json(
        {
            "metadata": {
                "name": f"rack-1-{kind}",
                "namespace": "default",
                "labels": {"type": kind},
                "ownerReferences": [{"apiVersion": "x/v1", "kind": "Node", "name": "rack-1", "uid": "uid-rack-1"}],
            },
            "spec": {"suspend": suspend},
            "status": {"conditions": [{"type": "Complete", "status": "True"}] if done else []},
        }
    )


def core_node(*, ready="True"):
    return CoreNode.from_json(
        {"metadata": {"name": "rack-1"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    )


def pod(name, *, phase="Running", owner="ReplicaSet"):
    return Pod.from_json(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "y"}],
            },
            "spec": {"nodeName": "rack-1"},
            "status": {"phase": phase},
        }
    )


def why(**objects):
    group = Group.from_json({"metadata": {"name": "rack", "namespace": "default"}, "spec": {"nodeReadinessTaints": []}})
    [view] = slot_views(Snapshot(groups=(group,), **objects))
    return view.why


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({"slots": (slot(),)}, "not looked at yet: does a manager run?"),
        ({"slots": (slot("off"),)}, "never used"),
        ({"slots": (slot("off", spec={"paused": True}),)}, "paused: no claims are offered"),
        (
            {"slots": (slot("off", lastClaim={"name": "x", "phase": "completed", "reason": "NodeDeleted"}),)},
            "last claim completed (NodeDeleted)",
        ),
        ({"slots": (slot("pending"),), "claims": (claim("pending"),)}, "asked for by the autoscaler"),
        ({"slots": (slot("pending"),), "claims": (claim(None, call="Manual"),)}, "asked for by hand"),
        (
            {"slots": (slot("booting"),), "claims": (claim("booting"),), "jobs": (job("startup", suspend=True),)},
            "startup Job waits for its release",
        ),
        (
            {"slots": (slot("booting"),), "claims": (claim("booting"),), "jobs": (job("startup"),)},
            "startup Job runs",
        ),
        (
            {"slots": (slot("booting"),), "claims": (claim("booting"),), "jobs": (job("startup", done=True),)},
            "the node is not registered",
        ),
        (
            {"slots": (slot("booting"),), "claims": (claim("booting"),), "nodes": (core_node(ready="False"),)},
            "node rack-1 is not ready: Ready is False",
        ),
        (
            {
                "slots": (slot("ready", power="on"),),
                "claims": (claim("ready"),),
                "nodes": (core_node(),),
                "pods": (pod("a"), pod("b", phase="Succeeded"), pod("c", owner="DaemonSet")),
            },
            "asked for by the autoscaler, 1 pod",
        ),
        (
            {"slots": (slot("draining", power="on"),), "nodes": (core_node(),), "pods": (pod("a"), pod("b"))},
            "nobody wants it; 2 pods to leave",
        ),
        ({"slots": (slot("draining", power="on"),), "jobs": (job("shutdown"),)}, "shutdown Job runs"),
        ({"slots": (slot("draining"),)}, "nobody wants it; waits until the machine is surely off"),
    ],
)
def test_the_reason_says_what_the_slot_waits_for(objects, expected):
    assert why(**objects) == expected


def test_a_condition_that_needs_a_person_comes_before_everything_else():
    needs = {"type": "NeedsHuman", "status": "True", "reason": "x", "message": "the shutdown script fails"}

    text = why(slots=(slot("draining", power="on"),), claims=(claim("ready", conditions=[needs]),))

    assert text == "NeedsHuman: the shutdown script fails"


def test_a_row_names_the_claim_that_owns_the_slot_and_no_ended_one():
    old = claim("completed", name="rack-1-old", created=NOW - timedelta(hours=1))
    new = claim("booting", name="rack-1-new")

    [view] = slot_views(Snapshot(slots=(slot("booting"),), claims=(old, new)))

    assert view.claim == "rack-1-new"
    assert (view.phase, view.power, view.since) == ("booting", "off", NOW)


def test_a_slot_whose_claims_have_ended_has_none():
    [view] = slot_views(Snapshot(slots=(slot("off"),), claims=(claim("completed"),)))

    assert view.claim == ""


def test_rows_are_ordered_by_name():
    views = slot_views(Snapshot(slots=(slot("off", name="rack-2"), slot("off", name="rack-1"))))

    assert [view.slot for view in views] == ["rack-1", "rack-2"]
