"""What the provider knows of the pool, related and kept up to date object by object.

It is fed by watch events and, without waiting for those, by the results of the provider's own writes and uncached
reads. So an answer includes every write of an answered call before it (read-after-write), and costs no request.

Guarantee: what was put in by a read or a write is not undone by older watch events that arrive later. Non-guarantee:
writes of others show when their event arrives.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from homelab_api import names
from homelab_api.core import CoreNode, Job
from homelab_api.meta import KubeObject
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from homelab_api.meta import JsonObject

T = TypeVar("T", bound=KubeObject)


class Key(NamedTuple):
    """Identity by name: of a group, a slot, or any other object ("" as namespace of cluster-scoped ones)."""

    namespace: str
    name: str


def key_of(obj: KubeObject) -> Key:
    """The object's namespace and name."""
    return Key(obj.namespace, obj.name)


def _older(version: str, than: str) -> bool:
    """Whether one resourceVersion is older than another; False when they cannot be compared as numbers."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False


class _Store(Generic[T]):
    """Objects of one kind by name, found by relations too; knows which uids are gone for good."""

    def __init__(self, relations: dict[str, Callable[[T], Iterable[Hashable]]]) -> None:
        self.objects: dict[Key, T] = {}
        self.unconfirmed: dict[str, T] = {}
        self._relations = relations
        self._related: dict[str, dict[Hashable, set[Key]]] = {name: defaultdict(set) for name in relations}
        self._gone: set[str] = set()

    def put(self, obj: T, *, confirmed: bool) -> T | None:
        """Store it unless it is known to be old news; the replaced object, or None if nothing was stored."""
        if confirmed:
            self.unconfirmed.pop(obj.uid, None)
        if obj.uid in self._gone:
            return None
        key = key_of(obj)
        before = self.objects.get(key)
        if before is not None:
            versions = obj.metadata.resource_version, before.metadata.resource_version
            if versions[0] == versions[1] and before.marked == obj.marked:
                return None
            if _older(*versions):
                return None
            self._relate(before, key, add=False)
        if not confirmed:
            self.unconfirmed[obj.uid] = obj
        self.objects[key] = obj
        self._relate(obj, key, add=True)
        return before or obj

    def remove(self, obj: T, *, confirmed: bool) -> bool:
        """Forget this very object (by uid). Unless a watch said so, its late events are ignored from now on."""
        self.unconfirmed.pop(obj.uid, None)
        if confirmed:
            self._gone.discard(obj.uid)
        else:
            self._gone.add(obj.uid)
        key = key_of(obj)
        before = self.objects.get(key)
        if before is None or before.uid != obj.uid:
            return False
        del self.objects[key]
        self._relate(before, key, add=False)
        return True

    def by(self, relation: str, value: Hashable) -> Iterator[T]:
        """Objects related to the value, by name."""
        for key in sorted(self._related[relation].get(value, ())):
            yield self.objects[key]

    def values(self, relation: str) -> Iterable[Hashable]:
        """Every value that some object is related to."""
        return [value for value, keys in self._related[relation].items() if keys]

    def _relate(self, obj: T, key: Key, *, add: bool) -> None:
        for name, function in self._relations.items():
            for value in function(obj):
                if add:
                    self._related[name][value].add(key)
                    continue
                keys = self._related[name][value]
                keys.discard(key)
                if not keys:
                    del self._related[name][value]


def _slot_group(slot: Node) -> list[Key]:
    return [Key(slot.namespace, slot.group)] if slot.group else []


def _claim_slot(claim: NodeClaim) -> list[Key]:
    return [Key(claim.namespace, claim.slot_name)]


def _claim_node(claim: NodeClaim) -> list[str]:
    return [claim.status.node_name] if claim.status.node_name and claim.live else []


def _reclaim_slot(reclaim: NodeReclaim) -> list[Key]:
    return [Key(reclaim.namespace, reclaim.slot_name)]


def _job_slot(job: Job) -> list[Key]:
    owned = (Key(job.namespace, owner.name) for owner in job.metadata.owner_references if owner.kind == "Node")
    return list(dict.fromkeys(owned))


def _provider_id(node: CoreNode) -> list[str]:
    return [node.spec.provider_id] if node.spec.provider_id else []


class PoolIndex:
    """Groups, slots, claims, reclaims, Jobs and nodes, with a revision per group that moves when its answers may.

    Thread-safe. `lock` may be held by a reader around several questions that must see one state.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.groups: _Store[Group] = _Store({})
        self.slots: _Store[Node] = _Store({"group": _slot_group, "node": lambda slot: [slot.spec.kubernetes_node_name]})
        self.claims: _Store[NodeClaim] = _Store({"slot": _claim_slot, "node": _claim_node})
        self.reclaims: _Store[NodeReclaim] = _Store({"slot": _reclaim_slot})
        self.jobs: _Store[Job] = _Store({"slot": _job_slot})
        self.nodes: _Store[CoreNode] = _Store({"provider-id": _provider_id})
        self._revisions: defaultdict[Key, int] = defaultdict(int)

    def revision(self, group: Key) -> int:
        """Moves with every change that can change an answer about the group."""
        return self._revisions[group]

    # --- changes ------------------------------------------------------------------------------------------------

    def put(self, obj: KubeObject, *, confirmed: bool = True) -> None:
        """Take in an object as a watch (`confirmed`), a read or a write of ours has it."""
        with self.lock:
            store = self._store(obj)
            before = store.put(obj, confirmed=confirmed)
            if before is None or (isinstance(obj, CoreNode) and before is not obj and _same_to_us(before, obj)):
                return
            self._touch(before)
            self._touch(obj)

    def remove(self, obj: KubeObject, *, confirmed: bool = True) -> None:
        """Take out an object that is gone."""
        with self.lock:
            groups = self._groups_of(obj)
            if self._store(obj).remove(obj, confirmed=confirmed):
                for group in groups:
                    self._revisions[group] += 1

    def replace(self, kind: type[T], namespace: str | None, items: Iterable[T], resource_version: str) -> None:
        """Take in an uncached list: what it lacks and is not newer than it is gone."""
        with self.lock:
            listed = {item.uid for item in items}
            store = self._stores()[kind]
            for known in list(store.objects.values()):
                inside = namespace is None or known.namespace == namespace
                if inside and known.uid not in listed and not _older(resource_version, known.metadata.resource_version):
                    self.remove(known, confirmed=False)
            for item in items:
                self.put(item, confirmed=False)

    def known(self, kind: type[T], metadata: JsonObject) -> T | None:
        """The object of exactly that uid and resourceVersion, None if it is not held."""
        with self.lock:
            held: T | None = self._stores()[kind].objects.get(Key(metadata.get("namespace") or "", metadata["name"]))
        if held is None or (held.uid, held.metadata.resource_version) != (
            metadata.get("uid"),
            metadata.get("resourceVersion"),
        ):
            return None
        return held

    # --- questions ----------------------------------------------------------------------------------------------

    def slots_of(self, group: Key) -> list[Node]:
        """The slots whose label names the group, by name."""
        return list(self.slots.by("group", group))

    def claims_of(self, slot: Key) -> list[NodeClaim]:
        """Every claim that names the slot, ended ones too."""
        return list(self.claims.by("slot", slot))

    def held(self, slot: Key) -> bool:
        """Whether a NodeReclaim names the slot."""
        return any(True for _ in self.reclaims.by("slot", slot))

    def jobs_of(self, slot: Key) -> list[Job]:
        """The slot's lifecycle Jobs: those that have it as an owner."""
        return list(self.jobs.by("slot", slot))

    def node(self, name: str) -> CoreNode | None:
        """The corev1 Node of that name."""
        return self.nodes.objects.get(Key("", name)) if name else None

    def slots_of_node(self, node_name: str) -> list[Node]:
        """The slots that stand for a node: those whose live claim recorded it, then those configured with its name."""
        recorded = (self.slots.objects.get(Key(c.namespace, c.slot_name)) for c in self.claims.by("node", node_name))
        found = {key_of(slot): slot for slot in recorded if slot is not None}
        for slot in self.slots.by("node", node_name):
            found.setdefault(key_of(slot), slot)
        return list(found.values())

    # --- inside -------------------------------------------------------------------------------------------------

    def _stores(self) -> dict[type[KubeObject], _Store[Any]]:
        stores: dict[type[KubeObject], _Store[Any]] = {
            Group: self.groups,
            Node: self.slots,
            NodeClaim: self.claims,
            NodeReclaim: self.reclaims,
            Job: self.jobs,
            CoreNode: self.nodes,
        }
        return stores

    def _store(self, obj: KubeObject) -> _Store[Any]:
        return self._stores()[type(obj)]

    def _touch(self, obj: KubeObject) -> None:
        for group in self._groups_of(obj):
            self._revisions[group] += 1

    def _groups_of(self, obj: KubeObject) -> set[Key]:
        """The groups whose answers may depend on the object."""
        if isinstance(obj, Group):
            return {key_of(obj)}
        if isinstance(obj, Node):
            # Two slots of one node keep each other from being offered, wherever the other one is.
            rivals = self.slots.by("node", obj.spec.kubernetes_node_name)
            return {group for slot in (obj, *rivals) for group in _slot_group(slot)}
        if isinstance(obj, CoreNode):
            return {group for slot in self.slots_of_node(obj.name) for group in _slot_group(slot)}
        related: list[Key] = []
        if isinstance(obj, NodeClaim):
            related = _claim_slot(obj)
        elif isinstance(obj, NodeReclaim):
            related = _reclaim_slot(obj)
        elif isinstance(obj, Job):
            related = _job_slot(obj)
        slots = (self.slots.objects.get(key) for key in related)
        return {group for slot in slots if slot is not None for group in _slot_group(slot)}


def _same_to_us(before: KubeObject, after: KubeObject) -> bool:
    """Whether two states of a node differ in nothing that an answer depends on: heartbeats must cost nothing."""
    assert isinstance(before, CoreNode)
    assert isinstance(after, CoreNode)
    return (
        before.uid == after.uid
        and before.spec == after.spec
        and before.metadata.labels == after.metadata.labels
        and before.marked == after.marked
        and before.status.capacity == after.status.capacity
        and before.status.allocatable == after.status.allocatable
        and _readiness(before) == _readiness(after)
    )


def _readiness(node: CoreNode) -> tuple[str, str]:
    ready = node.condition("Ready")
    return (ready.status, ready.reason) if ready else ("", "")


def tainted(node: CoreNode | None, key: str) -> bool:
    """Whether the node carries a taint of that key."""
    return node is not None and any(taint.key == key for taint in node.spec.taints)


def being_deleted_by_autoscaler(node: CoreNode | None) -> bool:
    """Whether the autoscaler has marked the node for deletion: until the node is gone it must keep its group."""
    return tainted(node, names.TAINT_TO_BE_DELETED)
