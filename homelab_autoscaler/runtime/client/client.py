"""Client: typed requests that always ask the API server. Cached reads are a Lister's business."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import orjson

from homelab_api.meta import JsonObject, KubeObject
from homelab_autoscaler.runtime import deadline
from homelab_autoscaler.runtime.client.paths import collection_path, object_path, with_query
from homelab_autoscaler.runtime.client.retry import RetryPolicy
from homelab_autoscaler.runtime.client.transport import DEFAULT_TIMEOUT, Transport
from homelab_autoscaler.runtime.errors import ApiError, GoneError, TransportError, from_reply
from homelab_autoscaler.runtime.patch import ApplyPatch, MergePatch, Patch, merge
from homelab_autoscaler.runtime.stop import StopSignal

if TYPE_CHECKING:
    from homelab_api.core import Pod
    from homelab_autoscaler.runtime.client.transport import Reply
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.config import ClientConfig

T = TypeVar("T", bound=KubeObject)
Propagation = Literal["Background", "Foreground", "Orphan"]
PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """A list as of one moment of the server.

    Attributes:
        items: the objects, in the server's order (by namespace and name).
        resource_version: the moment; a watch may start from it.
    """

    items: list[T]
    resource_version: str


class Write(NamedTuple):
    """A write that the server has taken.

    Attributes:
        kind: class of the written object.
        namespace: "" for cluster-scoped objects.
        name: of the object.
        uid: of the object; "" if the reply did not tell.
        resource_version: of the object after the write; "" when it is gone.
        deleted: it was a delete.
    """

    kind: type[KubeObject]
    namespace: str
    name: str
    uid: str
    resource_version: str
    deleted: bool = False


WriteObserver = Callable[[Write], None]


class Client:
    """Reads and writes that go to the API server; safe to share between threads.

    Guarantee: a method returns only what the server answered. Failures are ApiError; a TransportError means that
    nobody knows whether a write happened: read back. Requests are repeated as `retry` says, never beyond its bounds,
    and never past the time limit of the reconcile that they belong to (`deadline`).

    Args:
        config: where and as whom.
        clock: for waits between attempts.
        transport: share a pool with others; made from `config` if None.
        field_manager: the owner of the fields that this client writes.
        retry: bounds of repetition.
        timeout: seconds for one attempt.
        guard: called before each attempt of a write; raises to refuse it (a manager that lost its lead).
        rng: jitter.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        transport: Transport | None = None,
        field_manager: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        guard: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.transport = transport or Transport(config, clock)
        self.config = config
        self._clock = clock
        self._field_manager = field_manager
        self._as_manager = with_query("", {"fieldManager": field_manager})
        self._retry = retry or RetryPolicy()
        self._timeout = timeout
        self._guard = guard
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._closing = StopSignal()
        self._observers: list[WriteObserver] = []

    # --- reads --------------------------------------------------------------------------------------------

    def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """Read one object.

        Raises:
            NotFoundError: it does not exist, or its kind does not.
            ApiError: any other answer.
        """
        return kind.from_json(self._json("GET", object_path(kind.resource, name, namespace)))

    def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        known: Callable[[JsonObject], T | None] | None = None,
    ) -> ObjectList[T]:
        """Read all objects of a kind, of one namespace or of all, in pages of 500.

        All pages show the same moment. If the server forgets that moment half-way, the list starts over unpaged.

        Args:
            kind: which objects.
            namespace: only there; None for all.
            label_selector: only those with such labels.
            field_selector: only those with such fields.
            known: given an object's metadata, the model of that very uid and resourceVersion, so that it is not decoded
                once more; None if there is none.
        """

        def read(item: JsonObject) -> T:
            found = None if known is None else known(item["metadata"])
            return kind.from_json(item) if found is None else found

        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        path = collection_path(kind.resource, namespace)
        try:
            items: list[T] = []
            version = ""
            for page in self._pages(path, selectors):
                items.extend(map(read, page.get("items") or []))
                version = page["metadata"].get("resourceVersion", "")
            return ObjectList(items, version)
        except GoneError:
            page = self._json("GET", with_query(path, selectors))
            entries = list(map(read, page.get("items") or []))
            return ObjectList(entries, page["metadata"].get("resourceVersion", ""))

    def _pages(self, path: str, selectors: dict[str, str | None]) -> Iterator[JsonObject]:
        token: str | None = None
        while True:
            page = self._json("GET", with_query(path, {**selectors, "limit": PAGE_SIZE, "continue": token}))
            yield page
            token = page.get("metadata", {}).get("continue") or None
            if token is None:
                return

    # --- writes -------------------------------------------------------------------------------------------

    def create(self, obj: T) -> T:
        """Create an object; its namespace is its metadata's.

        Raises:
            AlreadyExistsError: an object of that name is there.
            InvalidError: the schema or a rule refuses it; `causes` name the fields.
            TransportError: unknown outcome; not repeated.
        """
        return self.create_json(type(obj), obj.to_json(), obj.metadata.namespace)

    def create_json(self, kind: type[T], body: JsonObject, namespace: str | None) -> T:
        """Create from JSON, for fields that the model does not know; apiVersion and kind are filled in. See create."""
        body = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **body}
        target = collection_path(kind.resource, namespace) + self._as_manager
        created = kind.from_json(self._json("POST", target, body=body, repeatable=False))
        self._wrote(kind, created)
        return created

    def update(self, obj: T) -> T:
        """Replace the whole object (PUT); with its resourceVersion in the metadata the server compares.

        Fields that the model does not know are lost: only for kinds whose model is complete. Prefer `patch`.

        Raises:
            ConflictError: the object has changed since.
        """
        path = object_path(obj.resource, obj.name, obj.metadata.namespace)
        updated = type(obj).from_json(self._json("PUT", path + self._as_manager, body=obj.to_json()))
        self._wrote(type(obj), updated)
        return updated

    def patch(
        self, kind: type[T], name: str, namespace: str | None, patch: Patch, *, subresource: str | None = None
    ) -> T:
        """Change part of an object and return the whole of it.

        Raises:
            NotFoundError: no such object (except with ApplyPatch, which creates it).
            ConflictError: a resourceVersion or test in the patch does not hold, or another manager owns a field.
            InvalidError: the result breaks the schema or a rule.
        """
        path = object_path(kind.resource, name, namespace, subresource)
        target = path + self._as_manager
        if isinstance(patch, ApplyPatch):
            manager = patch.field_manager or self._field_manager
            if manager is None:
                raise ValueError("server-side apply needs a field manager: give one to the ApplyPatch or the Client")
            target = with_query(path, {"fieldManager": manager, "force": patch.force or None})
        body = self._json(
            "PATCH",
            target,
            body=patch.body,
            content_type=patch.content_type,
            repeatable=patch.repeatable,
        )
        patched = kind.from_json(body)
        self._wrote(kind, patched)
        return patched

    def patch_status(self, current: T, status: JsonObject, *, resource_version: str | None = None) -> T:
        """Merge-patch the status subresource; no request is made when that would change nothing of `current`.

        `current` decides what counts as a change, so it may be a cached object: if it is old, the worst cases are a
        write that changes nothing, or one skipped that the next pass makes. A value that the model does not know
        counts as changed.

        Args:
            current: the object as last read.
            status: the fields to change; null deletes one, a list replaces the whole list.
            resource_version: fail with ConflictError unless the object still has it.

        Returns:
            The object after the write, or `current` itself when nothing was written.
        """
        dumped = current.model_dump(mode="json", by_alias=True, exclude_none=True, include={"status"})
        before = dumped.get("status", {})
        if merge(before, status) == before:
            return current
        body: JsonObject = {"status": status}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        return self.patch(
            type(current), current.name, current.metadata.namespace, MergePatch(body), subresource="status"
        )

    def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_period: int | None = None,
    ) -> None:
        """Ask for the end of an object; with finalizers it stays, marked, until they are gone.

        A repeat after a lost reply may answer NotFoundError although this call deleted it.

        Raises:
            NotFoundError: it does not exist.
            ConflictError: it has another uid or resourceVersion than the ones given.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in preconditions.items() if value is not None} or None,
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_period,
        }
        body = {key: value for key, value in body.items() if value is not None}
        reply = self._json("DELETE", object_path(kind.resource, name, namespace), body=body)
        if self._observers:
            metadata = reply.get("metadata") if reply.get("kind") != "Status" else None
            marked = bool(metadata and metadata.get("deletionTimestamp"))
            seen = metadata.get("uid", "") if metadata else (reply.get("details") or {}).get("uid", "")
            version = metadata.get("resourceVersion", "") if metadata and marked else ""
            self._tell(Write(kind, namespace or "", name, uid or seen, version, deleted=True))

    def evict(self, pod: Pod, *, grace_period: int | None = None) -> None:
        """Ask to evict this very pod (by uid) through the Eviction API, which honours disruption budgets.

        Raises:
            TooManyRequestsError: a budget blocks it (`disruption_budget` is True then); not repeated here.
            NotFoundError: it is gone. ConflictError: another pod has its name.
        """
        options: JsonObject = {"preconditions": {"uid": pod.uid}}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        body: JsonObject = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        path = object_path(pod.resource, pod.name, pod.namespace, "eviction")
        self._json("POST", path, body=body, repeatable=False)

    # --- around -------------------------------------------------------------------------------------------

    def on_write(self, observer: WriteObserver) -> None:
        """Be told of each write that the server took, in the writing thread, right after its reply."""
        self._observers.append(observer)

    def close(self) -> None:
        """Stop repeating requests and drop idle connections."""
        self._closing.set()
        self.transport.close()

    def _wrote(self, kind: type[KubeObject], obj: KubeObject) -> None:
        if self._observers:
            self._tell(Write(kind, obj.namespace, obj.name, obj.uid, obj.metadata.resource_version))

    def _tell(self, write: Write) -> None:
        for observer in self._observers:
            observer(write)

    def _json(
        self,
        method: str,
        target: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        repeatable: bool = True,
    ) -> JsonObject:
        data = None if body is None else orjson.dumps(body)
        reply = self._send(method, target, data, content_type, repeatable=repeatable)
        try:
            answer = orjson.loads(reply.body)
        except orjson.JSONDecodeError as error:
            raise TransportError(f"{method} {target}: the answer is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise TransportError(f"{method} {target}: the answer is not an object")
        return answer

    def _send(self, method: str, target: str, data: bytes | None, content_type: str, *, repeatable: bool) -> Reply:
        started = self._clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            left = deadline.check(self._clock)
            if self._guard is not None and method != "GET":
                self._guard()
            timeout = self._timeout if left is None else min(self._timeout, left)
            error: ApiError
            try:
                reply = self.transport.request(
                    method, target, body=data, content_type=content_type, timeout=timeout, attempt=attempt
                )
            except TransportError as failure:
                error = failure
            else:
                if reply.status < 400:
                    return reply
                error = from_reply(reply.status, reply.body, reply.headers, self._clock.now())
            delay = self._retry.delay(error, attempt, repeatable=repeatable, rng=self._rng)
            elapsed = self._clock.monotonic() - started
            left = deadline.remaining(self._clock)
            budget = self._retry.total - elapsed if left is None else min(left, self._retry.total - elapsed)
            if delay is None or delay > budget or self._clock.sleep(delay, self._closing):
                raise error
