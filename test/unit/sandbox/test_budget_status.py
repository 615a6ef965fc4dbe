from datetime import UTC, datetime, timedelta

import pytest

from homelab_autoscaler.sandbox.controllers.disruption import budget_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name, *, ready=True, phase="Running", deleting=False):
    meta = {"name": name, "namespace": "n", "uid": name, "labels": {"app": "x"}}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": meta, "status": status}


def budget(status=None, **spec):
    meta = {"name": "b", "namespace": "n", "generation": 3}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}, "status": status or {}}


def figures(found):
    return tuple(found[name] for name in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"))


@pytest.mark.parametrize(
    ("spec", "scale", "expected"),
    [
        ({"minAvailable": 1}, None, (2, 2, 1, 1)),
        ({"minAvailable": 2}, None, (2, 2, 2, 0)),
        ({"minAvailable": 5}, None, (2, 2, 5, 0)),
        ({"minAvailable": "50%"}, 3, (3, 2, 2, 0)),
        ({"maxUnavailable": 1}, 2, (2, 2, 1, 1)),
        ({"maxUnavailable": "30%"}, 4, (4, 2, 2, 0)),
        ({"maxUnavailable": 9}, 2, (2, 2, 0, 2)),
        ({"maxUnavailable": 1}, 0, (0, 2, 0, 0)),
    ],
)
def test_a_budget_counts_what_may_be_disrupted(spec, scale, expected):
    found, _ = budget_status(budget(**spec), [pod("a"), pod("b")], scale, NOW)
    assert figures(found) == expected
    assert found["observedGeneration"] == 3


@pytest.mark.parametrize("sick", [pod("b", ready=False), pod("b", deleting=True), pod("b", phase="Failed")])
def test_only_ready_living_pods_are_healthy(sick):
    found, _ = budget_status(budget(minAvailable=1), [pod("a"), sick], None, NOW)
    assert found["currentHealthy"] == 1
    assert found["disruptionsAllowed"] == 0
    assert found["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": 3,
        "lastTransitionTime": "",
    }


def test_an_evicted_pod_that_is_not_deleted_yet_is_not_healthy():
    status = {"disruptedPods": {"a": "2026-01-01T00:00:00Z"}}
    found, again = budget_status(
        budget(status, minAvailable=1), [pod("a"), pod("b")], None, NOW + timedelta(seconds=30)
    )
    assert figures(found) == (2, 1, 1, 0)
    assert found["disruptedPods"] == status["disruptedPods"]
    assert again == 90.0


def test_an_eviction_that_never_came_is_forgotten_after_two_minutes():
    status = {"disruptedPods": {"a": "2026-01-01T00:00:00Z", "gone": "2026-01-01T00:00:00Z"}}
    found, again = budget_status(budget(status, minAvailable=1), [pod("a"), pod("b")], None, NOW + timedelta(minutes=2))
    assert figures(found) == (2, 2, 1, 1)
    assert found["disruptedPods"] == {}
    assert again is None
