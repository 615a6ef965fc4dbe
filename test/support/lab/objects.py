"""Object builders for tests of claims and lifecycle: the few fields that a test is about, sensible rest."""

from datetime import UTC, datetime, timedelta

from homelab_api import names
from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.lifecycle.pulse import Pulse
from homelab_autoscaler.lifecycle.scope import SlotScope

NOW = datetime(2026, 3, 4, 9, 38, 15, tzinfo=UTC)


def instant(seconds):
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


class Builders:
    now = NOW

    @staticmethod
    def at(seconds):
        return NOW + timedelta(seconds=seconds)

    @staticmethod
    def slot(name="worker-01", group="pool", **fields):
        return Node.from_json(
            {
                "metadata": {
                    "name": name,
                    "namespace": "lab",
                    "uid": f"uid-{name}",
                    "resourceVersion": "1",
                    "labels": {names.LABEL_GROUP: group},
                    "creationTimestamp": instant(-86400),
                    **fields.pop("metadata", {}),
                },
                "spec": {
                    "kubernetesNodeName": f"node-{name}",
                    "startupPodSpec": {"image": "power", "command": ["on"]},
                    "shutdownPodSpec": {"image": "power", "command": ["off"]},
                    **fields.pop("spec", {}),
                },
                **fields,
            }
        )

    @staticmethod
    def group(name="pool", **spec):
        return Group.from_json({"metadata": {"name": name, "namespace": "lab", "uid": "uid-pool"}, "spec": spec})

    @staticmethod
    def claim(
        name="worker-01-7f4b9c00",
        phase=None,
        *,
        slot="worker-01",
        marked=False,
        committed=False,
        created=-60,
        call="IncreaseSize",
        spec=None,
        annotations=None,
        **status,
    ):
        metadata = {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": instant(created),
            "finalizers": [names.FINALIZER_MACHINE] if committed else [],
            "annotations": annotations or {},
        }
        if marked:
            metadata["deletionTimestamp"] = instant(-1)
        return NodeClaim.from_json(
            {
                "metadata": metadata,
                "spec": {
                    "slotRef": {"name": slot},
                    "call": call,
                    "group": "pool",
                    "requestedAt": instant(created),
                    **(spec or {}),
                },
                "status": {"phase": phase, **status} if phase else status,
            }
        )

    @staticmethod
    def reclaim(slot="worker-01"):
        return NodeReclaim.from_json(
            {"metadata": {"name": slot, "namespace": "lab", "uid": "uid-r"}, "spec": {"slotRef": {"name": slot}}}
        )

    @staticmethod
    def node(ready="True", reason="KubeletReady", *, created=-3600, cordoned=False, taints=(), labels=None, **metadata):
        return CoreNode.from_json(
            {
                "metadata": {
                    "name": "node-worker-01",
                    "uid": "uid-node",
                    "resourceVersion": "3",
                    "creationTimestamp": instant(created),
                    "labels": labels or {},
                    **metadata,
                },
                "spec": {"unschedulable": cordoned, "taints": list(taints)},
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason}]},
            }
        )

    @staticmethod
    def job(kind="shutdown", end=None, *, owner="uid-worker-01-7f4b9c00", created=0, ended=0, suspended=False, name=""):
        conditions = [{"type": end, "status": "True", "lastTransitionTime": instant(ended)}] if end else []
        return Job.from_json(
            {
                "metadata": {
                    "name": name or f"worker-01-{kind}-1",
                    "namespace": "lab",
                    "uid": f"uid-{name or kind}",
                    "creationTimestamp": instant(created),
                    "labels": {names.LABEL_NODE: "worker-01", names.LABEL_JOB_TYPE: kind},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "NodeClaim", "name": "x", "uid": owner, "controller": True}
                    ],
                },
                "spec": {"suspend": suspended},
                "status": {"conditions": conditions},
            }
        )

    def scope(self, *claims, node=None, jobs=(), pulse=Pulse.UNKNOWN, reclaim=None, slot=None, group=None, at=0):
        return SlotScope(
            slot=slot or self.slot(),
            group=group or self.group(),
            claims=tuple(claims),
            reclaim=reclaim,
            node=node,
            jobs=tuple(jobs),
            pulse=pulse,
            now=self.at(at),
            off_settle=120,
        )
