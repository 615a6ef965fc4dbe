"""What is left out of cached objects."""

from homelab_api.core import CoreNode
from homelab_autoscaler.controllers.trim import trimmed_node

NODE = {
    "kind": "Node",
    "metadata": {"name": "w1", "uid": "u", "resourceVersion": "7", "labels": {"rack": "left"}},
    "spec": {"providerID": "metal://w1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "8"},
        "allocatable": {"cpu": "7"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    },
}
REPORT = {
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    "images": [{"names": [f"registry/image-{number}"], "sizeBytes": 1} for number in range(50)],
    "nodeInfo": {"kubeletVersion": "v1.36.2"},
}


def test_a_node_is_kept_without_the_report_that_nobody_reads():
    reported = {**NODE, "status": {**NODE["status"], **REPORT}}
    assert trimmed_node(reported) == NODE
    assert reported["status"].keys() >= REPORT.keys(), "the object that came is not touched"
    assert CoreNode.from_json(trimmed_node(reported)) == CoreNode.from_json(reported)


def test_nodes_that_say_less_stay_what_they_are():
    for node in (NODE, {"metadata": {"name": "w1"}}, {"metadata": {"name": "w1"}, "status": None}):
        assert trimmed_node(node) is node
