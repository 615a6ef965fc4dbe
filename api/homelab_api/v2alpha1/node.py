"""Node: a *slot*, the configuration of one machine. It has no field for an intent: claims decide."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.meta import Conditions, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.schema import Bounds, DnsSubdomain, Labels, ListKind, Quantities, Rate, Rule
from homelab_api.v2alpha1.group import Taints
from homelab_api.v2alpha1.pod import MinimalPodSpec
from homelab_api.v2alpha1.vocabulary import Call, ClaimPhase, PowerState, Reason, SlotPhase

Name = Annotated[str, Bounds(max_length=253)]


class Pricing(KubeModel):
    """Cost of a machine (per hour) and of a pod (per hour), as decimal strings."""

    hourly_rate: Rate = "0"
    """What an hour of the machine costs; the cheapest free machine is switched on first."""
    pod_rate: Rate = "0"
    """What an hour of a pod on it costs."""


class Watts(KubeModel):
    """Electrical power of the machine, idle and under full load."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.idle) || !has(self.max) || self.max == 0 || self.idle <= self.max",
            "watts.idle is greater than watts.max: exchange them",
        ),
    )

    idle: Annotated[int, Bounds(minimum=0, maximum=100000)] = 0
    """Watts while nothing runs."""
    max: Annotated[int, Bounds(minimum=0, maximum=100000)] = 0
    """Watts under full load."""


class SlotSpec(KubeModel):
    """Written by people and Git only."""

    kubernetes_node_name: DnsSubdomain
    """Name that the machine's kubelet registers with. It cannot change while a claim is live."""
    startup_pod_spec: MinimalPodSpec
    """What switches the machine on."""
    shutdown_pod_spec: MinimalPodSpec
    """What switches the machine off."""
    reclaim_pod_spec: MinimalPodSpec | None = None
    """What makes the machine leave the cluster and keep running, when its owner takes it back."""
    pricing: Pricing | None = None
    """What the machine costs."""
    watts: Watts | None = None
    """What the machine draws, for the energy report."""
    capacity: Quantities = Field(default_factory=dict)
    """Resources of this machine, where they differ from the pool's template."""
    node_labels: Labels = Field(default_factory=dict)
    """Labels put on this machine's node, besides the pool's."""
    node_taints: Taints = Field(default_factory=list)
    """Taints put on this machine's node, besides the pool's."""
    taints_to_remove: Taints = Field(default_factory=list)
    """Taints taken off the node when it is ready."""
    kill_if_commands: Annotated[
        list[Annotated[str, Bounds(min_length=1, max_length=256)]], ListKind("set"), Bounds(max_items=64)
    ] = Field(default_factory=list)
    """When a process of the machine's owner matches one of these, the machine is given back at once (opt-in)."""
    paused: bool = False
    """No new claims are offered for this slot; what runs goes on."""
    allow_control_plane: bool = False
    """The machine may be switched off though it has a control-plane role or hosts the only manager."""


class LastClaim(KubeModel):
    """Digest of the claim that ended last: what survives the claim's collection."""

    name: Name
    """Name of the claim."""
    uid: Annotated[str, Bounds(max_length=64)] = ""
    """Identity of the claim."""
    phase: ClaimPhase
    """How it ended."""
    attempt: int = 0
    """Which consecutive attempt it was."""
    call: Call | None = None
    """Who had asked for the machine."""
    group: Name = ""
    """The pool that it was asked for."""
    reason: Reason | None = None
    """Why it ended."""
    requested_at: Time | None = None
    """When it was asked for."""
    deadline_at: Time | None = None
    """When its boot had to be done, if that never happened."""
    finished_at: Time | None = None
    """When it ended."""
    reached_ready: bool = False
    """Whether its machine ever took work."""
    streak_at: Time | None = None
    """When the present streak of failed boots last grew."""


class SlotTransition(KubeModel):
    """One row of the display ring."""

    at: Time
    """When it was written."""
    from_phase: SlotPhase | None = Field(default=None, alias="from")
    """The phase before; absent for a slot's first."""
    to: SlotPhase
    """The phase from then on."""
    claim: Name = ""
    """The claim that owned the slot."""
    reason: Annotated[str, Bounds(max_length=256)] = ""
    """Why, in a word."""


class SlotStatus(KubeModel):
    """Reports. No code reads them to choose an operation; the few readers of lastClaim are listed in a test."""

    power_state: PowerState | None = None
    """Observed power: on iff the node's Ready condition is True."""
    phase: SlotPhase | None = None
    """What the slot reports; computed from claim, power and usability, and input to nothing."""
    claim: Name = ""
    """The live claim that owns the slot, empty without one; shown by `kubectl get`, written with the phase."""
    last_claim: LastClaim | None = None
    """Digest of the claim that ended last."""
    last_transition_time: Time | None = None
    """When the phase last changed."""
    previous_phase: SlotPhase | None = None
    """The phase before this one."""
    recent_transitions: Annotated[list[SlotTransition], ListKind("atomic"), Bounds(max_items=512)] = Field(
        default_factory=list
    )
    """The last changes of the phase, in the order they were written; at most 32 of the last 24 hours."""
    recent_activations: Annotated[list[Time], ListKind("atomic"), Bounds(max_items=4096)] = Field(default_factory=list)
    """When the machine booted, in the last 24 hours; at most 512."""
    activations_total: int = 0
    """How often the machine was booted since the slot exists."""
    activations_last24_h: int = Field(default=0, alias="activationsLast24H")
    """How often it was booted in the last 24 hours: the length of `recentActivations`."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions of the slot; see docs/reasons."""
    observed_generation: int | None = None
    """The generation of the spec that the report is about."""


class Node(KubeObject):
    """A slot: the configuration of one machine. What the machine's kubelet registers is the core `Node`."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "Node", "nodes")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.size() <= 40",
            "metadata.name is longer than 40 characters: claims and Jobs are named after a slot, choose a shorter one",
            "'metadata.name \"' + self.metadata.name + '\" is longer than 40 characters: claims and Jobs are named "
            "after a slot, choose a shorter one'",
        ),
    )

    spec: SlotSpec
    """The machine and how it is switched."""
    status: SlotStatus = Field(default_factory=SlotStatus)
    """What the cluster observes of the machine."""

    @property
    def group(self) -> str:
        """The pool: the label at the time of reading, "" if none."""
        return self.metadata.labels.get(names.LABEL_GROUP, "")
