"""From a slot's MinimalPodSpec to a Job: the only shape in which a power command leaves this program.

A lifecycle Job runs one restricted container, once, never on a machine of a pool (it must not depend on what it
controls), and starts suspended: only `release` lets it run. Source: model sections 6, 13.7, 13.14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_autoscaler.claim.names import job_name, label_value, slot_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.meta import JsonObject
    from homelab_api.v2alpha1 import MinimalPodSpec, Node, NodeClaim

_USER: Final = 65532
_CONTAINER: Final = "power"
_NAMED_NODES: Final = 256
_CONTROL_PLANE_TAINTS: Final = tuple(
    {"key": key, "operator": "Exists", "effect": effect}
    for key in names.CONTROL_PLANE_LABELS
    for effect in ("NoSchedule", "NoExecute")
)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the installation decides about lifecycle Jobs.

    Attributes:
        service_account: used when a slot names none; it has no rights and its token is not mounted.
        priority_class: so that a power command is not starved by the load it is to relieve; "" for the default.
    """

    service_account: str = "homelab-autoscaler-job"
    priority_class: str = ""


def startup_job_name(claim_name: str, claim_uid: str) -> str:
    """`<claim>-startup`: one per claim, so that a repeat finds the first try."""
    return job_name(claim_name, "startup", claim_uid)


def shutdown_job_name(slot: Node, sequence: int) -> str:
    """`<slot>-shutdown-<seq>`: one per shutdown that took the lock."""
    return job_name(slot.name, f"shutdown-{sequence}", slot.uid)


def build_job(  # noqa: PLR0917 - every part of a Job's identity is given by the caller
    name: str,
    kind: str,
    slot: Node,
    claim: NodeClaim | None,
    pod: MinimalPodSpec,
    options: JobOptions,
    pool_nodes: Sequence[str] = (),
) -> JsonObject:
    """The Job object to create, suspended.

    Args:
        name: deterministic name of the operation.
        kind: `startup`, `shutdown` or `reclaim`.
        slot: the slot; second owner, or the controller owner when there is no claim.
        claim: the claim that asks for the operation; controller owner.
        pod: what the owner of the machine declared.
        options: of the installation.
        pool_nodes: names of the nodes of pools. Our group label keeps Jobs away from them, but a node that has just
            registered does not carry it yet.
    """
    labels = {
        **slot_labels(slot),
        names.LABEL_JOB_TYPE: kind,
        **({names.LABEL_NODECLAIM: label_value(claim.name, claim.uid)} if claim else {}),
    }
    owners = (
        [claim.owner_reference(controller=True), slot.owner_reference()]
        if claim
        else [slot.owner_reference(controller=True)]
    )
    return {
        "metadata": {
            "name": name,
            "namespace": slot.namespace,
            "labels": labels,
            "ownerReferences": [reference.to_json() for reference in owners],
        },
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "activeDeadlineSeconds": pod.timeout_seconds,
            "ttlSecondsAfterFinished": pod.ttl_seconds_after_finished,
            "template": {
                "metadata": {"labels": labels, "annotations": {names.ANNOTATION_SAFE_TO_EVICT: "false"}},
                "spec": {
                    **_pod_spec(name, kind, slot, claim, pod, options),
                    "affinity": _away_from([slot.spec.kubernetes_node_name, *pool_nodes]),
                },
            },
        },
    }


def _pod_spec(  # noqa: PLR0917 - see build_job
    name: str, kind: str, slot: Node, claim: NodeClaim | None, pod: MinimalPodSpec, options: JobOptions
) -> JsonObject:
    context = {
        "HOMELAB_SLOT": slot.name,
        "HOMELAB_NODE": slot.spec.kubernetes_node_name,
        "HOMELAB_OPERATION": kind,
        "HOMELAB_CLAIM": claim.name if claim else "",
        "JOB_NAME": name,
    }
    container: JsonObject = {
        "name": _CONTAINER,
        "image": pod.image,
        "env": [entry.to_json() for entry in pod.env if entry.name not in context]
        + [{"name": key, "value": value} for key, value in context.items()],
        "volumeMounts": [
            {"name": volume.name, "mountPath": volume.mount_path, "readOnly": True} for volume in pod.volumes
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if pod.command:
        container["command"] = pod.command
    if pod.args:
        container["args"] = pod.args
    if pod.resources:
        container["resources"] = pod.resources
    spec: JsonObject = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "serviceAccountName": pod.service_account or options.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [_volume(volume.name, volume.secret_name, volume.config_map_name) for volume in pod.volumes],
        "nodeSelector": pod.node_selector,
        "tolerations": [*_CONTROL_PLANE_TAINTS, *pod.tolerations],
    }
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    return spec


def _away_from(node_names: Sequence[str]) -> JsonObject:
    """Neither a node with our group label nor one of these; the first ones are kept if there are too many to list."""
    hosts = sorted(dict.fromkeys(node_names[:_NAMED_NODES]))
    requirements = [
        {"key": names.LABEL_GROUP, "operator": "DoesNotExist"},
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": hosts},
    ]
    terms = [{"matchExpressions": requirements}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _volume(name: str, secret: str | None, config_map: str | None) -> JsonObject:
    source = {"secret": {"secretName": secret}} if secret else {"configMap": {"name": config_map}}
    return {"name": name, **source}
