"""Nodes and groups as one loop sees them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler.cloud import provider_id
from homelab_autoscaler.sandbox.scheduling.fit import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.cloud import GroupOptions, InstanceInfo, NodeGroup

TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_STARTUP_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_BAD_CONDITIONS: Final = ("DiskPressure", "NetworkUnavailable")
_NOT_READY_TAINTS: Final = frozenset(
    f"node.kubernetes.io/{name}" for name in ("not-ready", "disk-pressure", "network-unavailable")
)
_STATUS_PREFIX: Final = "status-taint.cluster-autoscaler.kubernetes.io/"
_STRIPPED_PREFIXES: Final = (
    *_STARTUP_PREFIXES,
    _STATUS_PREFIX,
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
)


@dataclass(slots=True)
class GroupPicture:
    """One group.

    Attributes:
        group: limits.
        target: what the provider says should exist.
        options: of the group.
        ready, starting, unready, deleted: its registered nodes by condition; `deleted` carry the taint.
        unregistered: instances without a node that are expected to register.
        overdue: those of them that had more than the provision time.
        errors: instances with a create error.
        upcoming: machines on their way, as far as the autoscaler believes in them.
    """

    group: NodeGroup
    target: int
    options: GroupOptions
    ready: list[JsonObject] = field(default_factory=list)
    starting: list[JsonObject] = field(default_factory=list)
    unready: list[JsonObject] = field(default_factory=list)
    deleted: list[JsonObject] = field(default_factory=list)
    suspended: list[JsonObject] = field(default_factory=list)
    unregistered: list[InstanceInfo] = field(default_factory=list)
    overdue: list[InstanceInfo] = field(default_factory=list)
    errors: list[InstanceInfo] = field(default_factory=list)
    upcoming: int = 0

    @property
    def id(self) -> str:
        """The group's id."""
        return self.group.id

    @property
    def registered(self) -> list[JsonObject]:
        """Its nodes that are not being deleted."""
        return [*self.ready, *self.starting, *self.unready, *self.suspended]

    def missing(self) -> int:
        """Machines of the target that no node accounts for, as the upcoming count sees it."""
        return self.target - len(self.ready) - len(self.unready) - len(self.suspended) - len(self.overdue)


def is_ready(node: JsonObject, startup_taints: Iterable[str], gpu_label: str = "") -> bool:
    """Whether the node counts as ready: its conditions, no taint that says otherwise, its GPU if it says it has one."""
    if not objects.condition_is(node, "Ready") or any(objects.condition_is(node, kind) for kind in _BAD_CONDITIONS):
        return False
    keys = [str(taint.get("key")) for taint in objects.spec(node).get("taints") or []]
    # A node that has just turned Ready keeps this taint for a moment; until then no pod fits on it.
    if any(key in _NOT_READY_TAINTS or key in startup_taints or key.startswith(_STARTUP_PREFIXES) for key in keys):
        return False
    if gpu_label and gpu_label in objects.labels(node):
        allocatable = objects.status(node).get("allocatable") or {}
        return any("gpu" in name and str(amount) != "0" for name, amount in allocatable.items())
    return True


def has_taint(node: JsonObject, key: str) -> bool:
    """Whether the node carries a taint of that key."""
    return any(taint.get("key") == key for taint in objects.spec(node).get("taints") or [])


def age(node: JsonObject, now: datetime) -> float:
    """Seconds since the node was created."""
    created = objects.parse_time(objects.metadata(node).get("creationTimestamp"))
    return (now - created).total_seconds() if created else 0.0


def stable_for(node: JsonObject, now: datetime) -> float:
    """Seconds since the node's Ready condition last changed."""
    ready = objects.condition(node, "Ready") or {}
    since = objects.parse_time(ready.get("lastTransitionTime"))
    return (now - since).total_seconds() if since else age(node, now)


def classify(picture: GroupPicture, node: JsonObject, *, ready: bool, now: datetime) -> None:
    """Sort a registered node into the picture."""
    if has_taint(node, TO_BE_DELETED):
        picture.deleted.append(node)
    elif ready:
        picture.ready.append(node)
    elif objects.condition_is(node, "Suspended"):
        picture.suspended.append(node)
    elif age(node, now) < picture.options.startup_time:
        picture.starting.append(node)
    else:
        picture.unready.append(node)


def unregistered(instances: Iterable[InstanceInfo], nodes: Iterable[JsonObject]) -> list[InstanceInfo]:
    """Instances that should have a node and whose id is no node's providerID, letter by letter."""
    known = {provider_id(node) for node in nodes}
    return [i for i in instances if not (i.deleting or i.error or i.odd or i.id in known)]


def as_template(node: JsonObject, group: str) -> JsonObject:
    """A node as others of its group will be: renamed, schedulable, without taints that pass."""
    taints = [taint for taint in objects.spec(node).get("taints") or [] if not _passes(str(taint.get("key")))]
    name = f"template-node-for-{group}"
    labels = {**objects.labels(node), "kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": objects.status(node),
    }


def template_states(template: JsonObject, count: int, first: int = 0) -> list[NodeState]:
    """Placeholders for machines that are not there yet."""
    states = []
    for number in range(first, first + count):
        metadata = {**template["metadata"], "name": f"{objects.name(template)}-{number}"}
        states.append(NodeState({**template, "metadata": metadata}))
    return states


def cluster_is_healthy(ready: Mapping[str, bool], ok_unready: int, percentage: float) -> bool:
    """Whether few enough nodes of the whole cluster, managed or not, are unready."""
    unready = sum(not value for value in ready.values())
    return unready <= ok_unready or unready <= len(ready) * percentage / 100


def _passes(key: str) -> bool:
    return key in {TO_BE_DELETED, CANDIDATE} or key.startswith(_STRIPPED_PREFIXES)
