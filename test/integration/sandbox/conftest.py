"""One API server per module, a namespace per test."""

import itertools

import pytest

from homelab_autoscaler.sandbox.testing import running_api_server

_numbers = itertools.count()

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
                "size": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
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
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string", "enum": ["Ready", "Failed"]}}},
    },
}
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.example.dev"},
    "spec": {
        "group": "test.example.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                ],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def server():
    with running_api_server() as running:
        running.client().create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
        yield running


@pytest.fixture
def api(server):
    server.clear_faults()
    yield server.client()
    server.clear_faults()


@pytest.fixture
def namespace(api):
    name = f"ns-{next(_numbers)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def widgets(namespace):
    return f"/apis/test.example.dev/v1/namespaces/{namespace}/widgets"


@pytest.fixture
def widget():
    def make(name="w", spec=None, **metadata):
        return {
            "apiVersion": "test.example.dev/v1",
            "kind": "Widget",
            "metadata": {"name": name, **metadata},
            "spec": {"size": 3} if spec is None else spec,
        }

    return make
