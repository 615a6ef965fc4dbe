"""Group: a pool of alike machines, as Cluster Autoscaler sees one node group."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from homelab_api.core import Taint
from homelab_api.meta import Condition, Duration, KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.v2alpha1.vocabulary import GroupHealth

DEFAULT_READINESS_TAINT = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")


class NodeTemplate(KubeModel):
    """What a machine of the pool will offer, for scaling from zero."""

    capacity: dict[str, str] = Field(default_factory=dict)
    allocatable: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)


class Drain(KubeModel):
    """How long pods may take to leave, and whether the rest is deleted after that."""

    timeout: Duration = timedelta(minutes=5)
    force: bool = True


class GroupSpec(KubeModel):
    """Written by people and Git only."""

    scale_down_utilization_threshold: str | None = None
    scale_down_gpu_utilization_threshold: str | None = None
    scale_down_unneeded_time: Duration | None = None
    scale_down_unready_time: Duration | None = None
    max_node_provision_time: Duration | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemon_sets_utilization: bool | None = None
    node_readiness_taints: list[Taint] = Field(default_factory=lambda: [DEFAULT_READINESS_TAINT])
    node_taints: list[Taint] = Field(default_factory=list)
    node_labels: dict[str, str] = Field(default_factory=dict)
    min_size: int = 0
    max_size: int | None = None
    template: NodeTemplate | None = None
    drain: Drain = Field(default_factory=Drain)
    adopt_running_machines: bool = False
    delete_node_objects: bool = True


class GroupStatus(KubeModel):
    """Reports. Nothing reads them to decide."""

    slots: int | None = None
    on: int | None = None
    off: int | None = None
    target: int | None = None
    health: GroupHealth | None = None
    last_scale_at: Time | None = None
    last_scale_action: str | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Group(KubeObject):
    """A pool: slots whose label `infra.homecluster.dev/group` names it."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("infra.homecluster.dev", "v2alpha1", "Group", "groups")

    spec: GroupSpec = Field(default_factory=GroupSpec)
    status: GroupStatus = Field(default_factory=GroupStatus)
