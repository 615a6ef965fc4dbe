"""Sets of fields, kept in the form in which managedFields show them (FieldsV1).

A set is a tree of dictionaries. A key is `f:NAME` for a field, `k:{…}` for an item of a map-typed list, `v:VALUE` for
an item of a set. A node is a member when it is an empty dictionary or has the key `.`; the others only lead to members.
The functions never change their arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

Fields = dict[str, Any]


def _granular(value: Any, shape: Shape | None) -> bool:
    """Whether a dictionary's fields have owners of their own."""
    return isinstance(value, dict) and (shape is None or not shape.atomic)


def _associative(value: Any, shape: Shape | None) -> bool:
    """Whether a list's items have owners of their own."""
    return isinstance(value, list) and shape is not None and bool(shape.keys or shape.is_set)


def item_key(item: Any, shape: Shape) -> str:
    """The tree key of a list item."""
    if shape.keys:
        # Missing keys count with their default, which for ports is the protocol TCP.
        identity = {}
        for key in sorted(shape.keys):
            if isinstance(item, dict) and key in item:
                identity[key] = item[key]
            elif key == "protocol":
                identity[key] = "TCP"
        return "k:" + orjson.dumps(identity).decode()
    return "v:" + orjson.dumps(item).decode()


def fields_of(value: Any, shape: Shape | None, *, containers: bool = False) -> Fields:
    """The set of everything in a value.

    Args:
        value: parsed JSON.
        shape: what is known about it.
        containers: also make maps and lists that hold something members, as changes by plain writes do.
    """
    if _granular(value, shape):
        found: Fields = {}
        for key, item in value.items():
            # Most values are scalars: leaves.
            found["f:" + key] = (
                fields_of(item, shape.field(key) if shape else None, containers=containers)
                if isinstance(item, dict | list)
                else {}
            )
        if containers and found:
            found["."] = {}
        return found
    if _associative(value, shape):
        assert shape is not None
        found = {}
        for item in value:
            if shape.keys:
                found[item_key(item, shape)] = {**fields_of(item, shape.items, containers=False), ".": {}}
            else:
                found[item_key(item, shape)] = {}
        if containers and found:
            found["."] = {}
        return found
    return {}


def compare(old: Any, new: Any, shape: Shape | None) -> tuple[Fields, Fields]:
    """What a change touched: (added or modified, removed). Empty sets mean that nothing was."""
    changed: Fields = {}
    removed: Fields = {}
    if _granular(old, shape) and _granular(new, shape):
        for key, item in new.items():
            child = shape.field(key) if shape else None
            if key not in old:
                changed["f:" + key] = fields_of(item, child, containers=True)
            elif item is not old[key]:
                _compare_into(old[key], item, child, "f:" + key, changed, removed)
        for key, item in old.items():
            if key not in new:
                removed["f:" + key] = fields_of(item, shape.field(key) if shape else None, containers=True)
    elif _associative(old, shape) and _associative(new, shape):
        assert shape is not None
        before = {item_key(item, shape): item for item in old}
        after = {item_key(item, shape): item for item in new}
        for key, item in after.items():
            if key not in before:
                changed[key] = {**fields_of(item, shape.items), ".": {}} if shape.keys else {}
            elif shape.keys:
                _compare_into(before[key], item, shape.items, key, changed, removed)
        for key, item in before.items():
            if key not in after:
                removed[key] = {**fields_of(item, shape.items), ".": {}} if shape.keys else {}
    return changed, removed


def _compare_into(old: Any, new: Any, shape: Shape | None, key: str, changed: Fields, removed: Fields) -> None:
    if (_granular(old, shape) and _granular(new, shape)) or (_associative(old, shape) and _associative(new, shape)):
        more, less = compare(old, new, shape)
        if more:
            changed[key] = more
        if less:
            removed[key] = less
    elif not same(old, new):
        changed[key] = fields_of(new, shape, containers=True)


def is_member(node: Fields) -> bool:
    """Whether a node is itself in the set."""
    return not node or "." in node


def union(one: Fields, other: Fields) -> Fields:
    """Everything in either."""
    if not one and not other:
        return {}
    found = dict(one) if one else {".": {}}
    for key, node in (other or {".": {}}).items():
        found[key] = union(found[key], node) if key in found and key != "." else node
    return found


def minus(one: Fields, other: Fields) -> Fields | None:
    """What is in the first and not in the second; None when nothing is left."""
    if not one:
        return None if is_member(other) else one
    found: Fields = {}
    for key, node in one.items():
        if key == ".":
            if not is_member(other):
                found[key] = node
        elif key in other:
            left = minus(node, other[key])
            if left is not None:
                found[key] = left
        else:
            found[key] = node
    return found or None


def intersection(one: Fields, other: Fields) -> Fields | None:
    """What is in both; None when nothing is."""
    if not one or not other:
        return {} if is_member(one) and is_member(other) else None
    found: Fields = {}
    if "." in one and "." in other:
        found["."] = {}
    for key, node in one.items():
        if key != "." and key in other:
            common = intersection(node, other[key])
            if common is not None:
                found[key] = common
    return found or None


def without(fields: Fields, *paths: tuple[str, ...]) -> Fields:
    """The set without whole branches, for example `("f:status",)`."""
    found = dict(fields)
    for path in paths:
        if len(path) == 1:
            found.pop(path[0], None)
        elif path[0] in found:
            rest = without(found[path[0]], path[1:])
            if rest:
                found[path[0]] = rest
            else:
                del found[path[0]]
    return found


def leaves(fields: Fields, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all members, in order of their keys."""
    for key in sorted(fields):
        if key == ".":
            if path:
                yield path
        elif not fields[key]:
            yield (*path, key)
        else:
            yield from leaves(fields[key], (*path, key))


def shown(path: tuple[str, ...]) -> str:
    """A path as conflict messages show it: `.spec.parts[name="a"].value`."""
    text = ""
    for key in path:
        kind, _, rest = key.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            identity: JsonObject = orjson.loads(rest)
            text += "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in identity.items()) + "]"
        else:
            text += f"[={rest}]"
    return text
