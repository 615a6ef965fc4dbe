"""Bodies of answers in the representation that the client asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import yaml

from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import PLAIN, Representation
from homelab_autoscaler.sandbox.apiserver.presentation.tables import partial, table
from homelab_autoscaler.sandbox.apiserver.request import ApiResponse

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource
    from homelab_autoscaler.sandbox.apiserver.store import Stored


def encode(value: Any, representation: Representation = PLAIN) -> bytes:
    """JSON or YAML."""
    if representation.format == "yaml":
        return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True).encode()
    return orjson.dumps(value)


def answer(value: JsonObject, status: int, representation: Representation = PLAIN) -> ApiResponse:
    """Any JSON value as a response."""
    return ApiResponse(status, encode(value, representation), representation.content_type)


def object_answer(
    resource: Resource,
    body: JsonObject,
    status: int,
    representation: Representation,
    now: datetime,
    include: str,
) -> ApiResponse:
    """One object. A Status among them (a deletion's) is never shown as a Table."""
    if representation.form and body.get("kind") == resource.kind:
        if representation.form == "Table":
            metadata = {"resourceVersion": body["metadata"].get("resourceVersion", "")}
            return answer(table(resource, [body], metadata, now, include), status, representation)
        return answer(partial(body), status, representation)
    return answer(body, status, representation)


def joined_list(resource: Resource, items: list[Stored], metadata: JsonObject) -> bytes:
    """A JSON list put together from stored bytes. Items of built-in kinds leave out kind and apiVersion."""
    head = orjson.dumps({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
    if resource.custom:
        parts = [item.raw for item in items]
    else:
        start = len(resource.prefix)
        parts = [b"{" + item.raw[start:] for item in items]
    return head[:-1] + b',"items":[' + b",".join(parts) + b"]}"


def list_body(resource: Resource, bodies: list[JsonObject], metadata: JsonObject) -> JsonObject:
    """A list of objects that are parsed already."""
    items = bodies
    if not resource.custom:
        items = [{key: value for key, value in body.items() if key not in {"kind", "apiVersion"}} for body in bodies]
    return {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata, "items": items}


def list_answer(
    resource: Resource,
    bodies: list[JsonObject],
    metadata: JsonObject,
    representation: Representation,
    now: datetime,
    include: str,
) -> ApiResponse:
    """A list in any representation."""
    if representation.form == "Table":
        return answer(table(resource, bodies, metadata, now, include), 200, representation)
    if representation.form:
        shown = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": [partial(body) for body in bodies],
        }
        return answer(shown, 200, representation)
    return answer(list_body(resource, bodies, metadata), 200, representation)
