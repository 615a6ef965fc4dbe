"""What became of an object, write by write, as the API server's log tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject, KubeObject
    from virtual.cluster import Cluster

OPERATOR = "system:serviceaccount:homelab:manager"


def writes_of(cluster: Cluster, kind: type[KubeObject], name: str, since: int = 0) -> list[Any]:
    """What the operator wrote to one object."""
    resource = kind.resource
    return [
        write
        for write in cluster.writes(since)
        if (write.group, write.resource, write.name, write.user) == (resource.group, resource.plural, name, OPERATOR)
    ]


def told(body: JsonObject, path: str) -> Any:
    """The value at a dotted path; None if there is none."""
    found: Any = body
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def values(cluster: Cluster, kind: type[KubeObject], name: str, path: str, since: int = 0) -> list[Any]:
    """Every value that the operator gave to a field, in order; a write that left it alone is not among them."""
    return [
        told(write.after, path)
        for write in writes_of(cluster, kind, name, since)
        if told(write.before or {}, path) != told(write.after, path)
    ]


def annotation(body: JsonObject | None, key: str) -> str | None:
    """The value of an annotation."""
    found = ((body or {}).get("metadata", {}).get("annotations") or {}).get(key)
    return str(found) if found is not None else None


def annotations(cluster: Cluster, kind: type[KubeObject], name: str, key: str, since: int = 0) -> list[str | None]:
    """Every value that the operator gave to an annotation, in order; None where it took it away."""
    return [
        annotation(write.after, key)
        for write in writes_of(cluster, kind, name, since)
        if annotation(write.before, key) != annotation(write.after, key)
    ]
