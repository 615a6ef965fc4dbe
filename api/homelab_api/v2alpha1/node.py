"""Node: a *slot*, the configuration of one machine. It has no field for an intent: claims decide."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.core import Taint
from homelab_api.meta import Condition, JsonObject, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.v2alpha1.vocabulary import Call, ClaimPhase, PowerState, Reason, SlotPhase


class EnvVar(KubeModel):
    """A plain environment variable. Secrets are mounted as files, never passed as environment (S11)."""

    name: str
    value: str = ""


class Volume(KubeModel):
    """A Secret or ConfigMap mounted read-only; exactly one of the two names is set."""

    name: str
    mount_path: str
    secret_name: str | None = None
    config_map_name: str | None = None


class MinimalPodSpec(KubeModel):
    """What a lifecycle Job runs: one container, and nothing that could reach beyond its purpose."""

    image: str
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    volumes: list[Volume] = Field(default_factory=list)
    service_account: str | None = None
    ttl_seconds_after_finished: int = 600
    timeout_seconds: int = 300
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[JsonObject] = Field(default_factory=list)
    resources: JsonObject | None = None


class Pricing(KubeModel):
    """Cost of a machine (per hour) and of a pod (per hour), as decimal strings."""

    hourly_rate: str = "0"
    pod_rate: str = "0"


class Watts(KubeModel):
    """Electrical power of the machine, idle and under full load."""

    idle: int = 0
    max: int = 0


class SlotSpec(KubeModel):
    """Written by people and Git only."""

    kubernetes_node_name: str
    startup_pod_spec: MinimalPodSpec
    shutdown_pod_spec: MinimalPodSpec
    reclaim_pod_spec: MinimalPodSpec | None = None
    pricing: Pricing | None = None
    watts: Watts | None = None
    capacity: dict[str, str] = Field(default_factory=dict)
    node_labels: dict[str, str] = Field(default_factory=dict)
    node_taints: list[Taint] = Field(default_factory=list)
    taints_to_remove: list[Taint] = Field(default_factory=list)
    kill_if_commands: list[str] = Field(default_factory=list)
    paused: bool = False
    allow_control_plane: bool = False


class LastClaim(KubeModel):
    """Digest of the claim that ended last: what survives the claim's collection."""

    name: str
    uid: str = ""
    phase: ClaimPhase
    attempt: int = 0
    call: Call | None = None
    group: str = ""
    reason: Reason | None = None
    requested_at: Time | None = None
    deadline_at: Time | None = None
    finished_at: Time | None = None
    reached_ready: bool = False
    streak_at: Time | None = None


class SlotTransition(KubeModel):
    """One row of the display ring."""

    at: Time
    from_phase: SlotPhase | None = Field(default=None, alias="from")
    to: SlotPhase
    claim: str = ""
    reason: str = ""


class SlotStatus(KubeModel):
    """Reports. No code reads them to choose an operation; the few readers of lastClaim are listed in a test."""

    power_state: PowerState | None = None
    phase: SlotPhase | None = None
    claim: str = ""
    """Name of the live claim that owns the slot, "" without one; for `kubectl get`, written with the phase."""
    last_claim: LastClaim | None = None
    last_transition_time: Time | None = None
    previous_phase: SlotPhase | None = None
    recent_transitions: list[SlotTransition] = Field(default_factory=list)
    recent_activations: list[Time] = Field(default_factory=list)
    activations_total: int = 0
    activations_last24_h: int = Field(default=0, alias="activationsLast24H")
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Node(KubeObject):
    """A slot. The metal is the *machine*; what its kubelet registers is the *node* (`CoreNode`)."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "Node", "nodes")

    spec: SlotSpec
    status: SlotStatus = Field(default_factory=SlotStatus)

    @property
    def group(self) -> str:
        """The pool: the label at the time of reading, "" if none."""
        return self.metadata.labels.get(names.LABEL_GROUP, "")
