"""JSON patch (RFC 6902) as a Kubernetes server applies it: `replace` of a missing key adds it."""

from __future__ import annotations

import copy
from typing import Any

_MAX_OPERATIONS = 10_000


class JsonPatchError(ValueError):
    """The patch cannot be applied: a failed test, a path that leads nowhere, an unknown operation."""


def apply(document: Any, operations: Any) -> Any:
    """Apply all operations in order, or none.

    Args:
        document: parsed JSON; it may be changed, so pass a copy.
        operations: the patch's list.

    Raises:
        JsonPatchError: when one operation cannot be applied.
    """
    if not isinstance(operations, list):
        raise JsonPatchError("a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise JsonPatchError(f"the allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}")
    root = {"": document}
    for operation in operations:
        if not isinstance(operation, dict):
            raise JsonPatchError("an operation of a JSON patch is an object")
        _apply_one(root, operation)
    return root[""]


def _apply_one(root: dict[str, Any], operation: dict[str, Any]) -> None:
    path = _pointer(operation.get("path"))
    name = operation.get("op")
    if name == "test":
        if not same(_find_or_null(root, path), operation.get("value")):
            raise JsonPatchError(f"testing value {operation.get('path')} failed")
    elif name == "add":
        _put(root, path, _value(operation), insert=True)
    elif name == "replace":
        _put(root, path, _value(operation), insert=False)
    elif name == "remove":
        _take(root, path)
    elif name == "move":
        _put(root, path, _take(root, _pointer(operation.get("from"))), insert=True)
    elif name == "copy":
        _put(root, path, copy.deepcopy(_find(root, _pointer(operation.get("from")))), insert=True)
    else:
        raise JsonPatchError(f"unknown operation {name!r}")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise JsonPatchError("the operation has no value")
    return copy.deepcopy(operation["value"])


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise JsonPatchError(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _index(token: str, size: int) -> int:
    try:
        index = int(token)
    except ValueError:
        raise JsonPatchError(f"{token!r} is no list index") from None
    if index < 0:
        index += size
    if not 0 <= index < size:
        raise JsonPatchError(f"index {token} is out of bounds")
    return index


def _find(root: Any, path: list[str]) -> Any:
    value = root
    for token in path:
        if isinstance(value, dict):
            if token not in value:
                raise JsonPatchError(f"no value at {'/'.join(path)}")
            value = value[token]
        elif isinstance(value, list):
            value = value[_index(token, len(value))]
        else:
            raise JsonPatchError(f"no value at {'/'.join(path)}")
    return value


def _find_or_null(root: Any, path: list[str]) -> Any:
    """As the server's own library: testing a missing key of an object that is there compares with null."""
    parent = _find(root, path[:-1]) if len(path) > 1 else root
    if isinstance(parent, dict) and path[-1] not in parent:
        return None
    return _find(root, path)


def _put(root: Any, path: list[str], value: Any, *, insert: bool) -> None:
    parent = _find(root, path[:-1]) if len(path) > 1 else root
    token = path[-1]
    if isinstance(parent, dict):
        parent[token] = value
    elif isinstance(parent, list):
        if token == "-" and insert:
            parent.append(value)
        elif insert:
            parent.insert(_index(token, len(parent) + 1), value)
        else:
            parent[_index(token, len(parent))] = value
    else:
        raise JsonPatchError(f"no object or list at {'/'.join(path[:-1])}")


def _take(root: Any, path: list[str]) -> Any:
    parent = _find(root, path[:-1]) if len(path) > 1 else root
    token = path[-1]
    if isinstance(parent, dict):
        if token not in parent or (not token and parent is root):
            raise JsonPatchError(f"nothing to remove at {'/'.join(path)}")
        return parent.pop(token)
    if isinstance(parent, list):
        return parent.pop(_index(token, len(parent)))
    raise JsonPatchError(f"nothing to remove at {'/'.join(path)}")


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values; unlike Python's, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(same(left, right) for left, right in zip(one, other, strict=True))
        )
    return bool(one == other)
