"""One API server per module, a namespace per test."""

import itertools

import pytest
from widgets import widget, widgets_definition

from homelab_autoscaler.sandbox.testing import running_api_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    with running_api_server() as running:
        running.client().create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets_definition())
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


@pytest.fixture(name="widget")
def make_widget():
    return widget
