"""The kind that both operators look after."""

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import JsonObject, KubeObject, ResourceInfo


class Widget(KubeObject):
    """A custom object with a status."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("bench.example", "v1", "Widget", "widgets")

    spec: JsonObject = Field(default_factory=dict)
    status: JsonObject = Field(default_factory=dict)


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.bench.example"},
    "spec": {
        "group": "bench.example",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
