"""NodeReclaim: the machine is in its owner's hands. While one names a slot, nothing of ours powers it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.meta import Conditions, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.schema import Bounds, Rule, immutable
from homelab_api.v2alpha1.nodeclaim import SlotRef
from homelab_api.v2alpha1.vocabulary import ReclaimPhase, ReclaimSource


class NodeReclaimSpec(KubeModel):
    """Which slot, since when, and who asked."""

    slot_ref: Annotated[SlotRef, immutable("spec.slotRef", "delete this NodeReclaim and make one named as the slot")]
    """The slot whose machine is taken back. Immutable."""
    node_uid: Annotated[str, Bounds(max_length=64)] = ""
    """uid of the node at the time of the request; with `requestedAt` the identity of the request."""
    reason: Annotated[str, Bounds(max_length=1024)] = ""
    """Why, in the words of whoever took it back."""
    requested_at: Time | None = None
    """The instant that the machine's agent stated; its clock may be wrong, so it is compared for equality only."""
    source: ReclaimSource = ReclaimSource.MANUAL
    """Agent or Manual."""
    scheduled_machine: Annotated[str | None, Bounds(max_length=253)] = None
    """The ScheduledMachine that the slot serves, if any."""


class NodeReclaimStatus(KubeModel):
    """How far the ejection got."""

    phase: ReclaimPhase | None = None
    """Ejecting, Held or Returning."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions of the reclaim; see docs/reasons."""
    observed_generation: int | None = None
    """The generation of the spec that the status is about."""


class NodeReclaim(KubeObject):
    """The machine is in its owner's hands. Named exactly as its slot, so that there is at most one."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "NodeReclaim", "nodereclaims")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name == self.spec.slotRef.name",
            "metadata.name must equal spec.slotRef.name: there is one NodeReclaim per slot",
            "'metadata.name \"' + self.metadata.name + '\" must equal spec.slotRef.name \"' + self.spec.slotRef.name "
            "+ '\": there is one NodeReclaim per slot'",
        ),
    )

    spec: NodeReclaimSpec
    """Which machine, and why."""
    status: NodeReclaimStatus = Field(default_factory=NodeReclaimStatus)
    """How far it is."""

    @property
    def slot_name(self) -> str:
        """The slot that is held."""
        return self.spec.slot_ref.name
