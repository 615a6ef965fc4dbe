"""URLs of the Kubernetes API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from homelab_api.meta import ResourceInfo

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]*").fullmatch
"""Nearly every name: quoting it costs more than all the rest of a path."""


def collection_path(resource: ResourceInfo, namespace: str | None) -> str:
    """Where a kind is listed and created; `namespace` None or "" means all of them."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced and namespace:
        return f"{root}/namespaces/{_quoted(namespace)}/{resource.plural}"
    return f"{root}/{resource.plural}"


def object_path(resource: ResourceInfo, name: str, namespace: str | None, subresource: str | None = None) -> str:
    """Where one object lives.

    Raises:
        ValueError: the name is empty, or the namespace of a namespaced kind is: the server would take either for
            another request (a list, or an unknown path). Or one of them is "." or "..".
    """
    if not name:
        raise ValueError(f"a {resource.kind} needs a name")
    if resource.namespaced and not namespace:
        raise ValueError(f'{resource.kind} "{name}" needs a namespace')
    path = f"{collection_path(resource, namespace)}/{_quoted(name)}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, query: Mapping[str, str | int | bool | None]) -> str:
    """The path with the query's entries that are not None; booleans as `true` and `false`."""
    entries = {
        key: ("true" if value else "false") if isinstance(value, bool) else value
        for key, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(entries)}" if entries else path


def _quoted(name: str) -> str:
    if _PLAIN(name):
        return name
    if name in {".", ".."}:
        raise ValueError(f'"{name}" is no name of an object: in a path it means another place')
    return quote(name, safe=":")
