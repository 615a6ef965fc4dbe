"""What Kubernetes promises: these tests hold on the embedded control plane and on a real kube-apiserver alike."""

import pytest
from wire import Wire

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.status import ApiStatusError

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
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


def definition(plural, kind, schema, group="test.example.dev", scope="Namespaced", **version):
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


@pytest.fixture(scope="session")
def api(admin):
    return admin


@pytest.fixture(scope="session")
def define(api):
    """Creates a definition and waits until its objects can be asked for."""

    def create(*arguments, **options):
        made = api.create(CRDS, definition(*arguments, **options))
        spec = made["spec"]
        where = f"/apis/{spec['group']}/v1/{spec['names']['plural']}"

        def served():
            conditions = api.get(f"{CRDS}/{made['metadata']['name']}")["status"].get("conditions") or []
            established = any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
            return established and api.request("GET", where).status == 200

        eventually(served, 30, what=f"{where} is served")
        return made

    return create


@pytest.fixture(scope="session")
def widgets_defined(define):
    define("widgets", "Widget", WIDGET_SCHEMA, subresources={"status": {}}, additionalPrinterColumns=COLUMNS)


@pytest.fixture
def namespace(make_namespace):
    return make_namespace()


@pytest.fixture
def config_maps(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def widgets(namespace, widgets_defined):
    return f"/apis/test.example.dev/v1/namespaces/{namespace}/widgets"


@pytest.fixture(scope="session")
def widget():
    def make(name="w", spec=None, **metadata):
        return {
            "apiVersion": "test.example.dev/v1",
            "kind": "Widget",
            "metadata": {"name": name, **metadata},
            "spec": {"size": 3} if spec is None else spec,
        }

    return make


@pytest.fixture(scope="session")
def wire(control_plane):
    """Raw requests as the administrator."""
    return Wire(control_plane.kubeconfig)


@pytest.fixture
def settles():
    """Waits until an action passes that the server refuses at first, and returns its result."""

    def wait(action, what):
        found = []

        def passes():
            try:
                found.append(action())
            except ApiStatusError:
                return False
            return True

        eventually(passes, 30, what=what)
        return found[0]

    return wait
