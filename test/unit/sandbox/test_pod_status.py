from datetime import UTC, datetime

import pytest

from homelab_autoscaler.sandbox.kubelet.pod_status import ContainerState, pod_phase, pod_status
from homelab_autoscaler.sandbox.kubelet.runtime import Exit

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def state(code=None, *, waiting=False, ready=False, restarts=0):
    found = ContainerState("c", waiting=("ContainerCreating", "") if waiting else None, ready=ready, restarts=restarts)
    found.started_at = NOW
    found.exit = Exit(code, NOW) if code is not None else None
    return found


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Never", [state(waiting=True)], "Pending"),
        ("Never", [state()], "Running"),
        ("Never", [state(0)], "Succeeded"),
        ("Never", [state(1)], "Failed"),
        ("Never", [state(0), state()], "Running"),
        ("Never", [state(0), state(2)], "Failed"),
        ("OnFailure", [state(0)], "Succeeded"),
        ("OnFailure", [state(1)], "Running"),
        ("Always", [state(0)], "Running"),
        ("Always", [state(waiting=True, restarts=1)], "Running"),
    ],
)
def test_the_phase_follows_from_containers_and_restart_policy(policy, states, phase):
    assert pod_phase(policy, states, stopping=False) == phase


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (137, "Failed")])
def test_a_stopped_pod_ends_whatever_its_restart_policy(code, phase):
    assert pod_phase("Always", [state(code)], stopping=True) == phase


def status(pod, states, phase="Running", init=()):
    return pod_status(pod, states, list(init), phase=phase, address="10.0.0.1", now=NOW)


def conditions(found):
    return {item["type"]: item["status"] for item in found["conditions"]}


def test_a_pod_is_ready_when_all_its_containers_are():
    assert conditions(status({}, [state(ready=True), state(ready=True)]))["Ready"] == "True"
    found = status({}, [state(ready=True), state()])
    assert conditions(found)["Ready"] == "False"
    assert found["conditions"][-1]["message"] == "containers with unready status: [c]"


def test_an_ended_pod_is_not_ready_and_says_that_it_completed():
    found = status({}, [state(0)], phase="Succeeded")
    assert found["conditions"][-1]["reason"] == "PodCompleted"
    terminated = found["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")


def test_the_time_of_an_unchanged_condition_stays():
    before = "2025-01-01T00:00:00Z"
    pod = {
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": before}],
            "startTime": before,
        }
    }
    found = status(pod, [state()])
    assert found["conditions"][-1]["lastTransitionTime"] == before
    assert found["startTime"] == before


def test_a_pod_waits_for_its_init_containers():
    found = status({}, [state(waiting=True)], phase="Pending", init=[state(1)])
    assert conditions(found)["Initialized"] == "False"
    assert len(found["initContainerStatuses"]) == 1


def test_a_restarted_container_shows_how_it_ended_before():
    one = state(restarts=1)
    one.last = Exit(3, NOW)
    entry = status({}, [one])["containerStatuses"][0]
    assert entry["restartCount"] == 1
    assert entry["lastState"]["terminated"]["exitCode"] == 3
