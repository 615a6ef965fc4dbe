"""coordinationv1 Lease: kubelet heartbeats and leader election."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import KubeModel, KubeObject, MicroTime, ResourceInfo


class LeaseSpec(KubeModel):
    """Who holds the lease and when it was renewed, by the holder's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject):
    """coordinationv1 Lease."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = Field(default_factory=LeaseSpec)
