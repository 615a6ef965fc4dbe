"""OpenAPI v3: enough for kubectl's validation on the server and for `kubectl explain`.

Schemas of custom resources are the CRDs' own. Those of built-in kinds have fields and types but no descriptions.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.sandbox.apiserver.builtin.types import OBJECT_META

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Registry, Resource
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

_TYPES = {"string", "integer", "number", "boolean"}
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


class OpenApi:
    """The documents, one per group and version, made when asked for."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._epoch = -1
        self._documents: dict[str, bytes] = {}
        self._hashes: dict[str, str] = {}

    def _refresh(self) -> None:
        if self._epoch == self._registry.epoch:
            return
        self._epoch = self._registry.epoch
        self._documents.clear()
        self._hashes = {
            _key(group, version): hashlib.sha256(
                orjson.dumps([[item.plural, item.kind, item.schema.openapi if item.schema else None] for item in found])
            )
            .hexdigest()
            .upper()[:32]
            for (group, version), found in self._registry.group_versions().items()
        }

    def root(self) -> JsonObject:
        """GET /openapi/v3."""
        self._refresh()
        return {
            "paths": {
                key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={digest}"} for key, digest in self._hashes.items()
            }
        }

    def current_hash(self, key: str) -> str | None:
        """The hash of a document; None when there is none under that key."""
        self._refresh()
        return self._hashes.get(key)

    def document(self, key: str) -> bytes | None:
        """GET /openapi/v3/KEY."""
        self._refresh()
        if key not in self._hashes:
            return None
        if key not in self._documents:
            resources = next(
                found
                for (group, version), found in self._registry.group_versions().items()
                if _key(group, version) == key
            )
            self._documents[key] = orjson.dumps(_document(resources))
        return self._documents[key]


def _key(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _gvk(resource: Resource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _document(resources: list[Resource]) -> JsonObject:
    schemas: dict[str, JsonObject] = {}
    writer = _Writer(schemas)
    paths: JsonObject = {}
    for resource in resources:
        name = _schema_name(resource)
        if resource.schema is not None:
            schema = _with_frame(resource.schema.openapi, writer)
        else:
            schema = writer.inline(resource.shape)
        schema["x-kubernetes-group-version-kind"] = [_gvk(resource)]
        schemas[name] = schema
        _add_paths(paths, resource, name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    reverse = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{reverse}.{resource.version}.{resource.kind}"


def _add_paths(paths: JsonObject, resource: Resource, name: str) -> None:
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced:
        base += "/namespaces/{namespace}"
    reference = {"$ref": f"#/components/schemas/{name}"}
    content = {"application/json": {"schema": reference}}
    operation = {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    parameters = [{"name": item, "in": "query", "schema": {"type": "string"}} for item in _PARAMETERS]
    body = {"content": {"*/*": {"schema": reference}}}
    collection: JsonObject = {}
    if "list" in resource.verbs:
        collection["get"] = {**operation, "x-kubernetes-action": "list"}
    if "create" in resource.verbs:
        collection["post"] = {
            **operation,
            "x-kubernetes-action": "post",
            "parameters": parameters,
            "requestBody": body,
        }
    paths[f"{base}/{resource.plural}"] = collection
    if "get" not in resource.verbs:
        return
    one: JsonObject = {"get": {**operation, "x-kubernetes-action": "get"}}
    for method, action in (("put", "put"), ("patch", "patch")):
        one[method] = {**operation, "x-kubernetes-action": action, "parameters": parameters, "requestBody": body}
    one["delete"] = {**operation, "x-kubernetes-action": "delete"}
    paths[f"{base}/{resource.plural}/{{name}}"] = one
    for item in resource.subresources.values():
        entry: JsonObject = {}
        for verb, method in (("get", "get"), ("update", "put"), ("patch", "patch"), ("create", "post")):
            if verb in item.verbs:
                entry[method] = {**operation, "x-kubernetes-action": method}
                if method != "get":
                    entry[method]["parameters"] = parameters
        paths[f"{base}/{resource.plural}/{{name}}/{item.name}"] = entry


def _with_frame(schema: JsonObject, writer: _Writer) -> JsonObject:
    """A CRD's schema with the fields that every object has."""
    properties = dict(schema.get("properties") or {})
    properties["apiVersion"] = {"type": "string", "description": "The version of this representation."}
    properties["kind"] = {"type": "string", "description": "The kind of this object."}
    properties["metadata"] = {
        "description": "Standard object's metadata.",
        "allOf": [writer.reference(OBJECT_META)],
    }
    return {**schema, "properties": properties}


class _Writer:
    """Turns shapes of built-in types into schemas; named types become components."""

    def __init__(self, schemas: dict[str, JsonObject]) -> None:
        self._schemas = schemas

    def reference(self, shape: Shape) -> JsonObject:
        """A reference to a named type."""
        name = f"io.k8s.{shape.name}"
        if name not in self._schemas:
            self._schemas[name] = {}
            self._schemas[name] = self.inline(shape)
        return {"$ref": f"#/components/schemas/{name}"}

    def inline(self, shape: Shape) -> JsonObject:
        """The schema of an object in full."""
        return {
            "type": "object",
            "properties": {key: self.of(child) for key, child in shape.fields.items()},
        }

    def of(self, shape: Shape) -> JsonObject:
        """The schema of any value."""
        kind = shape.kind
        if kind == "object":
            return {"allOf": [self.reference(shape)]}
        if kind == "map":
            assert shape.values is not None
            return {"type": "object", "additionalProperties": self.of(shape.values)}
        if kind == "list":
            assert shape.items is not None
            found: dict[str, Any] = {"type": "array", "items": self.of(shape.items)}
            if shape.keys:
                found["x-kubernetes-list-type"] = "map"
                found["x-kubernetes-list-map-keys"] = list(shape.keys)
            if shape.merge is not None:
                found["x-kubernetes-patch-strategy"] = "merge"
                if shape.merge:
                    found["x-kubernetes-patch-merge-key"] = shape.merge
            return found
        if kind in _TYPES:
            return {"type": kind}
        if kind in {"time", "microtime"}:
            return {"type": "string", "format": "date-time"}
        if kind == "bytes":
            return {"type": "string", "format": "byte"}
        if kind in {"int-or-string", "quantity"}:
            return {"oneOf": [{"type": "string"}, {"type": "number"}]}
        return {}
