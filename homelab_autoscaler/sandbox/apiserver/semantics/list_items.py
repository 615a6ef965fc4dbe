"""What `x-kubernetes-list-type` asks of the items of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

Path = tuple[str | int, ...]


def repeated_items(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, Any]]:
    """Items of sets and of lists with keys whose identity was there before, with that identity."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                child = shape.field(key)
                if child is not None and child.name != "ObjectMeta":
                    yield from repeated_items(item, child, (*path, key))
    elif isinstance(value, list):
        seen: list[Any] = []
        for index, item in enumerate(value):
            if shape.keys or shape.is_set:
                identity = (
                    {key: item[key] for key in shape.keys if key in item}
                    if shape.keys and isinstance(item, dict)
                    else item
                )
                if shape.keys and not isinstance(item, dict):
                    continue
                if any(same(identity, other) for other in seen):
                    yield (*path, index), identity
                else:
                    seen.append(identity)
            if shape.items is not None and isinstance(item, dict | list):
                yield from repeated_items(item, shape.items, (*path, index))


def keyless_items(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, Any]]:
    """Items of lists with keys that can have none."""
    children: Iterable[tuple[str | int, Any, Shape | None]] = ()
    if isinstance(value, dict):
        children = [(key, item, shape.field(key)) for key, item in value.items()]
    elif isinstance(value, list):
        if shape.keys:
            # A real server tells of the first one only.
            wrong = next((index for index, item in enumerate(value) if not isinstance(item, dict | None)), None)
            if wrong is not None:
                yield (*path, wrong), value[wrong]
        children = [(index, item, shape.items) for index, item in enumerate(value)]
    for part, item, child in children:
        if isinstance(item, dict | list) and child is not None and child.name != "ObjectMeta":
            yield from keyless_items(item, child, (*path, part))
