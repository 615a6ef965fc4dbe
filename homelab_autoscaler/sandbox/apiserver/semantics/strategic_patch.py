"""Strategic merge patch of built-in kinds: lists merge by the keys that their types declare.

Directives: `$patch: delete|replace|merge`, `$deleteFromPrimitiveList/NAME`, `$setElementOrder/NAME` (orders merged
lists), `$retainKeys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.merge_patch import merge as merge_untyped

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class StrategicPatchError(ValueError):
    """A patch with a directive that makes no sense."""


class ListItemError(StrategicPatchError):
    """A list item that cannot be merged; a real server takes it for an error of its own (500)."""


def apply(target: Any, patch: Any, shape: Shape | None) -> Any:
    """Apply a strategic merge patch; `target` may be changed."""
    if not isinstance(patch, dict):
        return patch
    if shape is None or shape.kind not in {"object", "map"}:
        return merge_untyped(target, patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive is not None and directive != "merge":
        raise StrategicPatchError(f"Unknown patch type found: {directive}")
    result: JsonObject = target if isinstance(target, dict) else {}
    retain = patch.get("$retainKeys")
    if isinstance(retain, list):
        for key in [key for key in result if key not in retain]:
            del result[key]
    for key, value in patch.items():
        if key in {"$patch", "$retainKeys"} or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            if isinstance(result.get(name), list) and isinstance(value, list):
                result[name] = [item for item in result[name] if item not in value]
            continue
        if value is None:
            result.pop(key, None)
            continue
        child = shape.field(key)
        if isinstance(value, dict):
            result[key] = apply(result.get(key), value, child)
        elif isinstance(value, list) and child is not None and child.merge is not None:
            order = patch.get(_ORDER + key)
            result[key] = _merge_list(result.get(key), value, child, order if isinstance(order, list) else None)
        else:
            result[key] = value
    return result


def _merge_list(target: Any, patch: list[Any], shape: Shape, order: list[Any] | None) -> list[Any]:
    present: list[Any] = list(target) if isinstance(target, list) else []
    key = shape.merge
    if not key:
        merged = present + [item for item in patch if item not in present]
        if order is not None:
            merged = _ordered(merged, order, lambda item: item)
        return merged
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise ListItemError(f"map: {item} does not contain declared merge key: {key}")
        index = next(
            (at for at, one in enumerate(present) if isinstance(one, dict) and one.get(key) == item[key]), None
        )
        if item.get("$patch") == "delete":
            if index is not None:
                del present[index]
        elif index is None:
            present.append(apply({}, item, shape.items))
        else:
            present[index] = apply(present[index], item, shape.items)
    if order is not None:
        wanted = [item.get(key) if isinstance(item, dict) else item for item in order]
        present = _ordered(present, wanted, lambda item: item.get(key))
    return present


def _ordered(items: list[Any], order: list[Any], identity: Any) -> list[Any]:
    """Items named by the order in that order; the others keep their places after what preceded them."""
    rank = {_hashable(value): index for index, value in enumerate(order)}
    placed = sorted(
        (item for item in items if _hashable(identity(item)) in rank), key=lambda item: rank[_hashable(identity(item))]
    )
    others = [item for item in items if _hashable(identity(item)) not in rank]
    return others + placed if not order else placed + others


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else repr(value)
