"""Tables: what `kubectl get` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.sandbox.apiserver.presentation.ages import age
from homelab_autoscaler.sandbox.apiserver.presentation.jsonpath import find
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Column, Resource

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.meta import JsonObject

NAME_COLUMN: JsonObject = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "The object's name, unique within its namespace.",
    "priority": 0,
}


def columns_of_crd(version: JsonObject) -> tuple[Column, ...]:
    """The printer columns of a CRD version; just the age without any."""
    defined = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]
    return tuple(_crd_column(entry) for entry in defined)


def _crd_column(entry: JsonObject) -> Column:
    path, kind = entry["jsonPath"], entry["type"]

    def cell(body: JsonObject, now: datetime) -> Any:
        values = find(body, path)
        if not values:
            return None
        return convert(values, kind, now)

    description = entry.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(entry["name"], kind, cell, description, entry.get("priority", 0), entry.get("format", ""))


def convert(values: list[Any], kind: str, now: datetime) -> Any:
    """The cell for what a column's path found; null for values of another type."""
    value = values[0]
    if kind == "string":
        if len(values) > 1 or isinstance(value, dict | list):
            return " ".join(item if isinstance(item, str) else orjson.dumps(item).decode() for item in values)
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else str(value)
    if kind == "date":
        return age(value, now) if isinstance(value, str) and value else "<unknown>" if value is None else "<invalid>"
    if kind == "integer":
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return value if kind != "boolean" or isinstance(value, bool) else None


def definitions(resource: Resource) -> list[JsonObject]:
    """The columns' headings."""
    return [
        *([NAME_COLUMN] if resource.name_column else []),
        *(
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in resource.columns
        ),
    ]


def table(
    resource: Resource,
    bodies: list[JsonObject],
    metadata: JsonObject,
    now: datetime,
    include: str,
    *,
    headings: bool = True,
) -> JsonObject:
    """A Table of objects.

    Args:
        resource: their kind.
        bodies: the objects, in the served version.
        metadata: of the list, or of the object.
        now: for ages.
        include: what rows carry: Metadata (default), None or Object.
        headings: false for all but the first event of a watch.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions(resource) if headings else None,
        "rows": [
            {
                "cells": [
                    *([body["metadata"]["name"]] if resource.name_column else []),
                    *(column.cell(body, now) for column in resource.columns),
                ],
                "object": _row_object(body, include),
            }
            for body in bodies
        ],
    }


def _row_object(body: JsonObject, include: str) -> JsonObject | None:
    if include == "None":
        return None
    return body if include == "Object" else partial(body)


def partial(body: JsonObject) -> JsonObject:
    """An object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}
