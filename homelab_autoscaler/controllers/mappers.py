"""Which slots, claims and groups an event of another object wakes. Every look-up goes through an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.lifecycle.scope import INDEX_GROUP, INDEX_NODE_NAME, INDEX_SLOT, slot_of_job
from homelab_autoscaler.runtime import Request

if TYPE_CHECKING:
    from homelab_api.core import CoreNode, Job
    from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
    from homelab_autoscaler.runtime import Lister


class Mappers:
    """Functions from objects to requests, for the builder."""

    def __init__(self, slots: Lister[Node], claims: Lister[NodeClaim]) -> None:
        self._slots = slots
        self._claims = claims

    # --- to slots -------------------------------------------------------------------------------------------------

    def slot(self, slot: Node) -> list[Request]:
        """A slot itself."""
        return [Request(slot.namespace, slot.name)]

    def slot_of_claim(self, claim: NodeClaim) -> list[Request]:
        """The slot that a claim names."""
        return [Request(claim.namespace, claim.slot_name)]

    def slots_of_node(self, node: CoreNode) -> list[Request]:
        """The slots that name a node: one, unless somebody made a mistake."""
        found = self._slots.by_index(INDEX_NODE_NAME, node.name)
        return [Request(slot.namespace, slot.name) for slot in found]

    def slot_of_job(self, job: Job) -> list[Request]:
        """The slot of a lifecycle Job: its owner, since labels may be shortened."""
        keys = list(slot_of_job(job))
        owner = next((ref.name for ref in job.metadata.owner_references if ref.kind == "Node"), "")
        return [Request(job.namespace, owner or key.partition("/")[2]) for key in keys]

    def slot_of_reclaim(self, reclaim: NodeReclaim) -> list[Request]:
        """The slot that is held."""
        return [Request(reclaim.namespace, reclaim.name)]

    def slots_of_group(self, group: Group) -> list[Request]:
        """The slots of a pool."""
        found = self._slots.by_index(INDEX_GROUP, f"{group.namespace}/{group.name}")
        return [Request(slot.namespace, slot.name) for slot in found]

    # --- to claims ------------------------------------------------------------------------------------------------

    def claims_of_slot(self, slot: Node) -> list[Request]:
        """Every claim that names a slot."""
        return self._claims_of([Request(slot.namespace, slot.name)])

    def claims_of_node(self, node: CoreNode) -> list[Request]:
        """The claims behind a node."""
        return self._claims_of(self.slots_of_node(node))

    def claims_of_job(self, job: Job) -> list[Request]:
        """The claims of a Job's slot."""
        return self._claims_of(self.slot_of_job(job))

    def claims_of_reclaim(self, reclaim: NodeReclaim) -> list[Request]:
        """The claims of a held slot."""
        return self._claims_of([Request(reclaim.namespace, reclaim.name)])

    # --- to groups ------------------------------------------------------------------------------------------------

    def group_of_slot(self, slot: Node) -> list[Request]:
        """The pool of a slot."""
        return [Request(slot.namespace, slot.group)] if slot.group else []

    def group_of_claim(self, claim: NodeClaim) -> list[Request]:
        """The pool whose numbers a claim changes."""
        slot = self._slots.get(claim.slot_name, claim.namespace)
        return self.group_of_slot(slot) if slot else []

    def groups_of_node(self, node: CoreNode) -> list[Request]:
        """The pool whose numbers a node changes."""
        found = self._slots.by_index(INDEX_NODE_NAME, node.name)
        return [Request(slot.namespace, slot.group) for slot in found if slot.group]

    def _claims_of(self, slots: list[Request]) -> list[Request]:
        return [
            Request(claim.namespace, claim.name)
            for slot in slots
            for claim in self._claims.by_index(INDEX_SLOT, f"{slot.namespace}/{slot.name}")
        ]
