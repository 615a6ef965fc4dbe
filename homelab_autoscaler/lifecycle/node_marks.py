"""Every mark that we set on or take off a corev1 Node. Only our own marks are ever removed (guarantee S7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.core import CoreNode, Taint
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Call
from homelab_autoscaler.phase import cordon_is_ours
from homelab_autoscaler.runtime import MergePatch, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_api.v2alpha1 import Group, Node, NodeClaim
    from homelab_autoscaler.runtime import Client

_AUTOSCALER_TAINTS: Final = frozenset({names.TAINT_TO_BE_DELETED, names.TAINT_DELETION_CANDIDATE})


def is_control_plane(node: CoreNode) -> bool:
    """Whether the node carries a control-plane role: never powered off, reclaimed or deleted unless allowed."""
    return any(label in node.metadata.labels for label in names.CONTROL_PLANE_LABELS)


def drain_started_at(node: CoreNode) -> datetime | None:
    """Since when we drain the node: the time of our taint."""
    taint = next((taint for taint in node.spec.taints if taint.key == names.TAINT_DRAINING), None)
    return taint.time_added if taint else None


def identity_patch(node: CoreNode, slot: Node, group: Group | None, provider_id: str) -> JsonObject:
    """What a node needs to be recognised: providerID if it has none, group and node labels. {} if all is there."""
    labels = _missing(node.metadata.labels, _labels(slot, group))
    patch: JsonObject = {"metadata": {"labels": labels}} if labels else {}
    if not node.spec.provider_id:
        patch["spec"] = {"providerID": provider_id}
    return patch


def ready_patch(node: CoreNode, slot: Node, group: Group, claim: NodeClaim) -> JsonObject:
    """What turns a booted node into capacity of its pool. {} if it is all of that already.

    Our cordon and our draining taint go, a cordon of somebody else stays. Declared labels and taints come, the
    autoscaler's deletion taints of an earlier life and the slot's `taintsToRemove` go.
    """
    patch: JsonObject = {}
    labels = _missing(node.metadata.labels, _labels(slot, group))
    annotations: dict[str, str | None] = {}
    if claim.spec.call in {Call.MANUAL, Call.SCHEDULE}:
        annotations.update(_missing(node.metadata.annotations, {names.ANNOTATION_SCALE_DOWN_DISABLED: "true"}))
    spec: JsonObject = {}
    if cordon_is_ours(node):
        spec["unschedulable"] = None
    if names.ANNOTATION_CORDONED_BY in node.metadata.annotations:
        annotations[names.ANNOTATION_CORDONED_BY] = None
    taints = _ready_taints(node, slot, group)
    if taints != node.spec.taints:
        spec["taints"] = [taint.to_json() for taint in taints]
    if labels or annotations:
        patch["metadata"] = {
            **({"labels": labels} if labels else {}),
            **({"annotations": annotations} if annotations else {}),
        }
    if spec:
        patch["spec"] = spec
    return patch


def drain_patch(node: CoreNode, now: datetime) -> JsonObject:
    """Cordon (ours only if the node was schedulable) and our draining taint; {} if both are there.

    A taint with a time ahead of now is written anew: the drain's limit counts from it, and would never come.
    """
    spec: JsonObject = {}
    patch: JsonObject = {}
    if not node.spec.unschedulable:
        spec["unschedulable"] = True
        patch["metadata"] = {"annotations": {names.ANNOTATION_CORDONED_BY: "drain"}}
    started = drain_started_at(node)
    if started is None or started > now:
        others = [taint for taint in node.spec.taints if taint.key != names.TAINT_DRAINING]
        ours = {
            "key": names.TAINT_DRAINING,
            "effect": "NoSchedule",
            "timeAdded": format_time(now.replace(microsecond=0)),
        }
        spec["taints"] = [*(taint.to_json() for taint in others), ours]
    return {**patch, "spec": spec} if spec else {}


def undrain_patch(node: CoreNode) -> JsonObject:
    """Take back what `drain_patch` did; {} if nothing of it is there."""
    patch: JsonObject = {}
    spec: JsonObject = {}
    if cordon_is_ours(node):
        spec["unschedulable"] = None
    if names.ANNOTATION_CORDONED_BY in node.metadata.annotations:
        patch["metadata"] = {"annotations": {names.ANNOTATION_CORDONED_BY: None}}
    others = [taint for taint in node.spec.taints if taint.key != names.TAINT_DRAINING]
    if others != node.spec.taints:
        spec["taints"] = [taint.to_json() for taint in others]
    return {**patch, **({"spec": spec} if spec else {})}


class NodeMarks:
    """Writes marks, bound to the node as it was read: taints are one list, and other people write it too."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def apply(self, node: CoreNode, patch: JsonObject) -> CoreNode:
        """Apply one of the patches above; the node as it is when there is nothing to write.

        Raises:
            ConflictError: the node changed since it was read: read again, decide again.
        """
        if not patch:
            return node
        metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
        return self._client.patch(CoreNode, node.name, None, MergePatch({**patch, "metadata": metadata}))

    def forget(self, node: CoreNode | None, group: Group | None) -> None:
        """Delete the node object of a machine that is confirmed off, if the group wants that and the role allows it.

        A node that stays behind counts as unready for the autoscaler, and comes back old, tainted and cordoned.

        Raises:
            ConflictError: see `delete`.
        """
        if node is not None and group is not None and group.spec.delete_node_objects and not is_control_plane(node):
            self.delete(node)

    def delete(self, node: CoreNode) -> None:
        """Delete the node object of a machine that is off, as it was read and in no other state.

        A kubelet takes the old object over when its machine comes back, and does not make it again when it is
        deleted: the machine would stay on, and nothing would show it.

        Raises:
            ConflictError: the node changed since it was read, or another one has its name: its machine may be back.
        """
        try:
            self._client.delete(CoreNode, node.name, uid=node.uid, resource_version=node.metadata.resource_version)
        except NotFoundError:
            return


def _labels(slot: Node, group: Group | None) -> dict[str, str]:
    declared = {**(group.spec.node_labels if group else {}), **slot.spec.node_labels}
    return {**declared, names.LABEL_GROUP: slot.group, names.LABEL_NODE: slot.name}


def _missing(present: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _ready_taints(node: CoreNode, slot: Node, group: Group) -> list[Taint]:
    gone = _AUTOSCALER_TAINTS | {names.TAINT_DRAINING, names.TAINT_RETURNING}
    removed = {(taint.key, taint.effect) for taint in slot.spec.taints_to_remove}
    kept = [taint for taint in node.spec.taints if taint.key not in gone and (taint.key, taint.effect) not in removed]
    return _with(kept, [*group.spec.node_taints, *slot.spec.node_taints])


def _with(present: list[Taint], wanted: Iterable[Taint]) -> list[Taint]:
    result = list(present)
    for taint in wanted:
        if not any((own.key, own.effect, own.value) == (taint.key, taint.effect, taint.value) for own in result):
            result = [own for own in result if (own.key, own.effect) != (taint.key, taint.effect)] + [taint]
    return result
