"""What `kubectl get` shows of our kinds: the server's own Tables, asked for as kubectl asks."""

import pytest

from homelab_api import names

POD = {"image": "busybox"}


@pytest.fixture
def table(api, place):
    def ask(plural, body):
        info = {"apiVersion": "infra.homecluster.dev/v2alpha1", "kind": body.pop("kind")}
        status = body.pop("status")
        api.create(f"{place}/{plural}", info | body)
        api.patch(f"{place}/{plural}/{body['metadata']['name']}/status", {"status": status})
        found = api.request("GET", f"{place}/{plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io").json()
        titles = [column["name"] for column in found["columnDefinitions"]]
        return [dict(zip(titles, row["cells"], strict=True)) for row in found["rows"]]

    return ask


def test_a_slot_shows_its_phase_pool_claim_and_last_end(table):
    (row,) = table(
        "nodes",
        {
            "kind": "Node",
            "metadata": {"name": "w1", "labels": {names.LABEL_GROUP: "rack"}},
            "spec": {"kubernetesNodeName": "node-1", "startupPodSpec": POD, "shutdownPodSpec": POD},
            "status": {
                "phase": "booting",
                "powerState": "off",
                "claim": "w1-7f4b9c00",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "activationsLast24H": 3,
                "lastClaim": {"name": "w1-00000000", "phase": "failed", "reason": "MachineGone"},
            },
        },
    )
    assert row.pop("Since").endswith(("d", "y", "h"))
    assert row.pop("Age")
    assert row == {
        "Name": "w1",
        "Phase": "booting",
        "Power": "off",
        "Group": "rack",
        "Claim": "w1-7f4b9c00",
        "24h": 3,
        "Node": "node-1",
        "Last-Claim": "w1-00000000",
        "Reason": "MachineGone",
    }


def test_a_claim_shows_a_deadline_that_is_still_to_come(table):
    (row,) = table(
        "nodeclaims",
        {
            "kind": "NodeClaim",
            "metadata": {"name": "w1-7f4b9c00"},
            "spec": {
                "slotRef": {"name": "w1"},
                "call": "Manual",
                "group": "rack",
                "deadlineAt": "2099-01-01T00:00:00Z",
            },
            "status": {"phase": "booting", "attempt": 2, "reason": "StartupJobCreated", "nodeName": "node-1"},
        },
    )
    assert row.pop("Age")
    assert row == {
        "Name": "w1-7f4b9c00",
        "Slot": "w1",
        "Phase": "booting",
        "Attempt": 2,
        "Reason": "StartupJobCreated",
        "Deadline": "2099-01-01T00:00:00Z",
        "Call": "Manual",
        "Node": "node-1",
        "Job": None,
        "Message": None,
    }


def test_a_pool_shows_its_sizes(table):
    status = {"slots": 3, "on": 1, "off": 2, "target": 0, "health": "healthy", "lastScaleAction": "1 -> 0"}
    (row,) = table("groups", {"kind": "Group", "metadata": {"name": "rack"}, "spec": {}, "status": status})
    assert row.pop("Age")
    assert row == {
        "Name": "rack",
        "Slots": 3,
        "On": 1,
        "Off": 2,
        "Target": 0,
        "Health": "healthy",
        "Last-Action": "1 -> 0",
    }
