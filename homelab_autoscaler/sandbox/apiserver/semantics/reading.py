"""GET and LIST."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from homelab_autoscaler.sandbox.apiserver.presentation.answers import joined_list, list_answer, object_answer
from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import PLAIN, negotiate
from homelab_autoscaler.sandbox.apiserver.request import ApiResponse
from homelab_autoscaler.sandbox.apiserver.semantics.options import ListOptions, list_options, revision
from homelab_autoscaler.sandbox.apiserver.semantics.selectors import (
    FieldSelector,
    LabelSelector,
    parse_fields,
    parse_labels,
)
from homelab_autoscaler.sandbox.apiserver.store import ExpiredRevisionError, Key, Stored
from homelab_autoscaler.sandbox.status import ApiStatusError, bad_request, failure, not_found

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch is limited to."""

    namespace: str | None
    labels: LabelSelector
    fields: FieldSelector
    resource: Resource

    @classmethod
    def of(cls, call: Call, options: ListOptions) -> Selection:
        """Read the selectors of a request.

        Raises:
            ApiStatusError: 400 for selectors that do not parse.
        """
        labels = parse_labels(options.labels)
        fields = parse_fields(options.fields, call.resource.select)
        return cls(call.target.namespace, labels, fields, call.resource)

    @property
    def everything(self) -> bool:
        """No selector at all."""
        return not self.labels and not self.fields

    def matches(self, stored: Stored) -> bool:
        """Whether an object is in the selection, its namespace included."""
        key = stored.key
        if self.namespace is not None and key.namespace != self.namespace:
            return False
        if self.labels and not self.labels.matches(stored.labels):
            return False
        return not self.fields or self.fields.matches(
            key.namespace, key.name, lambda: self._served(stored), self.resource.select
        )

    def _served(self, stored: Stored) -> JsonObject:
        body = stored.load()
        return self.resource.from_storage(body) if self.resource.from_storage else body


class Reader:
    """The read path of one server."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def get(self, call: Call, at: int | None = None) -> ApiResponse:
        """One object.

        Args:
            call: which one.
            at: read it as it was at a revision (an injected fault).

        Raises:
            ApiStatusError: 404 when it is not there.
        """
        resource = call.resource
        representation = negotiate(call.request.headers.get("accept", ""))
        version = call.request.parameter("resourceVersion")
        if version:
            self.check_not_newer(revision(version))
        stored = self._plane.collection(resource).get(call.key)
        if at is not None:
            stored = self._old_state(resource, call.key, at)
        if stored is None:
            raise not_found(resource.plural, resource.group, call.target.name)
        if representation == PLAIN and resource.from_storage is None:
            return ApiResponse(200, stored.raw)
        body = self._plane.load(resource, stored)
        include = call.request.parameter("includeObject")
        return object_answer(resource, body, 200, representation, self._plane.clock.now(), include)

    def _old_state(self, resource: Resource, key: Key, at: int) -> Stored | None:
        at = max(at, self._plane.store.oldest)
        states = self._plane.store.snapshot(resource.collection, at, key.namespace)
        return next((stored for stored in states if stored.key == key), None)

    def list_(self, call: Call, options: ListOptions | None = None, at: int | None = None) -> ApiResponse:
        """Many objects, or a page of them.

        Args:
            call: of which resource and namespace.
            options: when they are parsed already.
            at: read as of a revision (an injected fault).

        Raises:
            ApiStatusError: for parameters that make no sense, 410 for versions that are gone, 504 for future ones.
        """
        options = options or list_options(call.request)
        resource = call.resource
        selection = Selection.of(call, options)
        representation = negotiate(call.request.headers.get("accept", ""))
        items, metadata = self.page(selection, options, at)
        if resource.custom:
            metadata.setdefault("continue", "")
        if representation == PLAIN and resource.from_storage is None:
            return ApiResponse(200, joined_list(resource, items, metadata))
        if representation.form:
            metadata = {key: value for key, value in metadata.items() if value != ""}
        bodies = [self._plane.load(resource, item) for item in items]
        include = call.request.parameter("includeObject")
        return list_answer(resource, bodies, metadata, representation, self._plane.clock.now(), include)

    def page(
        self, selection: Selection, options: ListOptions, at: int | None = None
    ) -> tuple[list[Stored], JsonObject]:
        """The objects of a list request and its metadata."""
        states, version, start = self._states(selection, options, at)
        if start is not None:
            states = [item for item in states if item.key >= start]
        items = states if selection.everything else [item for item in states if selection.matches(item)]
        metadata: JsonObject = {"resourceVersion": str(version)}
        if options.limit and len(items) > options.limit:
            rest = len(items) - options.limit
            items = items[: options.limit]
            metadata["continue"] = _token(version, items[-1].key, selection.namespace)
            if selection.everything:
                metadata["remainingItemCount"] = rest
        return items, metadata

    def _states(
        self, selection: Selection, options: ListOptions, at: int | None
    ) -> tuple[list[Stored], int, Key | None]:
        store = self._plane.store
        name = selection.resource.collection
        if options.token:
            if options.resource_version and options.resource_version != "0":
                raise bad_request("specifying resource version is not allowed when using continue")
            version, start = _read_token(options.token, selection.namespace)
            if version < 0:
                version = store.revision
            try:
                return store.snapshot(name, version, selection.namespace), version, start
            except ExpiredRevisionError:
                raise _continue_expired(start, selection.namespace) from None
        if at is not None:
            at = max(at, store.oldest)
            return store.snapshot(name, at, selection.namespace), at, None
        if options.resource_version and options.resource_version != "0":
            wanted = revision(options.resource_version)
            self.check_not_newer(wanted)
            if options.match == "Exact" or (options.limit and not options.match):
                try:
                    return store.snapshot(name, wanted, selection.namespace), wanted, None
                except ExpiredRevisionError as error:
                    raise expired(error) from None
        exact = selection.fields.name()
        if exact is not None and selection.namespace is not None:
            found = store.collection(name).get(Key(selection.namespace, exact))
            return [found] if found else [], store.revision, None
        return store.collection(name).items(selection.namespace), store.revision, None

    def check_not_newer(self, wanted: int) -> None:
        """Refuse to answer from a future that this server does not know.

        Raises:
            ApiStatusError: 504 with a hint to try again.
        """
        present = self._plane.store.revision
        if wanted > present:
            message = f"Too large resource version: {wanted}, current: {present}"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise failure(504, "Timeout", f"Timeout: {message}", {"causes": causes, "retryAfterSeconds": 1})


def expired(error: ExpiredRevisionError) -> ApiStatusError:
    """410 for a version that the log no longer reaches."""
    return failure(410, "Expired", f"too old resource version: {error.wanted} ({error.oldest})")


def _token(version: int, last: Key, namespace: str | None) -> str:
    start = f"{last.name}\0" if namespace is not None or not last.namespace else f"{last.namespace}/{last.name}\0"
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(token: str, namespace: str | None) -> tuple[int, Key]:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    try:
        value = dict(orjson.loads(raw))
    except (ValueError, TypeError):
        first = raw[:1].decode("latin-1")
        shown = first if first.isprintable() and first.isascii() else f"\\u{ord(first or chr(0)):04x}"
        raise bad_request(
            f"invalid continue token: continue key is not valid: invalid character '{shown}' looking for beginning of "
            "value"
        ) from None
    if value.get("v") != "meta.k8s.io/v1":
        raise bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this encoded version"
        )
    version, start = value.get("rv"), value.get("start")
    if (
        not isinstance(version, int)
        or isinstance(version, bool)
        or not isinstance(start, str)
        or not start
        or version == 0
    ):
        raise bad_request("invalid continue token: continue key is not valid: incorrect encoded start resourceVersion")
    space, slash, name = start.rpartition("/")
    return version, Key(space if slash else (namespace or ""), name)


def _continue_expired(start: Key | None, namespace: str | None) -> ApiStatusError:
    error = failure(410, "Expired", _CONTINUE_EXPIRED)
    if start is not None:
        key = Key(start.namespace, start.name.removesuffix("\0"))
        error.status["metadata"] = {"continue": _token(-1, key, namespace)}
    return error
