"""The built-in kinds that the simulators work with, and their URL paths."""

from __future__ import annotations

from typing import Final

from homelab_api.meta import ResourceInfo

PODS: Final = ResourceInfo("", "v1", "Pod", "pods")
NODES: Final = ResourceInfo("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES: Final = ResourceInfo("", "v1", "Namespace", "namespaces", namespaced=False)
SECRETS: Final = ResourceInfo("", "v1", "Secret", "secrets")
CONFIG_MAPS: Final = ResourceInfo("", "v1", "ConfigMap", "configmaps")
EVENTS: Final = ResourceInfo("", "v1", "Event", "events")
JOBS: Final = ResourceInfo("batch", "v1", "Job", "jobs")
LEASES: Final = ResourceInfo("coordination.k8s.io", "v1", "Lease", "leases")
BUDGETS: Final = ResourceInfo("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
CRDS: Final = ResourceInfo(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)

NODE_LEASES: Final = "kube-node-lease"
"""The namespace of the Leases that kubelets renew."""


def group_version_path(api_version: str) -> str:
    """`v1` is served under `/api/v1`, everything else under `/apis/<group>/<version>`."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path(resource: ResourceInfo, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
    """The URL path of a collection, an object or a subresource.

    Args:
        resource: The kind.
        namespace: Empty or None for all namespaces, and for cluster-scoped kinds.
        name: The object; None for the collection.
        sub: A subresource such as `status`.
    """
    parts = [group_version_path(resource.api_version)]
    if namespace and resource.namespaced:
        parts += ["namespaces", namespace]
    parts.append(resource.plural)
    parts += [part for part in (name, sub) if part]
    return "/".join(parts)
