"""One predicate for "the node can take the pool's work"."""

import pytest

from homelab_api import names
from homelab_api.core import CoreNode, Taint
from homelab_api.v2alpha1 import PowerState
from homelab_autoscaler.phase import cordon_is_ours, power, unusable, usable

CILIUM = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")


def node(ready="True", *, taints=(), cordoned=False, ours=False, reason="KubeletReady"):
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready, "reason": reason})
    return CoreNode.from_json(
        {
            "metadata": {"name": "n1", "annotations": {names.ANNOTATION_CORDONED_BY: "drain"} if ours else {}},
            "spec": {"unschedulable": cordoned, "taints": list(taints)},
            "status": {"conditions": conditions},
        }
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, PowerState.OFF),
        (node(None), PowerState.OFF),
        (node("False"), PowerState.OFF),
        (node("Unknown"), PowerState.OFF),
        (node("True"), PowerState.ON),
        (node("True", cordoned=True), PowerState.ON),
    ],
)
def test_a_machine_is_on_iff_its_nodes_ready_condition_is_true(value, expected):
    assert power(value) is expected


def test_a_ready_node_without_marks_is_usable():
    assert unusable(node(), [CILIUM]) is None
    assert usable(node(), [CILIUM])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "not registered"),
        (node(None), "no Ready condition"),
        (node("False", reason="KubeletNotReady"), "Ready is False (KubeletNotReady)"),
        (node("Unknown", reason="NodeStatusUnknown"), "Ready is Unknown (NodeStatusUnknown)"),
        (node(taints=[CILIUM.to_json()]), "node.cilium.io/agent-not-ready:NoExecute"),
        (node(taints=[CILIUM.to_json() | {"value": "true"}]), "node.cilium.io/agent-not-ready:NoExecute"),
        (node(cordoned=True), "cordoned by someone else"),
        (node(cordoned=True, ours=True), "cordoned by this operator"),
    ],
)
def test_what_makes_a_node_unusable_is_said_in_words(value, says):
    assert says in unusable(value, [CILIUM])
    assert not usable(value, [CILIUM])


def test_only_the_pools_readiness_taints_count():
    other = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
    assert usable(node(taints=[other, {"key": "gpu", "effect": "NoSchedule"}]), [CILIUM])
    assert usable(node(taints=[CILIUM.to_json()]), [])


def test_the_gate_disregards_our_own_cordon_and_never_a_foreign_one():
    assert unusable(node(cordoned=True, ours=True), [], ignore_own_cordon=True) is None
    assert "someone else" in unusable(node(cordoned=True), [], ignore_own_cordon=True)
    assert unusable(node("False", cordoned=True, ours=True), [], ignore_own_cordon=True) is not None


def test_a_cordon_is_ours_only_while_it_is_a_cordon_and_carries_our_mark():
    assert cordon_is_ours(node(cordoned=True, ours=True))
    assert not cordon_is_ours(node(cordoned=True))
    assert not cordon_is_ours(node(ours=True))
