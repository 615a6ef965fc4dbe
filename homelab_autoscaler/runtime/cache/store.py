"""Store: the local copy of one kind, as bytes, decoded when read.

An object is kept as the JSON that the server sent (without managedFields), which is a fifth of what decoded models
need; models of recently read objects are kept too, up to a number. Models are frozen and shared by all readers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import orjson

from homelab_api.meta import JsonObject, KubeObject
from homelab_autoscaler.runtime.cache.indexers import NAMESPACE_INDEX, Indexer, Indices

if TYPE_CHECKING:
    import builtins

T = TypeVar("T", bound=KubeObject)
Transform = Callable[[JsonObject], JsonObject]
DECODED_LIMIT = 2048


def object_key(namespace: str | None, name: str) -> str:
    """`namespace/name`, or `name` for cluster-scoped objects. The uid is not part of it: keys outlive objects."""
    return f"{namespace}/{name}" if namespace else name


def strip_managed_fields(obj: JsonObject) -> JsonObject:
    """The default transform: field ownership is the server's business and half of an object's size."""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    return obj


def compact(obj: JsonObject) -> bytes:
    """An object as bytes of just their length: orjson hands out a buffer several times as large."""
    return memoryview(orjson.dumps(obj)).tobytes()


class _Entry(Generic[T]):
    __slots__ = ("model", "namespace", "raw", "version")

    def __init__(self, raw: bytes, version: str, namespace: str, model: T | None) -> None:
        self.raw = raw
        self.version = version
        self.namespace = namespace
        self.model = model


class Store(Generic[T]):
    """Objects of one kind by key, with indexes. Every method is atomic and may be called from any thread.

    Guarantee: `get`, `list` and `by_index` return what the store held at one moment. Non-guarantee: that moment may
    be behind the server's; see `version`.
    """

    def __init__(
        self,
        kind: type[T],
        indexers: Mapping[str, Indexer[T]] | None = None,
        *,
        decoded_limit: int = DECODED_LIMIT,
    ) -> None:
        self.kind = kind
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry[T]] = {}
        self._namespaces: dict[str, dict[str, None]] = {}
        self._indices: Indices[T] = Indices(indexers or {})
        self._decoded: OrderedDict[str, None] = OrderedDict()
        self._decoded_limit = decoded_limit
        self._version = ""
        self._rewinds = 0

    # --- reads --------------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """The object of that key, None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else self._decode(key, entry)

    def list(self, namespace: str | None = None) -> list[T]:
        """All objects, or those of one namespace, in the order in which they became known."""
        with self._lock:
            keys: Iterable[str] = self._entries if not namespace else self._namespaces.get(namespace, ())
            return [self._decode(key, self._entries[key]) for key in keys]

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """Objects with that value in that index; an empty value matches nothing.

        Raises:
            KeyError: no index has that name.
        """
        with self._lock:
            if name == NAMESPACE_INDEX:
                return self.list(value) if value else []
            keys = self._indices.keys(name, value)
            return [self._decode(key, self._entries[key]) for key in keys]

    def index_values(self, name: str) -> builtins.list[str]:
        """The values that objects have in an index, without decoding an object.

        Raises:
            KeyError: no index has that name.
        """
        with self._lock:
            return self._indices.values(name)

    def keys(self) -> builtins.list[str]:
        """The keys of all objects."""
        with self._lock:
            return list(self._entries)

    def version_of(self, key: str) -> str | None:
        """resourceVersion of one object, None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else entry.version

    def uid_of(self, key: str) -> str | None:
        """Uid of one object, None if there is none."""
        obj = self.get(key)
        return None if obj is None else obj.uid

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def version(self) -> str:
        """The resourceVersion up to which everything is in the store (from lists, events and bookmarks)."""
        return self._version

    @property
    def rewinds(self) -> int:
        """How often a list had a lower version than the store: the server was restored from a backup."""
        return self._rewinds

    # --- writes, by the informer --------------------------------------------------------------------------

    def put(self, key: str, body: JsonObject, model: T) -> T | None:
        """Keep an object; returns the one it replaces."""
        model.slimmed()
        version = model.metadata.resource_version
        raw = compact(body)
        with self._lock:
            entry = self._entries.get(key)
            old = None
            if entry is None:
                self._entries[key] = entry = _Entry(raw, version, model.namespace, None)
                self._namespaces.setdefault(model.namespace, {})[key] = None
            else:
                old = self._decode(key, entry)
                entry.raw = raw
                entry.version = version
            self._remember(key, entry, model)
            self._indices.put(key, model)
            return old

    def drop(self, key: str) -> T | None:
        """Forget an object and return it, None if it was not there."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            old = entry.model or self._parse(entry)
            self._decoded.pop(key, None)
            keys = self._namespaces[entry.namespace]
            del keys[key]
            if not keys:
                del self._namespaces[entry.namespace]
            self._indices.drop(key)
            return old

    def set_version(self, version: str, *, authoritative: bool = False) -> None:
        """Note that the store is in step with this version; only a list (`authoritative`) may go back."""
        if not version:
            return
        with self._lock:
            if authoritative and is_older(version, self._version):
                self._rewinds += 1
            elif is_older(version, self._version):
                return
            self._version = version

    def add_indexers(self, indexers: Mapping[str, Indexer[T]]) -> None:
        """Add indexes and build them over what is there.

        Raises:
            ValueError: a name is taken.
        """
        with self._lock:
            for name, function in indexers.items():
                self._indices.add(name, function, self._pairs())

    def indexers(self) -> dict[str, Indexer[T]]:
        """The index functions by name, beside the namespace index."""
        with self._lock:
            return self._indices.functions()

    def locked(self) -> threading.RLock:
        """The store's lock, for a caller that needs several calls to be one moment."""
        return self._lock

    def decoded(self) -> builtins.list[tuple[str, T, bytes]]:
        """(key, model, bytes) of the objects that are decoded now: what a mutation could have touched."""
        with self._lock:
            return [(key, e.model, e.raw) for key, e in self._entries.items() if e.model is not None]

    def _pairs(self) -> Iterator[tuple[str, T]]:
        for key, entry in self._entries.items():
            yield key, entry.model or self._parse(entry)

    def _decode(self, key: str, entry: _Entry[T]) -> T:
        if entry.model is None:
            self._remember(key, entry, self._parse(entry))
        assert entry.model is not None
        return entry.model

    def _remember(self, key: str, entry: _Entry[T], model: T) -> None:
        if entry.model is None:
            self._decoded[key] = None
            if len(self._decoded) > self._decoded_limit:
                oldest, _ = self._decoded.popitem(last=False)
                self._entries[oldest].model = None
        entry.model = model

    def _parse(self, entry: _Entry[T]) -> T:
        return self.kind.from_json(orjson.loads(entry.raw)).slimmed()


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion of a kind is older than another; False when they cannot be compared.

    Versions of one kind are ordered integers (guaranteed by Kubernetes since 1.35, true before).
    """
    if not (version.isdigit() and than.isdigit()):
        return False
    return int(version) < int(than)
