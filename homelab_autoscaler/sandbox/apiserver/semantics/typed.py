"""What server-side apply asks of a configuration before it looks at it any closer: that it has the form of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

# Scalars that are held to a type. Times, quantities and numbers-or-texts are any scalar.
_SCALARS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "string"),
    "bytes": (str, "string"),
    "integer": ((int, float), "numeric (int or float)"),
    "number": ((int, float), "numeric (int or float)"),
    "boolean": (bool, "boolean"),
}


def untyped(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """What does not fit, as texts for people: unknown fields, and values of another form.

    Args:
        value: parsed JSON.
        shape: what it should be.
        path: where it stands: `.spec.parts[0]`.
    """
    kind = shape.kind
    if value is None or kind == "any":
        return
    if kind in {"object", "map"}:
        if not isinstance(value, dict):
            yield f"{path}: expected map"
            return
        for key, item in value.items():
            child = shape.field(key)
            if child is not None:
                yield from untyped(item, child, f"{path}.{key}")
            elif not shape.preserve and (path or key not in {"apiVersion", "kind"}):
                yield f"{path}.{key}: field not declared in schema"
    elif kind == "list":
        if not isinstance(value, list):
            yield f"{path}: expected list"
            return
        if shape.keys or shape.is_set:
            yield from _repeated(value, shape, path)
        if shape.items is not None:
            for index, item in enumerate(value):
                yield from untyped(item, shape.items, f"{path}[{index}]")
    elif kind in _SCALARS:
        wanted, word = _SCALARS[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
            yield f"{path}: expected {word}"
    elif isinstance(value, dict | list):
        yield f"{path}: expected scalar"


def _repeated(items: list[Any], shape: Shape, path: str) -> Iterator[str]:
    """Items of a list with an identity that another one has."""
    seen: list[Any] = []
    for item in items:
        identity = {key: item.get(key) for key in shape.keys} if shape.keys and isinstance(item, dict) else item
        if any(same(identity, other) for other in seen):
            yield f"{path}: duplicate entries for key {identity}"
        seen.append(identity)
