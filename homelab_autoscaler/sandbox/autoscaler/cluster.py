"""The autoscaler's side towards the API server: nodes and pods as JSON, taints, evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from pydantic import Field

from homelab_api.core import Pod
from homelab_api.meta import JsonObject, KubeObject, ObjectMeta, ResourceInfo
from homelab_autoscaler.runtime.errors import ApiError, ConflictError, NotFoundError, TooManyRequestsError
from homelab_autoscaler.runtime.patch import MergePatch
from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.client import Client


class Cluster(Protocol):
    """What the autoscaler reads and changes."""

    def nodes(self) -> list[JsonObject]:
        """All nodes, by name."""
        ...

    def pods(self) -> list[JsonObject]:
        """All pods."""
        ...

    def change_node(self, node: JsonObject, taints: list[JsonObject], *, unschedulable: bool | None) -> bool:
        """Replace the node's taints and set or lift its cordon (None leaves it); False if it has changed or gone."""
        ...

    def evict(self, pod: JsonObject) -> bool:
        """Ask to evict the pod; True unless a budget blocks it."""
        ...


class _Raw(KubeObject):
    """An object with all its fields: the autoscaler looks at parts that the typed views leave out."""

    body: JsonObject = Field(default_factory=dict)

    @classmethod
    def from_json(cls, body: JsonObject) -> Self:
        """Keep the whole body."""
        return cls(metadata=ObjectMeta.model_validate(body.get("metadata") or {}), body=body)


class _RawNode(_Raw):
    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Node", "nodes", namespaced=False)


class _RawPod(_Raw):
    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Pod", "pods")


class ApiCluster:
    """A cluster behind an API server.

    Args:
        client: the runtime's client, with an identity of the autoscaler's own.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def nodes(self) -> list[JsonObject]:
        """See Cluster."""
        return [node.body for node in self._client.list(_RawNode).items]

    def pods(self) -> list[JsonObject]:
        """See Cluster."""
        return [pod.body for pod in self._client.list(_RawPod).items]

    def change_node(self, node: JsonObject, taints: list[JsonObject], *, unschedulable: bool | None) -> bool:
        """See Cluster."""
        spec: JsonObject = {"taints": taints or None}
        if unschedulable is not None:
            spec["unschedulable"] = unschedulable or None
        version = objects.metadata(node).get("resourceVersion")
        patch = MergePatch({"metadata": {"resourceVersion": version}, "spec": spec})
        try:
            self._client.patch(_RawNode, objects.name(node), None, patch)
        except (ConflictError, NotFoundError):
            return False
        return True

    def evict(self, pod: JsonObject) -> bool:
        """See Cluster."""
        try:
            self._client.evict(Pod.from_json(pod))
        except TooManyRequestsError:
            return False
        except (NotFoundError, ConflictError):
            return True
        return True


__all__ = ["ApiCluster", "ApiError", "Cluster"]
