"""URLs of the Kubernetes API."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from homelab_api.meta import ResourceInfo


def collection_path(resource: ResourceInfo, namespace: str | None) -> str:
    """Where a kind is listed and created; `namespace` None or "" means all of them."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced and namespace:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{resource.plural}"
    return f"{root}/{resource.plural}"


def object_path(resource: ResourceInfo, name: str, namespace: str | None, subresource: str | None = None) -> str:
    """Where one object lives.

    Raises:
        ValueError: the name is empty, or the namespace of a namespaced kind is: the server would take either for
            another request (a list, or an unknown path).
    """
    if not name:
        raise ValueError(f"a {resource.kind} needs a name")
    if resource.namespaced and not namespace:
        raise ValueError(f'{resource.kind} "{name}" needs a namespace')
    path = f"{collection_path(resource, namespace)}/{quote(name, safe=':')}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, query: Mapping[str, str | int | bool | None]) -> str:
    """The path with the query's entries that are not None; booleans as `true` and `false`."""
    entries = {
        key: ("true" if value else "false") if isinstance(value, bool) else value
        for key, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(entries)}" if entries else path
