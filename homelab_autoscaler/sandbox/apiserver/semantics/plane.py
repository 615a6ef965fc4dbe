"""What handlers share: storage, the served resources, time, and the record of writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from homelab_autoscaler.sandbox.apiserver.store import Change, Collection, Key, Store, Stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.request import ApiRequest, Target, User
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Registry, Resource
    from homelab_autoscaler.sandbox.apiserver.writelog import WriteLog
    from homelab_autoscaler.sandbox.clock import SandboxClock

# The namespaces that every cluster has from the start.
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(slots=True)
class Call:
    """One request to one resource, on its way through the handlers.

    Attributes:
        verb: as authorisation knows it: get, list, watch, create, update, patch, delete, deletecollection.
        warnings: texts that become Warning headers.
    """

    request: ApiRequest
    user: User
    resource: Resource
    target: Target
    verb: str
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Where the named object lies."""
        return Key(self.target.namespace or "", self.target.name)

    @property
    def manager(self) -> str:
        """The default field manager: the first part of the client's User-Agent."""
        agent = self.request.headers.get("user-agent", "")
        return agent.partition("/")[0][:128] or "unknown"

    def warn(self, text: str) -> None:
        """Add a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)


class Reviewer(Protocol):
    """Validating admission, called after an object is complete and valid and before it is stored."""

    def wanted(self, call: Call, operation: str, subresource: str) -> bool:
        """Whether anybody asks to see such a request; cheap."""
        ...

    async def review(
        self,
        call: Call,
        operation: str,
        new: JsonObject | None,
        old: JsonObject | None,
        options: JsonObject,
        *,
        name: str,
        dry_run: bool,
    ) -> None:
        """Ask. Raises an ApiStatusError on a refusal."""
        ...


LogProvider: TypeAlias = "Callable[[JsonObject, str, Mapping[str, str]], Awaitable[AsyncIterator[bytes]]]"


@dataclass(slots=True)
class Plane:
    """The state of one API server.

    Attributes:
        reviewer: validating admission.
        log_provider: where container logs come from; None until a kubelet simulator registers one.
    """

    store: Store
    registry: Registry
    clock: SandboxClock
    writes: WriteLog
    reviewer: Reviewer
    log_provider: LogProvider | None = None

    def now(self) -> str:
        """The present instant as objects carry it: UTC, whole seconds."""
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def collection(self, resource: Resource) -> Collection:
        """Where a resource's objects lie."""
        return self.store.collection(resource.collection)

    def load(self, resource: Resource, stored: Stored) -> JsonObject:
        """An object in the version that the resource serves."""
        body = stored.load()
        return resource.from_storage(body) if resource.from_storage else body

    def put(self, call: Call, key: Key, body: JsonObject) -> JsonObject:
        """Commit an object that is given in the served version; return it as it was stored."""
        resource = call.resource
        stored_form = resource.to_storage(body) if resource.to_storage else body
        change = self.store.put(resource.collection, key, stored_form)
        body["metadata"]["resourceVersion"] = stored_form["metadata"]["resourceVersion"]
        self._log(call, change, key)
        return body

    def remove(self, call: Call, key: Key, last: JsonObject | None = None) -> JsonObject:
        """Commit a removal; `last` is the last state in the served version if it is newer than the stored one."""
        resource = call.resource
        if last is not None and resource.to_storage:
            last = resource.to_storage(last)
        change = self.store.delete(resource.collection, key, last)
        self._log(call, change, key)
        return self.load(resource, change.stored)

    def _log(self, call: Call, change: Change, key: Key) -> None:
        self.writes.add(call, key, change, self.clock.now())
