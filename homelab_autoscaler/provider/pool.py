"""Questions to the pool: its groups, the group of a node, and which claim a node or an instance id means.

Source: the contract's provider-id rules (4.2) and what it says on NodeGroupForNode (3, 4.6, 4.7, 4.9); model section 9.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.v2alpha1 import ClaimPhase, PowerState
from homelab_autoscaler.claim.names import read_placeholder
from homelab_autoscaler.phase import owning_claim, power
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.index import Key, being_deleted_by_autoscaler, key_of
from homelab_autoscaler.provider.view import GroupView, boot_failed, build_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from homelab_api.core import CoreNode
    from homelab_api.v2alpha1 import Group, Node, NodeClaim
    from homelab_autoscaler.provider.index import PoolIndex
    from homelab_autoscaler.provider.offer import Gate
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.settings import Settings

_REMEMBERED: Final = 4096
"""Instance ids of machines gone by that are still recognised, so that a late request for one is no error."""
CREATE_ERROR: Final = "create-error"


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node as the autoscaler names it: a real one, or an instance without a node (name and id are the same)."""

    name: str
    provider_id: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def fake(self) -> bool:
        """Whether it stands for an instance and not for a node object."""
        return self.name == self.provider_id or names.ANNOTATION_FAKE_NODE_REASON in self.annotations

    @property
    def fake_reason(self) -> str:
        """`unregistered`, `create-error` or ""."""
        return self.annotations.get(names.ANNOTATION_FAKE_NODE_REASON, "")

    def __str__(self) -> str:
        return f"instance {self.provider_id or self.name}" if self.fake else f"node {self.name} ({self.provider_id})"


@dataclass(frozen=True, slots=True)
class Meant:
    """What a request to delete a node comes down to.

    Attributes:
        claim: the claim to end (live), to acknowledge (failed), or None: nothing to do.
        why: for the log, what was found.
    """

    claim: NodeClaim | None
    why: str


class Pool:
    """Answers from the index; no request is made here.

    Args:
        index: what is known.
        clock: for conditions that end by time.
        settings: for those times.
        namespace: the one pool namespace (ids are group names), or None for all (ids are `<namespace>/<name>`).
        gates: further conditions on offering a slot.
    """

    def __init__(
        self, index: PoolIndex, clock: Clock, settings: Settings, namespace: str | None, gates: Sequence[Gate] = ()
    ) -> None:
        self.index = index
        self.namespace = namespace
        self._clock = clock
        self._settings = settings
        self._gates = tuple(gates)
        self._views: dict[Key, GroupView] = {}
        self._remembered: OrderedDict[str, Key] = OrderedDict()

    def group_id(self, group: Key) -> str:
        """How the autoscaler names the group."""
        return group.name if self.namespace is not None else f"{group.namespace}/{group.name}"

    def group_key(self, group_id: str) -> Key:
        """The group that an id names. It need not exist."""
        if self.namespace is not None:
            return Key(self.namespace, group_id)
        namespace, _, name = group_id.partition("/")
        return Key(namespace, name)

    def views(self) -> list[GroupView]:
        """Every group, by id. One that is being deleted stays as long as it has instances to account for."""
        with self.index.lock:
            views = [self._view(group) for _, group in sorted(self.index.groups.objects.items())]
        return [view for view in views if not view.group.marked or view.instances]

    def view(self, group_id: str, *, fresh: bool = False) -> GroupView:
        """One group's answers.

        Args:
            group_id: as the autoscaler names it.
            fresh: judge anew what ends by time alone.

        Raises:
            CallError: NOT_FOUND.
        """
        with self.index.lock:
            group = self.index.groups.objects.get(self.group_key(group_id))
            if group is None:
                raise CallError(Cause.NOT_FOUND, f'there is no group "{group_id}" in this pool')
            return self._view(group, fresh=fresh)

    def refresh(self) -> None:
        """Judge anew, for every group, what ends by time alone."""
        with self.index.lock:
            now = self._clock.now()
            for view in list(self._views.values()):
                if self._gates or (view.valid_until is not None and now >= view.valid_until):
                    self._views.pop(view.key, None)

    def group_of(self, ref: NodeRef) -> GroupView | None:
        """The group that answers for a node or instance; None if it is not (or not now) the autoscaler's business.

        A machine that its owner has, or that nobody wants and that is on its way off, is not; but a node that the
        autoscaler is deleting keeps its group until it is gone, since older releases crash when that changes.
        """
        with self.index.lock:
            slot = self._slot_of_instance(ref) if ref.fake else self._slot_of_node(ref.name)
            if slot is None or (not ref.fake and not self._counts(slot)):
                return None
            group = self.index.groups.objects.get(Key(slot.namespace, slot.group))
            return self._view(group) if group is not None else None

    def meant_by(self, view: GroupView, ref: NodeRef) -> Meant:
        """Which claim a request to delete the node or instance is about.

        Raises:
            CallError: it belongs to another group, or it was never ours.
        """
        with self.index.lock:
            return self._meant_instance(view, ref) if ref.fake else self._meant_node(view, ref)

    def registered(self, claim: NodeClaim) -> bool:
        """Whether the claim's machine has a node of its own: one that is Ready, or that is not older than the claim.

        An older node that is not Ready is what an earlier boot left behind.
        """
        with self.index.lock:
            slot = self.index.slots.objects.get(Key(claim.namespace, claim.slot_name))
            name = claim.status.node_name or (slot.spec.kubernetes_node_name if slot else "")
            return claim.phase is ClaimPhase.READY or has_own_node(claim, self.index.node(name))

    # --- inside; the lock is held -------------------------------------------------------------------------------

    def _view(self, group: Group, *, fresh: bool = False) -> GroupView:
        key = key_of(group)
        view = self._views.get(key)
        if fresh or view is None or view.revision != self.index.revision(key):
            view = build_view(
                self.index,
                group,
                self.group_id(key),
                now=self._clock.now(),
                settings=self._settings,
                gates=self._gates,
            )
            self._views[key] = view
            for instance in view.instances:
                self._remember(instance.id, key_of(instance.slot))
        return view

    def _remember(self, instance_id: str, slot: Key) -> None:
        self._remembered[instance_id] = slot
        self._remembered.move_to_end(instance_id)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def _slot_of_node(self, name: str) -> Node | None:
        slots = self.index.slots_of_node(name)
        return next((slot for slot in slots if self._owner(slot) is not None), slots[0] if slots else None)

    def _slot_of_instance(self, ref: NodeRef) -> Node | None:
        instance_id = ref.provider_id or ref.name
        placeholder = read_placeholder(instance_id)
        if placeholder is not None:
            return self.index.slots.objects.get(Key(placeholder.namespace, placeholder.slot))
        for node in self.index.nodes.by("provider-id", instance_id):
            return self._slot_of_node(node.name)
        remembered = self._remembered.get(instance_id)
        return self.index.slots.objects.get(remembered) if remembered else None

    def _owner(self, slot: Node) -> NodeClaim | None:
        return owning_claim(self.index.claims_of(key_of(slot)))

    def _counts(self, slot: Node) -> bool:
        """Whether the slot's node is the autoscaler's business."""
        node = self.index.node(slot.spec.kubernetes_node_name)
        owner = self._owner(slot)
        if owner is not None and owner.live and not self.index.held(key_of(slot)):
            return True
        if not being_deleted_by_autoscaler(node):
            return False
        group = self.index.groups.objects.get(Key(slot.namespace, slot.group))
        kept = group is not None and not group.spec.delete_node_objects
        return not (kept and power(node) is PowerState.OFF)

    def _meant_instance(self, view: GroupView, ref: NodeRef) -> Meant:
        instance_id = ref.provider_id or ref.name
        placeholder = read_placeholder(instance_id)
        if placeholder is not None and self._inside(placeholder.namespace):
            slot = self.index.slots.objects.get(Key(placeholder.namespace, placeholder.slot))
            if slot is not None:
                self._check_group(view, slot, ref)
            claims = self.index.claims_of(Key(placeholder.namespace, placeholder.slot))
            claim = next((claim for claim in claims if claim.uid == placeholder.claim_uid), None)
            if claim is not None and (claim.live or boot_failed(claim)):
                return Meant(claim, "it is the claim's own id")
            if ref.fake_reason == CREATE_ERROR or instance_id not in view.by_id:
                return Meant(None, "its claim has ended")
        if instance_id in view.by_id:
            return Meant(view.by_id[instance_id].claim, "the claim answers with this id")
        slot = self._slot_of_instance(ref)
        if slot is None:
            raise CallError(Cause.NOT_FOUND, f'group "{view.id}": {ref} is none of this pool')
        self._check_group(view, slot, ref)
        return Meant(None, "no claim answers with this id any more")

    def _meant_node(self, view: GroupView, ref: NodeRef) -> Meant:
        slot = self._slot_of_node(ref.name)
        if slot is None:
            raise CallError(Cause.NOT_FOUND, f'group "{view.id}": {ref} is none of this pool')
        self._check_group(view, slot, ref)
        owner = self._owner(slot)
        if self.index.held(key_of(slot)):
            return Meant(None, "its owner has the machine")
        if owner is None or not owner.live:
            return Meant(None, "no claim wants its machine")
        placeholder = read_placeholder(ref.provider_id)
        if (
            placeholder is not None
            and placeholder.claim_uid != owner.uid
            and not (owner.phase is ClaimPhase.READY or has_own_node(owner, self.index.node(ref.name)))
        ):
            return Meant(None, "the node is what an earlier boot left behind")
        return Meant(owner, "its claim owns the node")

    def _inside(self, namespace: str) -> bool:
        return self.namespace is None or namespace == self.namespace

    def _check_group(self, view: GroupView, slot: Node, ref: NodeRef) -> None:
        group = Key(slot.namespace, slot.group)
        if group != view.key:
            where = f'group "{self.group_id(group)}"' if slot.group else "no group"
            raise CallError(
                Cause.INVALID_ARGUMENT, f'group "{view.id}": {ref} is slot "{slot.name}", which belongs to {where}'
            )


def has_own_node(claim: NodeClaim, node: CoreNode | None) -> bool:
    """Whether the node was registered by this claim's boot (or found running by it), and is not an older leftover."""
    if node is None:
        return False
    since, created = claim.metadata.creation_timestamp, node.metadata.creation_timestamp
    return power(node) is PowerState.ON or since is None or created is None or created >= since
