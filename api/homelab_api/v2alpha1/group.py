"""Group: a pool of alike machines, as Cluster Autoscaler sees one node group."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from homelab_api import names
from homelab_api.core import Taint
from homelab_api.meta import Conditions, Duration, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.schema import POSITIVE_DURATION, Bounds, Fraction, Labels, ListKind, Quantities, Rule
from homelab_api.v2alpha1.vocabulary import GroupHealth

DEFAULT_READINESS_TAINT = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")

Taints: TypeAlias = Annotated[list[Taint], ListKind("map", ("key", "effect")), Bounds(max_items=32)]
"""Taints by their identity: one entry per key and effect."""

Size: TypeAlias = Annotated[int, Bounds(minimum=0, maximum=10000)]


class NodeTemplate(KubeModel):
    """What a machine of the pool will offer, for scaling from zero."""

    capacity: Quantities = Field(default_factory=dict)
    """Resources of the machine, like `cpu: "16"`."""
    allocatable: Quantities = Field(default_factory=dict)
    """Resources left for pods, if less than `capacity`. Too high a number boots machines on which pods do not fit."""
    labels: Labels = Field(default_factory=dict)
    """Labels that the node will carry."""
    taints: Taints = Field(default_factory=list)
    """Taints that stay on the node; not the ones that go away while it starts."""


class Drain(KubeModel):
    """How long pods may take to leave, and whether the rest is deleted after that."""

    timeout: Duration = timedelta(minutes=5)
    """How long pods may take to leave before the machine is switched off."""
    force: bool = True
    """Delete what has not left by then; if false the machine goes off under it."""


class GroupSpec(KubeModel):
    """Written by people and Git only. A scaling option that is not set means the autoscaler's own flag."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.maxSize) || !has(self.minSize) || self.minSize <= self.maxSize",
            "minSize is greater than maxSize: lower minSize or raise maxSize",
            field_path=".minSize",
        ),
    )

    scale_down_utilization_threshold: Fraction | None = None
    """A machine used less than this fraction may be switched off."""
    scale_down_gpu_utilization_threshold: Fraction | None = None
    """As scaleDownUtilizationThreshold, for machines with GPUs."""
    scale_down_unneeded_time: Duration | None = None
    """How long a machine must be unneeded before it is switched off."""
    scale_down_unready_time: Duration | None = None
    """How long a machine must be unready before it is switched off."""
    max_node_provision_time: Annotated[Duration | None, POSITIVE_DURATION] = None
    """How long the autoscaler waits for a node. A floor of every claim's deadline, never a ceiling below our budget;
    what it has above the boot budget is also added to the waits for registration and readiness."""
    zero_or_max_node_scaling: bool | None = None
    """The autoscaler turns all machines of the pool on or none."""
    ignore_daemon_sets_utilization: bool | None = None
    """Pods of DaemonSets do not count as use."""
    node_readiness_taints: Taints = Field(default_factory=lambda: [DEFAULT_READINESS_TAINT])
    """While a node carries one of these it cannot take the pool's work. The default is Cilium's; `[]` for none."""
    node_taints: Taints = Field(default_factory=list)
    """Taints put on every node of the pool when it is ready."""
    node_labels: Labels = Field(default_factory=dict)
    """Labels put on every node of the pool."""
    min_size: Size = 0
    """The autoscaler keeps at least so many machines wanted."""
    max_size: Size | None = None
    """The autoscaler wants at most so many machines; also never more than there are slots that can serve."""
    template: NodeTemplate | None = None
    """What a machine of the pool offers; needed to scale up from zero."""
    drain: Drain = Field(default_factory=Drain)
    """How pods leave a machine before it is switched off."""
    adopt_running_machines: bool = False
    """Machines that are on when their slot is first seen are kept (an `Adopt` claim) instead of being switched off."""
    delete_node_objects: bool = True
    """Delete the Node object of a machine that we switched off. If kept, the autoscaler counts it as an unready node.
    One that merely fell silent keeps its Node object until its next boot: it may be running, cut off from the cluster.
    """


class GroupStatus(KubeModel):
    """Reports. Nothing reads them to decide."""

    slots: int | None = None
    """Slots whose label names the pool."""
    on: int | None = None
    """Machines observed on."""
    off: int | None = None
    """Machines observed off."""
    target: int | None = None
    """Machines that are wanted: the size that the autoscaler is told."""
    health: GroupHealth | None = None
    """healthy, degraded, offline or unknown."""
    last_scale_at: Time | None = None
    """When the target last changed."""
    last_scale_action: Annotated[str | None, Bounds(max_length=256)] = None
    """What that change was."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions of the pool; see docs/reasons."""
    observed_generation: int | None = None
    """The generation of the spec that the report is about."""


class Group(KubeObject):
    """A pool: slots whose label `infra.homecluster.dev/group` names it."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(names.GROUP, "v2alpha1", "Group", "groups")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.size() <= 63",
            "metadata.name is longer than 63 characters: a Group's name is a label value, choose a shorter one",
            "'metadata.name \"' + self.metadata.name + '\" is longer than 63 characters: a Group name is a label "
            "value, choose a shorter one'",
        ),
    )

    spec: GroupSpec = Field(default_factory=GroupSpec)
    """How the pool scales, and what its nodes look like."""
    status: GroupStatus = Field(default_factory=GroupStatus)
    """What the pool looks like now."""
