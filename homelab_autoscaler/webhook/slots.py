"""Admission of slots (Node) and pools (Group)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import Group, Node
from homelab_autoscaler.runtime.webhook import AdmissionRequest, Decision, FieldCause, allow
from homelab_autoscaler.webhook.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from homelab_api.v2alpha1 import NodeClaim
    from homelab_autoscaler.pod_policy import PodPolicy


class SlotAdmission:
    """Decides about slots.

    Args:
        group_exists: whether a namespace has a Group of that name.
        slots_of_node: every slot that names a Kubernetes node.
        claims_of: every claim that names the slot of a namespace and name.
        policy: what pods of slots may name.
    """

    def __init__(
        self,
        group_exists: Callable[[str, str], bool],
        slots_of_node: Callable[[str], Iterable[Node]],
        claims_of: Callable[[str, str], Iterable[NodeClaim]],
        policy: PodPolicy,
    ) -> None:
        self._group_exists = group_exists
        self._slots_of_node = slots_of_node
        self._claims_of = claims_of
        self._policy = policy

    def __call__(self, request: AdmissionRequest) -> Decision:
        """One review."""
        if request.operation not in {"CREATE", "UPDATE"} or request.subresource:
            return allow()
        slot = request.decode(Node)
        if slot.marked:
            return allow()
        before = request.decode_old(Node) if request.operation == "UPDATE" else None
        causes = [*self._node_name_causes(slot, before), *self._pod_causes(slot, before)]
        warnings = list(self._warnings(slot))
        if causes:
            return refuse(causes, warnings)
        return allow(*warnings)

    def _node_name_causes(self, slot: Node, before: Node | None) -> Iterable[FieldCause]:
        name = slot.spec.kubernetes_node_name
        path = "spec.kubernetesNodeName"
        if before is not None and before.spec.kubernetes_node_name == name:
            return
        if before is not None:
            live = next((claim for claim in self._claims_of(slot.namespace, slot.name) if claim.live), None)
            if live is not None:
                yield FieldCause(
                    path,
                    f'Forbidden: cannot change while NodeClaim "{live.name}" is live: end the claim first',
                    "FieldValueForbidden",
                )
        other = next(
            (o for o in self._slots_of_node(name) if (o.namespace, o.name) != (slot.namespace, slot.name)), None
        )
        if other is not None:
            yield FieldCause(
                path,
                f'Duplicate value: "{name}" belongs to slot {other.namespace}/{other.name}: one slot per node',
                "FieldValueDuplicate",
            )

    def _pod_causes(self, slot: Node, before: Node | None) -> Iterable[FieldCause]:
        """Only what this write brings in: a slot that was there before a policy must stay editable."""
        known = set(self._policy.violations(before)) if before is not None else set()
        for path, text in self._policy.violations(slot):
            if (path, text) not in known:
                yield FieldCause(path, f"Forbidden: {text}", "FieldValueForbidden")

    def _warnings(self, slot: Node) -> Iterable[str]:
        if not slot.group:
            yield 'label "infra.homecluster.dev/group" is not set: the slot belongs to no pool until it is'
        elif not self._group_exists(slot.namespace, slot.group):
            yield f'Group "{slot.group}" is not in namespace "{slot.namespace}" yet: the slot waits for it'


class GroupAdmission:
    """Warns about Groups; there is nothing between a Group and other objects that must be refused.

    Args:
        slots_of: every slot of the Group of a namespace and name.
    """

    def __init__(self, slots_of: Callable[[str, str], Iterable[Node]]) -> None:
        self._slots_of = slots_of

    def __call__(self, request: AdmissionRequest) -> Decision:
        """One review."""
        if request.operation not in {"CREATE", "UPDATE"} or request.subresource:
            return allow()
        group = request.decode(Group)
        slots = len(list(self._slots_of(group.namespace, group.name)))
        if slots and group.spec.min_size > slots:
            return allow(f"spec.minSize is {group.spec.min_size}, but the pool has {slots} slots: it cannot be reached")
        return allow()
