"""What Kubernetes promises: these tests hold on the embedded control plane and on a real kube-apiserver alike."""

import pytest
from widgets import definition, widget, widgets_definition
from wire import Wire

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.status import ApiStatusError

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def api(admin):
    return admin


@pytest.fixture(scope="session")
def install(api):
    """Creates a definition and waits until its objects can be asked for."""

    def create(body):
        made = api.create(CRDS, body)
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
def define(install):
    """The same, for a kind that is told in a few words: see `widgets.definition`."""
    return lambda *arguments, **options: install(definition(*arguments, **options))


@pytest.fixture(scope="session")
def widgets_defined(install):
    install(widgets_definition())


@pytest.fixture
def namespace(make_namespace):
    return make_namespace()


@pytest.fixture
def config_maps(namespace):
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def widgets(namespace, widgets_defined):
    return f"/apis/test.example.dev/v1/namespaces/{namespace}/widgets"


@pytest.fixture(scope="session", name="widget")
def make_widget():
    return widget


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
