"""corev1 Node: what a kubelet registers. Named CoreNode here, since our own `Node` is a slot."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from homelab_api.meta import KubeModel, KubeObject, ResourceInfo, Time
from homelab_api.schema import LabelKey, LabelValue, NotInCrd, OneOf


class Taint(KubeModel):
    """A taint; identity is (key, effect)."""

    key: LabelKey
    """The taint's key, NAME or DOMAIN/NAME."""
    effect: Annotated[str, OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute"))]
    """What it does to pods that do not tolerate it."""
    value: LabelValue | None = None
    """An optional value; it is not part of the taint's identity."""
    time_added: Annotated[Time | None, NotInCrd()] = None
    """When it was put on a node; of nodes only."""


class NodeSpec(KubeModel):
    """The parts of a node's spec that we read or set by patch."""

    provider_id: str = Field(default="", alias="providerID")
    unschedulable: bool = False
    taints: list[Taint] = Field(default_factory=list)


class NodeCondition(KubeModel):
    """A node condition as the kubelet or the node lifecycle controller wrote it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None


class NodeStatus(KubeModel):
    """Conditions and resources; every other status field is left alone."""

    conditions: list[NodeCondition] = Field(default_factory=list)
    capacity: dict[str, str] = Field(default_factory=dict)
    allocatable: dict[str, str] = Field(default_factory=dict)


class CoreNode(KubeObject):
    """corev1 Node."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)

    def condition(self, kind: str) -> NodeCondition | None:
        """The condition of that type, if the node has it."""
        return next((entry for entry in self.status.conditions if entry.type == kind), None)
