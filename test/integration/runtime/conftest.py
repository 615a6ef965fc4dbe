"""Managers in threads, and names that no other test uses."""

import threading
import uuid

import pytest

from homelab_api.meta import KubeObject, ResourceInfo
from homelab_autoscaler.runtime import Manager, ManagerOptions, StopSignal
from homelab_autoscaler.runtime.testing import check_mutations, eventually
from homelab_autoscaler.sandbox.testing import running_api_server


class Namespace(KubeObject):
    """corev1 Namespace."""

    resource = ResourceInfo("", "v1", "Namespace", "namespaces", namespaced=False)


class Running:
    """A manager in a thread."""

    def __init__(self, manager):
        self.manager = manager
        self.stop = StopSignal()
        self.error = None
        self.thread = threading.Thread(target=self._run, name="manager")

    def start(self):
        self.thread.start()
        return self

    def _run(self):
        try:
            self.manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def end(self):
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        check_mutations(self.manager.cache)
        return self.error


@pytest.fixture
def manager_for():
    """Makes managers in threads, from options or as they are, and ends them."""
    running = []

    def make(config, *, manager=None, **options):
        one = Running(manager or Manager(ManagerOptions(config=config, **options)))
        running.append(one)
        return one

    yield make
    for one in running:
        if one.thread.ident:
            one.end()


@pytest.fixture
def client(control_plane):
    client = control_plane.client()
    yield client
    client.close()


@pytest.fixture
def unique():
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def namespaces(client, unique):
    """Makes so many namespaces of this test's own, beside `namespace`."""

    def make(count):
        names = [f"{unique}-{number}" for number in range(count)]
        for name in names:
            client.create_json(Namespace, {"metadata": {"name": name}}, None)
        return names

    return make


@pytest.fixture
def namespace(client, unique):
    client.create_json(Namespace, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}, None)
    eventually(lambda: client.get(Namespace, unique))
    return unique


@pytest.fixture
def embedded():
    """An embedded API server of this test's own, with fault injection."""
    with running_api_server() as server:
        yield server
