"""The way of every request: who asks, may they, what is it about, do it, answer.

HTTP and in-process clients come through here alike.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.control import Control
from homelab_autoscaler.sandbox.apiserver.presentation.answers import (
    answer,
    list_answer,
    object_answer,
)
from homelab_autoscaler.sandbox.apiserver.presentation.discovery import VERSION, Discovery
from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import negotiate, wants_aggregated_discovery
from homelab_autoscaler.sandbox.apiserver.presentation.openapi import OpenApi
from homelab_autoscaler.sandbox.apiserver.request import ApiRequest, ApiResponse, Target, User, parse_target
from homelab_autoscaler.sandbox.apiserver.semantics import body as bodies
from homelab_autoscaler.sandbox.apiserver.semantics import incoming
from homelab_autoscaler.sandbox.apiserver.semantics.deleting import Deleter
from homelab_autoscaler.sandbox.apiserver.semantics.eviction import Evictor
from homelab_autoscaler.sandbox.apiserver.semantics.options import delete_options, truth, write_options
from homelab_autoscaler.sandbox.apiserver.semantics.patching import APPLY, applier, maker, patch_type
from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
from homelab_autoscaler.sandbox.apiserver.semantics.rbac import Attributes, Authorizer
from homelab_autoscaler.sandbox.apiserver.semantics.reading import Reader
from homelab_autoscaler.sandbox.apiserver.semantics.reviews import Reviews
from homelab_autoscaler.sandbox.apiserver.semantics.selectors import parse_fields
from homelab_autoscaler.sandbox.apiserver.semantics.special import Special
from homelab_autoscaler.sandbox.apiserver.semantics.watching import Watching
from homelab_autoscaler.sandbox.apiserver.semantics.writing import Writer
from homelab_autoscaler.sandbox.status import (
    ApiStatusError,
    details_of,
    failure,
    method_not_allowed,
    not_found,
)

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.faults import Faults
    from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import Representation
    from homelab_autoscaler.sandbox.apiserver.semantics.identity import Authenticator
    from homelab_autoscaler.sandbox.apiserver.semantics.ownership import Owners
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource
    from homelab_autoscaler.sandbox.apiserver.semantics.writing import Make

_log = logging.getLogger(__name__)
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_RBAC = "rbac.authorization.k8s.io"
# Bounds of what an answer's headers say, so that clients with small header buffers can read it.
_WARNING_LENGTH = 256
_WARNINGS = 32


class Pipeline:
    """All handlers of one server, in order."""

    def __init__(self, plane: Plane, authorizer: Authorizer, authenticator: Authenticator, faults: Faults) -> None:
        self._plane = plane
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._faults = faults
        self._control = Control(faults, plane.writes)
        self._discovery = Discovery(plane.registry)
        self._openapi = OpenApi(plane.registry)
        self._reader = Reader(plane)
        self.watching = Watching(plane)
        self._writer = Writer(plane)
        self._deleter = Deleter(plane, self._reader)
        self._evictor = Evictor(plane, self._deleter)
        self._special = Special(plane, self._writer)
        self._reviews = Reviews(plane, authorizer, authenticator)

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer a request; whatever goes wrong becomes a Status."""
        warnings: list[str] = []
        try:
            response = await self._route(request, warnings)
        except ApiStatusError as error:
            response = self._error(error)
            warnings += [text for text in error.warnings if text not in warnings]
        except RecursionError:
            response = self._error(failure(400, "BadRequest", "the request nests too deeply"))
        except Exception:  # noqa: BLE001  (one bad request must not take the server down)
            _log.exception("unexpected error in %s %s", request.method, request.path)
            response = self._error(
                failure(500, "InternalError", "Internal error occurred: unexpected error, see the server's log", {})
            )
        for text in warnings[:_WARNINGS]:
            response.headers.append(("Warning", f"299 - {_quoted(text)}"))
        return response

    def _error(self, error: ApiStatusError) -> ApiResponse:
        response = answer(error.status, error.code)
        retry = (error.status.get("details") or {}).get("retryAfterSeconds")
        if retry:
            response.headers.append(("Retry-After", str(retry)))
        return response

    async def _route(self, request: ApiRequest, warnings: list[str]) -> ApiResponse:
        if request.method not in _VERBS:
            raise method_not_allowed()
        user = self._authenticator.authenticate(request)
        path = request.path.rstrip("/") or "/"
        target = parse_target(path)
        if target is None:
            return self._documents(request, path, user)
        verb = self._verb(request, target)
        self._authorize(request, user, verb, target)
        resource = self._plane.registry.find(target.group, target.version, target.resource)
        if resource is None or not self._scope_fits(resource, target):
            return self._no_such_resource(target)
        if resource.namespaced and target.namespace is None and verb in {"create", "deletecollection"}:
            raise method_not_allowed()
        call = Call(request, user, resource, target, verb, warnings)
        if resource.deprecation:
            call.warn(resource.deprecation)
        return await self._faults.around(call, lambda: self._dispatch(call))

    @staticmethod
    def _scope_fits(resource: Resource, target: Target) -> bool:
        if target.namespace is not None:
            return resource.namespaced
        return not (resource.namespaced and target.name)

    def _verb(self, request: ApiRequest, target: Target) -> str:
        verb = _VERBS[request.method]
        if verb == "get" and not target.name:
            return "watch" if truth(request, "watch") else "list"
        if verb == "delete" and not target.name:
            return "deletecollection"
        return verb

    def _authorize(self, request: ApiRequest, user: User, verb: str, target: Target) -> None:
        if not self._authorizer.enabled:
            return
        name = target.name
        if not name and verb in {"list", "watch", "deletecollection"}:
            # A list of one name counts as a request for that name.
            selector = request.parameter("fieldSelector")
            if selector.startswith("metadata.name="):
                try:
                    name = parse_fields(selector, ()).name() or ""
                except ApiStatusError:
                    name = ""
        namespace = target.namespace or ""
        if target.group == "" and target.resource == "namespaces" and target.name:
            namespace = target.name
        asked = Attributes(verb, target.group, target.version, target.resource, target.subresource, namespace, name)
        self._authorizer.check(user, asked)

    # Resources

    async def _dispatch(self, call: Call) -> ApiResponse:
        target, resource, verb = call.target, call.resource, call.verb
        if target.subresource:
            return await self._subresource(call)
        if verb == "create" and target.name and resource.custom:
            # A real server takes a POST to a custom object as one to its collection.
            call.target = target._replace(name="")
        elif (verb == "create" and target.name) or (verb in {"update", "patch"} and not target.name):
            if verb == "update" and resource.custom:
                raise failure(400, "BadRequest", "name must be provided")
            raise method_not_allowed()
        if verb not in resource.verbs:
            raise method_not_allowed()
        if verb == "get":
            return self._reader.get(call, self._faults.read_revision(call))
        if verb == "list":
            return self._reader.list_(call, at=self._faults.read_revision(call))
        if verb == "watch":
            return self.watching.watch(call)
        if "list" not in resource.verbs:
            return self._reviews.answer(call)
        if verb == "create":
            return await self._create(call)
        if verb == "update":
            return await self._update(call)
        if verb == "patch":
            return await self._patch(call)
        return await self._delete(call)

    async def _subresource(self, call: Call) -> ApiResponse:
        target, resource = call.target, call.resource
        found = resource.subresources.get(target.subresource)
        if found is None:
            if resource.custom:
                raise not_found(resource.plural, resource.group, target.name)
            raise failure(404, "NotFound", "the server could not find the requested resource", {})
        if call.verb not in found.verbs:
            if resource.custom:
                raise failure(
                    405,
                    "MethodNotAllowed",
                    f'{call.verb} is not supported on resources of kind "{resource.qualified()}"',
                    details_of(resource.plural, resource.group),
                )
            raise method_not_allowed()
        if found.name == "status":
            if call.verb == "get":
                return self._reader.get(call, self._faults.read_revision(call))
            return await (self._update(call) if call.verb == "update" else self._patch(call))
        if found.name == "scale":
            return await self._special.scale(call)
        if found.name == "eviction":
            return await self._evictor.evict(call)
        if found.name == "binding":
            return await self._special.bind(call)
        if found.name == "finalize":
            return await self._special.finalize(call)
        if found.name == "log":
            return await self._special.log(call)
        if call.verb == "get":
            return self._reader.get(call)
        return await (self._update(call) if call.verb == "update" else self._patch(call))

    async def _create(self, call: Call) -> ApiResponse:
        representation = negotiate(call.request.headers.get("accept", ""))
        options = write_options(call.request, "CreateOptions")
        body = incoming.read_object(call, options.field_validation)
        self._check_rights(call, body)
        created = await self._writer.create(call, body, options)
        return self._one(call, created, 201, representation)

    async def _update(self, call: Call) -> ApiResponse:
        representation = negotiate(call.request.headers.get("accept", ""))
        options = write_options(call.request, "UpdateOptions")
        body = incoming.read_object(call, options.field_validation)
        incoming.check_name(call, body)
        self._check_rights(call, body)
        used = False

        def make(old: JsonObject | None) -> tuple[JsonObject, None]:
            nonlocal used
            resource = call.resource
            if old is None and (not resource.rules.create_on_update or call.target.subresource):
                raise not_found(resource.plural, resource.group, call.target.name)
            # Made again only when another write came in between; the first one keeps the body as it was read.
            fresh = bodies.parse_json(incoming.compact(body).encode(), "") if used else body
            used = True
            return fresh, None

        changed, created = await self._writer.change(call, make, options, patching=False)
        return self._one(call, changed, 201 if created else 200, representation)

    async def _patch(self, call: Call) -> ApiResponse:
        representation = negotiate(call.request.headers.get("accept", ""))
        kind = patch_type(call)
        options = write_options(call.request, "PatchOptions", apply=kind == APPLY)
        make = applier(call, options, self._plane) if kind == APPLY else maker(call, kind, options)
        operation = "Update"
        if kind == APPLY:
            operation = "Apply"
            self._check_create_right(call)
        if call.resource.group == _RBAC:
            make = self._checked(call, make)

        changed, created = await self._writer.change(call, make, options, patching=True, operation=operation)
        return self._one(call, changed, 201 if created else 200, representation)

    def _checked(self, call: Call, make: Make) -> Make:
        """The same change, refused when its result hands out rights that the caller does not have."""

        def checked(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
            body, owners = make(old)
            self._check_rights(call, body)
            return body, owners

        return checked

    def _check_create_right(self, call: Call) -> None:
        """Applying a missing object creates it, which is a right of its own."""
        target = call.target
        if target.subresource or self._plane.collection(call.resource).get(call.key) is not None:
            return
        self._authorizer.check(
            call.user,
            Attributes(
                "create", target.group, target.version, target.resource, "", target.namespace or "", target.name
            ),
        )

    def _check_rights(self, call: Call, body: JsonObject) -> None:
        """Nobody hands out rights that they do not have."""
        if call.resource.group != _RBAC:
            return
        plural, namespace = call.resource.plural, call.target.namespace or ""
        if plural in {"roles", "clusterroles"}:
            self._authorizer.check_escalation(call.user, body, namespace, plural=plural)
        else:
            self._authorizer.check_binding(call.user, body, namespace, plural=plural)

    async def _delete(self, call: Call) -> ApiResponse:
        representation = negotiate(call.request.headers.get("accept", ""))
        body: JsonObject | None = None
        if call.request.body:
            body = bodies.parse_object(call.request.body, call.request.headers.get("content-type", ""), "DeleteOptions")
            if body.get("kind", "DeleteOptions") != "DeleteOptions":
                raise failure(400, "BadRequest", f"the body is a {body['kind']}, not DeleteOptions")
        options = delete_options(call.request, body)
        if call.verb == "deletecollection":
            removed, metadata = await self._deleter.delete_collection(call, options)
            if call.resource.custom:
                metadata.setdefault("continue", "")
            return list_answer(call.resource, removed, metadata, representation, self._plane.clock.now(), "")
        result = await self._deleter.delete(call, options)
        return self._one(call, result, 200, representation)

    def _one(self, call: Call, body: JsonObject, status: int, representation: Representation) -> ApiResponse:
        include = call.request.parameter("includeObject")
        return object_answer(call.resource, body, status, representation, self._plane.clock.now(), include)

    # Everything that is no resource

    def _documents(self, request: ApiRequest, path: str, user: User) -> ApiResponse:
        if self._authorizer.enabled:
            verb = {"HEAD": "get"}.get(request.method, request.method.lower())
            self._authorizer.check(user, Attributes(verb, path=path))
        if path in {"/readyz", "/livez", "/healthz"}:
            return ApiResponse(200, b"ok", "text/plain; charset=utf-8")
        parts = path.strip("/").split("/")
        if parts[0] == "sandbox":
            return self._control.handle(request, parts[1:]) or _plain_404()
        if request.method not in {"GET", "HEAD"}:
            return _plain_404()
        if path == "/version":
            return answer(VERSION, 200)
        if path in {"/api", "/apis"}:
            return self._discovery_root(request, path)
        document: JsonObject | None = None
        if parts == ["api", "v1"]:
            document = self._discovery.resources("", "v1")
        elif parts[0] == "apis" and len(parts) == 2:
            document = self._discovery.group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            document = self._discovery.resources(parts[1], parts[2])
        elif parts[:2] == ["openapi", "v3"]:
            return self._openapi_answer(request, "/".join(parts[2:]))
        if document is None:
            return _plain_404()
        return answer(document, 200, negotiate(request.headers.get("accept", "")))

    def _discovery_root(self, request: ApiRequest, path: str) -> ApiResponse:
        core = path == "/api"
        version = wants_aggregated_discovery(request.headers.get("accept", ""))
        if version:
            response = answer(self._discovery.aggregated(version, core=core), 200)
            response.content_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            return response
        return answer(self._discovery.api() if core else self._discovery.apis(), 200)

    def _openapi_answer(self, request: ApiRequest, key: str) -> ApiResponse:
        if not key:
            return answer(self._openapi.root(), 200)
        current = self._openapi.current_hash(key)
        if current is None:
            return _plain_404()
        asked = request.parameter("hash")
        if asked and asked != current:
            location = f"/openapi/v3/{key}?hash={current}"
            return ApiResponse(301, content_type="text/plain", headers=[("Location", location)])
        body = self._openapi.document(key)
        assert body is not None
        return ApiResponse(200, body)

    def _no_such_resource(self, target: Target) -> ApiResponse:
        """Groups with built-in kinds answer a Status; all others plain text."""
        found = self._plane.registry.group_versions().get((target.group, target.version), [])
        if any(not resource.custom for resource in found):
            raise failure(404, "NotFound", "the server could not find the requested resource", {})
        return _plain_404()


def _plain_404() -> ApiResponse:
    return ApiResponse(404, b"404 page not found\n", "text/plain; charset=utf-8")


def _quoted(text: str) -> str:
    """A warning's text as a header may carry it; names of unknown fields can hold anything."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_WARNING_LENGTH])
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
