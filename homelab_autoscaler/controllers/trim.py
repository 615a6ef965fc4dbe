"""What the caches of the manager leave out of objects before they keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api.core import NodeStatus

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_READ: Final = frozenset(field.alias or name for name, field in NodeStatus.model_fields.items())


def trimmed_node(node: JsonObject) -> JsonObject:
    """A corev1 Node of whose status only that is left which the model reads.

    The rest is most of a Node: a kubelet reports up to fifty images (`nodeStatusMaxImages`), each under several names.
    """
    status = node.get("status")
    if not isinstance(status, dict) or status.keys() <= _READ:
        return node
    return {**node, "status": {key: value for key, value in status.items() if key in _READ}}
