"""Indexes: from a value to the keys of the objects that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

import structlog

from homelab_api.meta import KubeObject

T = TypeVar("T", bound=KubeObject)
Indexer: TypeAlias = Callable[[T], Iterable[str]]
NAMESPACE_INDEX = "namespace"
ALL_NAMESPACES = "*"
_log = structlog.get_logger("homelab_autoscaler.runtime.index")


def field_index_name(field: str) -> str:
    """Name of the index that serves exact-match selectors on `field`, such as `field:spec.nodeName`."""
    return f"field:{field}"


def field_indexer(extract: Callable[[T], str | None]) -> Indexer[T]:
    """An index function for `field_index_name`: each value twice, under its namespace and under all of them.

    An empty value is not indexed: an object without a node name must never be found by one.
    """

    def index(obj: T) -> Iterable[str]:
        value = extract(obj)
        if not value:
            return ()
        return (field_index_value(value, obj.namespace), field_index_value(value, ALL_NAMESPACES))

    return index


def field_index_value(value: str, namespace: str | None) -> str:
    """The entry of a field index for a value in one namespace (None: in all)."""
    return f"{namespace or ALL_NAMESPACES}/{value}"


class Indices(Generic[T]):
    """A set of named indexes over keys. Not locked: the store that owns it is."""

    def __init__(self, indexers: Mapping[str, Indexer[T]]) -> None:
        self._indexers: dict[str, Indexer[T]] = {}
        self._values: dict[str, dict[str, dict[str, None]]] = {}
        self._by_key: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, function in indexers.items():
            self.add(name, function, ())

    def functions(self) -> dict[str, Indexer[T]]:
        """The index functions by name."""
        return dict(self._indexers)

    def add(self, name: str, function: Indexer[T], existing: Iterable[tuple[str, T]]) -> None:
        """Add an index and build it over what exists.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._indexers or name == NAMESPACE_INDEX:
            raise ValueError(f'an index named "{name}" exists already')
        self._indexers[name] = function
        self._values[name] = {}
        for key, obj in existing:
            self._set(name, key, self._compute(name, obj))

    def put(self, key: str, obj: T) -> None:
        """Index an object that was added or changed."""
        for name in self._indexers:
            self._set(name, key, self._compute(name, obj))

    def drop(self, key: str) -> None:
        """Forget an object."""
        for name in self._indexers:
            self._set(name, key, ())
        self._by_key.pop(key, None)

    def keys(self, name: str, value: str) -> list[str]:
        """Keys of the objects with that value, in the order in which they got it.

        Raises:
            KeyError: no index has that name.
        """
        return list(self._table(name).get(value, ()))

    def values(self, name: str) -> list[str]:
        """The values that objects have in an index.

        Raises:
            KeyError: no index has that name.
        """
        return list(self._table(name))

    def _table(self, name: str) -> dict[str, dict[str, None]]:
        if name not in self._values:
            known = ", ".join(sorted(self._indexers)) or "none"
            raise KeyError(f'no index is named "{name}"; there is: {known}')
        return self._values[name]

    def _compute(self, name: str, obj: T) -> tuple[str, ...]:
        try:
            values = self._indexers[name](obj)
            return tuple(dict.fromkeys(value for value in values if value))
        except Exception:  # noqa: BLE001 - one odd object must not stop the informer
            _log.exception("index function failed", index=name, name=obj.name, namespace=obj.namespace)
            return ()

    def _set(self, name: str, key: str, values: tuple[str, ...]) -> None:
        mine = self._by_key.setdefault(key, {})
        before = mine.get(name, ())
        if before == values:
            return
        table = self._values[name]
        for value in before:
            if value not in values:
                keys = table[value]
                del keys[key]
                if not keys:
                    del table[value]
        for value in values:
            if value not in before:
                table.setdefault(value, {})[key] = None
        if values:
            mine[name] = values
        else:
            mine.pop(name, None)
