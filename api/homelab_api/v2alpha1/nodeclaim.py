"""NodeClaim: one request for one machine. While it is live, its machine is wanted."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.meta import Condition, Duration, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.v2alpha1.vocabulary import Call, ClaimPhase, Reason


class SlotRef(KubeModel):
    """The slot's name, in the same namespace."""

    name: str


class NodeClaimSpec(KubeModel):
    """slotRef, call and group are immutable; deadlineAt is cleared by us when the machine is ready."""

    slot_ref: SlotRef
    call: Call
    group: str
    requested_at: Time | None = None
    deadline_at: Time | None = None
    max_node_provision_time: Duration | None = None
    ttl_seconds_after_finished: int = 3600


class NodeClaimStatus(KubeModel):
    """Written by the claim recorder alone."""

    phase: ClaimPhase | None = None
    reason: Reason | None = None
    message: str = ""
    attempt: int = 0
    node_name: str = ""
    inherited_debt: bool = False
    job_name: str = ""
    shutdown_attempts: int = 0
    last_shutdown_attempt_at: Time | None = None
    shutdown_job_name: str = ""
    started_at: Time | None = None
    ready_at: Time | None = None
    finished_at: Time | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class NodeClaim(KubeObject):
    """One request for one machine, from its creation to its end."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "NodeClaim", "nodeclaims")

    spec: NodeClaimSpec
    status: NodeClaimStatus = Field(default_factory=NodeClaimStatus)

    @property
    def slot_name(self) -> str:
        """The slot that this claim names; the only way a claim belongs to a slot."""
        return self.spec.slot_ref.name

    @property
    def phase(self) -> ClaimPhase:
        """The phase; empty reads as pending, so that a request is capacity from its creation on."""
        return self.status.phase or ClaimPhase.PENDING

    @property
    def live(self) -> bool:
        """Phase pending, booting or ready (marked or not)."""
        return self.phase.live

    @property
    def wants_machine(self) -> bool:
        """Live and not marked for deletion."""
        return self.live and not self.marked

    @property
    def committed(self) -> bool:
        """The machine finalizer is on: a power-on may have been asked for."""
        return names.FINALIZER_MACHINE in self.metadata.finalizers

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if the claim has it."""
        return next((entry for entry in self.status.conditions if entry.type == kind), None)
