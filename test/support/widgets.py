"""Widget: a custom kind with defaults, bounds, rules, a list map and free fields, for tests of an API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

SIZE = {"type": "integer", "minimum": 0, "maximum": 100, "default": 1}
PART = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
}
WIDGET_SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low exceeds high"}
            ],
            "properties": {
                "size": SIZE,
                "low": {"type": "integer"},
                "high": {"type": "integer"},
                "fixed": {
                    "type": "string",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}],
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": PART,
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string", "enum": ["Ready", "Failed"]}}},
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
]


def definition(
    plural: str,
    kind: str,
    schema: JsonObject,
    group: str = "test.example.dev",
    scope: str = "Namespaced",
    **version: Any,
) -> JsonObject:
    """A CustomResourceDefinition with one version."""
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


def widgets_definition() -> JsonObject:
    """The definition of Widgets."""
    return definition("widgets", "Widget", WIDGET_SCHEMA, subresources={"status": {}}, additionalPrinterColumns=COLUMNS)


def widget(name: str = "w", spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """A Widget."""
    return {
        "apiVersion": "test.example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 3} if spec is None else spec,
    }
