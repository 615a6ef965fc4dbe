from fractions import Fraction

import pytest

from homelab_autoscaler.sandbox.quantity import parse_quantity
from homelab_autoscaler.sandbox.scheduling.fit import choose, obstacles, pod_requests, state_of


def node(name="n1", labels=None, taints=(), *, unschedulable=False, **allocatable):
    resources = {"cpu": "4", "memory": "8Gi", "pods": "10", **allocatable}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"allocatable": resources},
    }


def pod(cpu=None, memory=None, **spec):
    requests = {key: value for key, value in {"cpu": cpu, "memory": memory}.items() if value}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": containers, **spec}}


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500m", Fraction(1, 2)),
        ("1Ki", 1024),
        ("2k", 2000),
        ("1e3", 1000),
        (".5", Fraction(1, 2)),
        ("1.5Gi", Fraction(3, 2) * 1024**3),
        ("100n", Fraction(1, 10**7)),
        ("-1", -1),
        (3, 3),
        ("1E", 10**18),
    ],
)
def test_quantities_mean_exact_numbers(text, value):
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "16 cores", "1Kib", "m", "1.2.3", "0x10"])
def test_what_is_no_quantity_is_named_in_the_error(text):
    with pytest.raises(ValueError, match="is not understood"):
        parse_quantity(text)


def test_requests_are_summed_and_a_big_init_container_counts():
    found = pod_requests(
        {
            "spec": {
                "containers": [
                    {"resources": {"requests": {"cpu": "500m"}}},
                    {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
                ],
                "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
            }
        }
    )
    assert found == {"cpu": 2, "memory": 1024**3, "pods": 1}


def test_a_small_pod_fits_on_an_empty_node():
    assert obstacles(pod("1", "1Gi"), state_of(node(), [])) == []


def test_each_missing_resource_is_named():
    found = obstacles(pod("8", "100Gi"), state_of(node(), []))
    assert found == ["Insufficient cpu", "Insufficient memory"]


def test_a_node_takes_no_more_pods_than_it_says():
    state = state_of(node(pods="1"), [pod()])
    assert obstacles(pod(), state) == ["Too many pods"]


def test_finished_pods_use_nothing():
    done = {**pod("4"), "status": {"phase": "Succeeded"}}
    assert obstacles(pod("4"), state_of(node(), [done])) == []


def test_a_resource_that_the_node_has_not_is_missing():
    want = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}
    assert obstacles(want, state_of(node(), [])) == ["Insufficient nvidia.com/gpu"]


def test_a_cordoned_node_takes_only_pods_that_tolerate_it():
    cordoned = state_of(node(unschedulable=True), [])
    assert obstacles(pod(), cordoned) == ["node(s) were unschedulable"]
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert obstacles(tolerant, cordoned) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_an_untolerated_taint_is_named(effect):
    state = state_of(node(taints=[{"key": "k", "value": "v", "effect": effect}]), [])
    assert obstacles(pod(), state) == ["node(s) had untolerated taint {k: v}"]


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "k", "operator": "Exists"},
        {"key": "k", "value": "v"},
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
    ],
)
def test_a_matching_toleration_lets_a_pod_in(toleration):
    state = state_of(node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), [])
    assert obstacles(pod(tolerations=[toleration]), state) == []


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "k", "value": "other"},
        {"key": "x", "operator": "Exists"},
        {"key": "k", "effect": "NoExecute", "operator": "Exists"},
    ],
)
def test_another_toleration_does_not_help(toleration):
    state = state_of(node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), [])
    assert obstacles(pod(tolerations=[toleration]), state)


def test_prefer_no_schedule_does_not_keep_a_pod_away():
    assert obstacles(pod(), state_of(node(taints=[{"key": "k", "effect": "PreferNoSchedule"}]), [])) == []


def test_a_node_selector_must_match():
    want = pod(nodeSelector={"disk": "ssd"})
    assert obstacles(want, state_of(node(), [])) == ["node(s) didn't match Pod's node affinity/selector"]
    assert obstacles(want, state_of(node(labels={"disk": "ssd"}), [])) == []


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["0"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["0"]}]}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({}, False),
    ],
)
def test_required_affinity_is_applied(term, fits):
    found = obstacles(pod(affinity=affinity(term)), state_of(node(labels={"a": "1"}), []))
    assert (found == []) is fits


def test_the_emptiest_fitting_node_is_chosen_and_ties_go_by_name():
    busy, idle = state_of(node("a"), [pod("3")]), state_of(node("b"), [])
    assert choose(pod("1"), [busy, idle])[0] is idle
    assert choose(pod("1"), [state_of(node("y"), []), state_of(node("x"), [])])[0].node["metadata"]["name"] == "x"


def test_the_message_counts_reasons_over_all_nodes():
    states = [state_of(node("a"), []), state_of(node("b", unschedulable=True), []), state_of(node("c"), [])]
    found, why = choose(pod("8"), states)
    assert found is None
    assert why == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."


def test_without_nodes_the_message_says_so():
    assert choose(pod(), []) == (None, "no nodes available to schedule pods")
