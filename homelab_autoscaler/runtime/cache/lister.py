"""Lister: what reconcilers read. Never asks the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from homelab_api.meta import KubeObject
from homelab_autoscaler.runtime.cache.indexers import field_index_name, field_index_value
from homelab_autoscaler.runtime.cache.store import Store, object_key

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

T = TypeVar("T", bound=KubeObject)


class CacheNotStartedError(RuntimeError):
    """Something read the cache before it was started: an empty answer would have been a lie."""


class Lister(Generic[T]):
    """Reads of one kind from the local store; the objects are shared and must not be changed (they are frozen).

    Between the start of its informer and the first list it answers from what there is, possibly nothing: controllers
    wait for the sync. A read before the start waits a few seconds for it, then raises CacheNotStartedError.
    """

    def __init__(self, store: Store[T], started: Callable[[], bool] = lambda: True) -> None:
        self._all = store
        self._started = started

    @property
    def _store(self) -> Store[T]:
        if not self._started():
            name = self._all.kind.resource.group_resource
            raise CacheNotStartedError(f"{name} was read before the cache was started")
        return self._all

    def get(self, name: str, namespace: str | None = None) -> T | None:
        """The object of that name, None if the store has none."""
        return self._store.get(object_key(namespace, name))

    def list(self, namespace: str | None = None) -> list[T]:
        """All objects, or those of one namespace."""
        return self._store.list(namespace)

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """Objects with that value in that index; "" matches nothing.

        Raises:
            KeyError: no index has that name.
        """
        return self._store.by_index(index, value)

    def index_values(self, index: str) -> builtins.list[str]:
        """The values that objects have in that index; costs no decoding.

        Raises:
            KeyError: no index has that name.
        """
        return self._store.index_values(index)

    def by_fields(
        self, fields: Mapping[str, str], namespace: str | None = None, *, limit: int | None = None
    ) -> builtins.list[T]:
        """Objects whose indexed fields have exactly these values (see `field_indexer`), all of them.

        Args:
            fields: field name to value, at least one; "" matches nothing.
            namespace: only there, None for all.
            limit: at most that many; there is no continuing.

        Raises:
            KeyError: a field has no index.
            ValueError: no field was given.
        """
        if not fields:
            raise ValueError("by_fields needs at least one field")
        with self._store.locked():
            found: dict[str, T] | None = None
            for field, value in fields.items():
                matches = self._store.by_index(
                    field_index_name(field), field_index_value(value, namespace) if value else ""
                )
                these = {object_key(obj.namespace, obj.name): obj for obj in matches}
                found = these if found is None else {key: obj for key, obj in found.items() if key in these}
        objects = list((found or {}).values())
        return objects if limit is None else objects[:limit]
