"""MemoryStore: the calls of `runtime.Client` over a dictionary, for tests that need no server.

It has what decisions hang on: uids, resourceVersions that only grow, creation times in whole seconds, 404, 409 for
taken names and for preconditions, merge patches, finalizers and deletionTimestamps. It can fail before or after a
write took effect, let something else happen in between, and tell a listener of each change as a watch would.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from homelab_api.meta import KubeObject, format_time
from homelab_autoscaler.runtime.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from homelab_autoscaler.runtime.patch import MergePatch, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.patch import Patch

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A list as of one moment."""

    items: list[T]
    resource_version: str


@dataclass(slots=True)
class Fault:
    """What goes wrong with the next matching calls.

    Attributes:
        error: raised; None only does `meanwhile`.
        verb: get, list, create, patch or delete; "" matches every one.
        kind: class of the object; None matches every one.
        committed: the call takes effect first, only its reply is lost.
        meanwhile: called before the call takes effect (and before the error).
        times: how often.
    """

    error: ApiError | None = None
    verb: str = ""
    kind: type[KubeObject] | None = None
    committed: bool = False
    meanwhile: Callable[[], None] | None = None
    times: int = 1


class MemoryStore:
    """An API server as far as one client's calls can tell; thread-safe.

    Args:
        clock: for creation and deletion times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._objects: dict[tuple[type[KubeObject], str, str], JsonObject] = {}
        self._versions = itertools.count(1)
        self._last_version = 0
        self.faults: list[Fault] = []
        self.writes: list[tuple[str, str]] = []
        self.listeners: list[Callable[[str, KubeObject], None]] = []

    # --- the client's calls -------------------------------------------------------------------------------------

    def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """See runtime.Client."""
        with self._call("get", kind), self._lock:
            return kind.from_json(self._find(kind, name, namespace))

    def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        known: Callable[[JsonObject], T | None] | None = None,
    ) -> Listed[T]:
        """See runtime.Client; the only selectors are `label=value` and `path.of.a.field=value`."""
        with self._call("list", kind), self._lock:
            found = [
                (known(body["metadata"]) if known is not None else None) or kind.from_json(body)
                for (stored, ns, _), body in sorted(self._objects.items(), key=lambda item: item[0][1:])
                if stored is kind
                and namespace in {None, ns}
                and (not field_selector or _selected(body, field_selector))
            ]
            if label_selector:
                label, _, value = label_selector.partition("=")
                found = [obj for obj in found if obj.metadata.labels.get(label) == value]
            return Listed(found, str(self._last_version))

    def create(self, obj: T) -> T:
        """See runtime.Client."""
        with self._call("create", type(obj)), self._lock:
            key = (type(obj), obj.namespace, obj.name)
            if key in self._objects:
                raise AlreadyExistsError(f'{type(obj).resource.group_resource} "{obj.name}" already exists', status=409)
            body = obj.to_json()
            body["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._time()}
            return self._store("create", type(obj), key, body)

    def patch(
        self, kind: type[T], name: str, namespace: str | None, patch: Patch, *, subresource: str | None = None
    ) -> T:
        """See runtime.Client; merge patches only, and a status is patched like any other field."""
        if not isinstance(patch, MergePatch):
            raise TypeError(f"this store applies merge patches, not {type(patch).__name__}")
        with self._call("patch", kind, subresource or ""), self._lock:
            body = self._find(kind, name, namespace)
            required = patch.body.get("metadata", {}).get("resourceVersion")
            if required is not None and required != body["metadata"]["resourceVersion"]:
                raise ConflictError(f'"{name}" has been modified', status=409)
            merged = merge(body, patch.body)
            assert isinstance(merged, dict)
            return self._store("patch", kind, (kind, namespace or "", name), merged)

    def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """See runtime.Client."""
        with self._call("delete", kind), self._lock:
            body = self._find(kind, name, namespace)
            wanted = {"uid": uid, "resourceVersion": resource_version}
            for field, value in wanted.items():
                if value is not None and body["metadata"][field] != value:
                    raise ConflictError(f'precondition failed: {field} of "{name}"', status=409)
            if body["metadata"].get("finalizers"):
                if "deletionTimestamp" not in body["metadata"]:
                    marked = merge(body, {"metadata": {"deletionTimestamp": self._time()}})
                    assert isinstance(marked, dict)
                    self._store("delete", kind, (kind, namespace or "", name), marked)
                return
            self.erase(kind.from_json(body))

    # --- for tests ----------------------------------------------------------------------------------------------

    def put(self, obj: T) -> T:
        """Store the object as it is (with a uid and a creation time if it has none): what somebody else did."""
        with self._lock:
            body = obj.to_json()
            body["metadata"].setdefault("uid", str(uuid.uuid4()))
            body["metadata"].setdefault("creationTimestamp", self._time())
            return self._store("put", type(obj), (type(obj), obj.namespace, obj.name), body)

    def change(self, obj: T, patch: JsonObject) -> T:
        """Merge into the stored object: what somebody else did."""
        with self._lock:
            key = (type(obj), obj.namespace, obj.name)
            merged = merge(self._objects[key], patch)
            assert isinstance(merged, dict)
            return self._store("put", type(obj), key, merged)

    def erase(self, obj: KubeObject) -> None:
        """Remove the object: what the server does when the last finalizer is gone."""
        with self._lock:
            del self._objects[(type(obj), obj.namespace, obj.name)]
            self._last_version = next(self._versions)
            self.writes.append(("delete", obj.name))
            self._tell("DELETED", obj)

    def all(self, kind: type[T]) -> Sequence[T]:
        """Every object of a kind, without any fault."""
        with self._lock:
            return [
                kind.from_json(body)
                for (stored, _, _), body in sorted(self._objects.items(), key=lambda item: item[0][1:])
                if stored is kind
            ]

    # --- inside -------------------------------------------------------------------------------------------------

    def _call(self, verb: str, kind: type[KubeObject], _subresource: str = "") -> _Call:
        for fault in self.faults:
            if fault.times > 0 and fault.verb in {"", verb} and fault.kind in {None, kind}:
                fault.times -= 1
                return _Call(fault)
        return _Call(None)

    def _find(self, kind: type[KubeObject], name: str, namespace: str | None) -> JsonObject:
        body = self._objects.get((kind, namespace or "", name))
        if body is None:
            raise NotFoundError(f'{kind.resource.group_resource} "{name}" not found', status=404)
        return body

    def _store(self, verb: str, kind: type[T], key: tuple[type[KubeObject], str, str], body: JsonObject) -> T:
        self._last_version = next(self._versions)
        metadata = {**body["metadata"], "resourceVersion": str(self._last_version)}
        self._objects[key] = {**body, "metadata": metadata}
        if verb != "put":
            self.writes.append((verb, key[2]))
        stored = kind.from_json(self._objects[key])
        self._tell("MODIFIED" if verb != "create" else "ADDED", stored)
        return stored

    def _tell(self, kind: str, obj: KubeObject) -> None:
        for listener in self.listeners:
            listener(kind, obj)

    def _time(self) -> str:
        return format_time(self._clock.now().replace(microsecond=0))


class _Call:
    """One call with at most one fault: what happens meanwhile, then an error before or after the effect."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault

    def __enter__(self) -> None:
        if self._fault is None:
            return
        if self._fault.meanwhile is not None:
            self._fault.meanwhile()
        if self._fault.error is not None and not self._fault.committed:
            raise self._fault.error

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        if kind is None and self._fault is not None and self._fault.error is not None and self._fault.committed:
            raise self._fault.error


def _selected(body: JsonObject, selector: str) -> bool:
    path, _, value = selector.partition("=")
    found: object = body
    for key in path.split("."):
        found = found.get(key, "") if isinstance(found, dict) else ""
    return found == value
