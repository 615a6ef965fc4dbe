"""What the author of a slot can reach through it: kind rbac-security."""

import pytest

from homelab_api.core import Job
from homelab_api.v2alpha1 import Node

ESCAPES = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "initContainers": [{"name": "i", "image": "evil"}],
    "containers": [{"name": "c", "image": "evil"}],
    "securityContext": {"privileged": True, "runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}},
    "automountServiceAccountToken": True,
    "nodeName": "node-m",
    "runtimeClassName": "unconfined",
}


@pytest.mark.parametrize("field", ESCAPES)
@pytest.mark.parametrize("pod", ["startupPodSpec", "shutdownPodSpec", "reclaimPodSpec"])
def test_a_field_that_would_lead_out_of_the_sandbox_is_not_kept(cluster, pod, field):
    body = cluster.slot_body("m")
    body["spec"].setdefault(pod, {"image": "power", "command": ["on", "m"]})[field] = ESCAPES[field]
    cluster.client.create_json(Node, body, "lab")
    assert field not in cluster.raw("infra.homecluster.dev", "nodes", "m")["spec"][pod]


def test_a_volume_can_be_a_secret_or_a_config_map_and_nothing_of_the_host(cluster):
    body = cluster.slot_body("m")
    volume = {"name": "v", "mountPath": "/v", "secretName": "bmc", "hostPath": {"path": "/"}, "csi": {"driver": "x"}}
    body["spec"]["startupPodSpec"]["volumes"] = [volume]
    cluster.client.create_json(Node, body, "lab")
    (kept,) = cluster.raw("infra.homecluster.dev", "nodes", "m")["spec"]["startupPodSpec"]["volumes"]
    assert kept == {"name": "v", "mountPath": "/v", "secretName": "bmc"}


def test_nothing_that_we_create_blocks_the_deletion_of_its_owner(cluster):
    """Blocking references need a right on the owner's finalizers wherever the admission plugin for them is on."""
    cluster.machine()
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    second = cluster.ready()
    assert len(cluster.jobs()) >= 2
    for made in [second, *cluster.client.list(Job, "lab").items]:
        assert made.metadata.owner_references
        assert not [owner for owner in made.metadata.owner_references if owner.block_owner_deletion]
