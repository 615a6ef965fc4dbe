import pytest

from homelab_autoscaler.sandbox.controllers.node_lifecycle import wanted_taints
from homelab_autoscaler.sandbox.taints import allowed_seconds

NOW = "2026-01-01T00:00:00Z"


def node(ready=None, taints=(), *, unschedulable=False, **conditions):
    found = [{"type": kind, "status": value} for kind, value in conditions.items()]
    if ready is not None:
        found.append({"type": "Ready", "status": ready})
    return {
        "metadata": {"name": "n"},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"conditions": found},
    }


def told(taints):
    return [(taint["key"].rpartition("/")[2], taint["effect"]) for taint in taints]


@pytest.mark.parametrize(
    ("found", "taints"),
    [
        (node("True"), []),
        (node("False"), [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]),
        (node("Unknown"), [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]),
        (node("True", unschedulable=True), [("unschedulable", "NoSchedule")]),
        (node("True", MemoryPressure="True", DiskPressure="False"), [("memory-pressure", "NoSchedule")]),
    ],
)
def test_conditions_and_cordon_become_taints(found, taints):
    assert told(wanted_taints(found, NOW)) == taints


def test_a_ready_node_loses_the_taints_of_its_silence():
    before = wanted_taints(node("Unknown"), NOW)
    assert wanted_taints(node("True", taints=before), NOW) == []


def test_taints_of_others_stay_in_their_place():
    mine = {"key": "example.dev/mine", "effect": "NoExecute"}
    before = [mine, *wanted_taints(node("False"), NOW)]
    assert wanted_taints(node("True", taints=before), NOW) == [mine]


def test_a_taint_that_is_there_keeps_the_time_at_which_it_was_added():
    before = wanted_taints(node("False"), NOW)
    assert wanted_taints(node("False", taints=before), "2027-01-01T00:00:00Z") == before


def test_the_servers_own_taint_stays_until_the_first_status():
    given = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert wanted_taints(node(taints=given), NOW) == given
    assert wanted_taints(node("True", taints=given), NOW) == []


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], 300.0),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": -5}], 0.0),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}, {"operator": "Exists"}], 300.0),
        ([{"key": "other", "operator": "Exists"}], 0.0),
    ],
)
def test_a_pod_may_stay_as_long_as_its_tolerations_say(tolerations, seconds):
    assert allowed_seconds([{"key": "k", "effect": "NoExecute"}], tolerations) == seconds


def test_of_two_taints_the_shorter_stay_counts():
    taints = [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"}]
    tolerations = [
        {"key": "a", "operator": "Exists", "tolerationSeconds": 60},
        {"key": "b", "operator": "Exists", "tolerationSeconds": 10},
    ]
    assert allowed_seconds(taints, tolerations) == 10.0


def test_only_no_execute_drives_pods_away():
    assert allowed_seconds([{"key": "k", "effect": "NoSchedule"}], []) is None
