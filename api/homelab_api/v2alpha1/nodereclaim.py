"""NodeReclaim: the machine is in its owner's hands. While one names a slot, nothing of ours powers it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.meta import Condition, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.v2alpha1.nodeclaim import SlotRef
from homelab_api.v2alpha1.vocabulary import ReclaimPhase, ReclaimSource


class NodeReclaimSpec(KubeModel):
    """Which slot, since when, and who asked."""

    slot_ref: SlotRef
    node_uid: str = ""
    reason: str = ""
    requested_at: Time | None = None
    source: ReclaimSource = ReclaimSource.MANUAL
    scheduled_machine: str | None = None


class NodeReclaimStatus(KubeModel):
    """How far the ejection got."""

    phase: ReclaimPhase | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class NodeReclaim(KubeObject):
    """Named exactly as its slot, so that there is at most one."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "NodeReclaim", "nodereclaims")

    spec: NodeReclaimSpec
    status: NodeReclaimStatus = Field(default_factory=NodeReclaimStatus)

    @property
    def slot_name(self) -> str:
        """The slot that is held."""
        return self.spec.slot_ref.name
