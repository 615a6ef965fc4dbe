"""Which nodes are not needed. Pure."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler.picture import SCALE_DOWN_DISABLED
from homelab_autoscaler.sandbox.autoscaler.scale_up import place
from homelab_autoscaler.sandbox.scheduling.fit import NodeState, pod_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.cloud import GroupOptions

_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_MIRROR: Final = "kubernetes.io/config.mirror"


def residents(node: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Pods on the node that must find another: not finished, of no DaemonSet, not static."""
    return [
        pod
        for pod in pods
        if objects.spec(pod).get("nodeName") == objects.name(node)
        and not objects.is_finished_pod(pod)
        and not objects.is_deleting(pod)
        and not _stays(pod)
    ]


def utilization(node: JsonObject, pods: Sequence[JsonObject], *, with_daemon_sets: bool) -> float:
    """The larger of the requested shares of cpu and memory."""
    own = [
        pod
        for pod in pods
        if objects.spec(pod).get("nodeName") == objects.name(node)
        and not objects.is_finished_pod(pod)
        and (with_daemon_sets or not _stays(pod))
    ]
    allocatable = NodeState(node).allocatable
    shares = [Fraction(0)]
    for name in ("cpu", "memory"):
        total = allocatable.get(name, Fraction(0))
        if total > 0:
            used = sum((pod_requests(pod).get(name, Fraction(0)) for pod in own), Fraction(0))
            shares.append(used / total)
    return float(max(shares))


def keeps_its_node(pod: JsonObject, *, skip_system_pods: bool) -> bool:
    """Whether the pod must not be moved: it says so, nobody would make it again, or it is of the system."""
    said = objects.annotations(pod).get(_SAFE)
    if said is not None:
        return said != "true"
    if objects.controller_of(pod) is None:
        return True
    return skip_system_pods and objects.namespace(pod) == "kube-system"


def removable(
    node: JsonObject,
    pods: Sequence[JsonObject],
    others: Sequence[NodeState],
    options: GroupOptions,
    *,
    ready: bool,
    skip_system_pods: bool,
) -> bool:
    """Whether the node is of little use and its pods fit elsewhere; an unready one always is of little use."""
    if objects.annotations(node).get(SCALE_DOWN_DISABLED) == "true":
        return False
    used = utilization(node, pods, with_daemon_sets=not options.ignore_daemon_sets)
    if ready and used >= options.utilization_threshold and used > 0:
        return False
    moving = residents(node, pods)
    if any(keeps_its_node(pod, skip_system_pods=skip_system_pods) for pod in moving):
        return False
    return not place(moving, list(others))


def _stays(pod: JsonObject) -> bool:
    """DaemonSet and static pods go with their node."""
    owner = objects.controller_of(pod)
    return _MIRROR in objects.annotations(pod) or (owner is not None and owner.get("kind") == "DaemonSet")
