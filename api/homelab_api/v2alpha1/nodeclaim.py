"""NodeClaim: one request for one machine. While it is live, its machine is wanted."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from homelab_api import names
from homelab_api.meta import Condition, Conditions, Duration, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.schema import POSITIVE_DURATION, Bounds, GroupName, Rule, immutable
from homelab_api.v2alpha1.vocabulary import Call, ClaimPhase, Reason


class SlotRef(KubeModel):
    """The slot's name, in the same namespace."""

    name: Annotated[
        str,
        Bounds(min_length=1, max_length=253),
        Rule(
            "self.size() <= 40 && self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
            "not a name of a slot: at most 40 lower-case letters, digits, dashes and dots",
            "'\"' + self + '\" is not a name of a slot: at most 40 lower-case letters, digits, dashes and dots'",
        ),
    ]
    """Name of a `nodes.infra.homecluster.dev` object."""


_NEW_CLAIM: Final = "delete this claim and make a new one"


class NodeClaimSpec(KubeModel):
    """slotRef, call and group are immutable; deadlineAt is cleared by us when the machine is ready."""

    slot_ref: Annotated[SlotRef, immutable("spec.slotRef", _NEW_CLAIM)]
    """The slot whose machine is wanted. Immutable."""
    call: Annotated[Call, immutable("spec.call", _NEW_CLAIM)]
    """Who asks. Immutable; by hand it is Manual."""
    group: Annotated[GroupName, immutable("spec.group", _NEW_CLAIM)]
    """The pool that it is asked for: a record, the slot's own label decides. Immutable."""
    requested_at: Time | None = None
    """When it was asked for."""
    deadline_at: Time | None = None
    """When the boot must be done; absent = never, and a boot that never starts holds the slot for ever."""
    max_node_provision_time: Annotated[Duration | None, POSITIVE_DURATION] = None
    """The pool's number at the time of asking, so that a change of the pool rewrites no history."""
    ttl_seconds_after_finished: Annotated[int, Bounds(minimum=120, maximum=31536000)] = 3600
    """How long the claim is kept after its end; at least 120."""


Name = Annotated[str, Bounds(max_length=253)]


class NodeClaimStatus(KubeModel):
    """Written by the claim recorder alone."""

    phase: ClaimPhase | None = None
    """How far the request is; absent reads as pending."""
    reason: Reason | None = None
    """Why it is in this phase."""
    message: Annotated[str, Bounds(max_length=32768)] = ""
    """Why, in words."""
    attempt: int = 0
    """Which consecutive attempt this is; stamped once, on the first pass."""
    node_name: Name = ""
    """The Kubernetes node name that the boot was committed to."""
    inherited_debt: bool = False
    """A claim that this one superseded may have switched the machine on."""
    job_name: Name = ""
    """The startup Job."""
    shutdown_attempts: Annotated[int, Bounds(minimum=0)] = 0
    """Shutdown Jobs that did not switch the machine off; set to 0 by hand to try again at once."""
    last_shutdown_attempt_at: Time | None = None
    """When the last of them was counted."""
    shutdown_job_name: Name = ""
    """The last shutdown Job."""
    started_at: Time | None = None
    """When the boot was asked for."""
    power_requested_at: Time | None = None
    """When the startup Job was released: the machine is asked to start once per claim."""
    ready_at: Time | None = None
    """When the machine became ready."""
    finished_at: Time | None = None
    """When the claim ended."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions of the claim; see docs/reasons."""
    observed_generation: int | None = None
    """The generation of the spec that the status is about."""


class NodeClaim(KubeObject):
    """One request for one machine, from its creation to its end."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "NodeClaim", "nodeclaims")

    spec: NodeClaimSpec
    """What is asked for."""
    status: NodeClaimStatus = Field(default_factory=NodeClaimStatus)
    """How far it is, and how it ended."""

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
