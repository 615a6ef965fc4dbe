"""corev1 Pod: for draining nodes and for knowing that a Job's container is gone."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import KubeModel, KubeObject, ResourceInfo


class PodSpec(KubeModel):
    """Where a pod runs."""

    node_name: str = ""
    termination_grace_period_seconds: int | None = None


class PodStatus(KubeModel):
    """How far a pod got."""

    phase: str = ""


class Pod(KubeObject):
    """corev1 Pod."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Pod", "pods")

    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)
