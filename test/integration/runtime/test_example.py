"""The example operator does what its first lines say, on any control plane: it is what people start from."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

from homelab_api.meta import KubeObject, ResourceInfo
from homelab_autoscaler.runtime import AlreadyExistsError, ApiError, ManagerOptions, MergePatch, NotFoundError
from homelab_autoscaler.runtime.recorder import CoreEvent
from homelab_autoscaler.runtime.testing import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "mirror"


class Definition(KubeObject):
    """apiextensions CustomResourceDefinition."""

    resource = ResourceInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )


def load():
    spec = importlib.util.spec_from_file_location("mirror_example", EXAMPLE / "mirror.py")
    module = sys.modules["mirror_example"] = importlib.util.module_from_spec(spec)  # types are resolved by its name
    spec.loader.exec_module(module)
    return module


example = load()


class World:
    def __init__(self, client, namespace, others):
        self.client = client
        self.namespace = namespace
        self.others = others

    def config_map(self, name, **data):
        body = {"metadata": {"name": name}, "data": data}
        return self.client.create_json(example.ConfigMap, body, self.namespace)

    def change(self, name, **data):
        return self.client.patch(example.ConfigMap, name, self.namespace, MergePatch({"data": data}))

    def mirror(self, name, source, targets):
        body = {"metadata": {"name": name}, "spec": {"source": source, "targets": targets}}
        return self.client.create_json(example.Mirror, body, self.namespace)

    def copies(self, name):
        """The data of each copy by namespace."""
        found = {}
        for namespace in self.others:
            with contextlib.suppress(NotFoundError):
                found[namespace] = self.client.get(example.ConfigMap, name, namespace).data
        return found

    def ready(self, name):
        status = self.client.get(example.Mirror, name, self.namespace).status
        return next(((c.status, c.reason, status.copies) for c in status.conditions), None)

    def gone(self, name):
        with contextlib.suppress(NotFoundError):
            self.client.get(example.Mirror, name, self.namespace)
            return False
        return True


@pytest.fixture
def world(control_plane, client, namespace, manager_for, namespaces):
    with contextlib.suppress(AlreadyExistsError):
        client.create_json(Definition, yaml.safe_load((EXAMPLE / "crd.yaml").read_text()), None)

    def served():
        with contextlib.suppress(ApiError):
            return client.list(example.Mirror, namespace) is not None
        return False

    eventually(served, 30)
    others = namespaces(2)
    manager_for(control_plane.config, manager=example.build(ManagerOptions(config=control_plane.config))).start()
    return World(client, namespace, others)


def test_copies_follow_their_source_come_back_and_go_with_the_mirror(world):
    w = world
    w.config_map("settings", color="blue")
    w.mirror("m", "settings", [*w.others, w.namespace])
    eventually(lambda: w.copies("settings") == {name: {"color": "blue"} for name in w.others})
    eventually(lambda: w.ready("m") == ("True", "Copied", 2))
    w.change("settings", color="red")
    eventually(lambda: w.copies("settings") == {name: {"color": "red"} for name in w.others})
    w.client.delete(example.ConfigMap, "settings", w.others[0])
    eventually(lambda: len(w.copies("settings")) == 2)
    w.client.patch(example.Mirror, "m", w.namespace, MergePatch({"spec": {"targets": w.others[1:]}}))
    eventually(lambda: list(w.copies("settings")) == w.others[1:])
    w.client.delete(example.Mirror, "m", w.namespace)
    eventually(lambda: w.gone("m"))
    assert w.copies("settings") == {}
    assert w.client.get(example.ConfigMap, "settings", w.namespace).data == {"color": "red"}
    assert any(e.reason == "Copied" for e in w.client.list(CoreEvent, w.namespace).items)


def test_a_missing_source_is_told_and_its_creation_heals_the_mirror(world):
    w = world
    w.mirror("m", "later", w.others)
    eventually(lambda: w.ready("m") == ("False", "SourceMissing", 0))
    w.config_map("later", answer="42")
    eventually(lambda: w.ready("m") == ("True", "Copied", 2))


def test_a_missing_namespace_is_named_and_the_other_copies_are_made(world):
    w = world
    w.config_map("settings", color="blue")
    w.mirror("m", "settings", [*w.others, f"{w.namespace}-none"])
    eventually(lambda: w.ready("m") == ("False", "NamespaceMissing", 2))
    condition = w.client.get(example.Mirror, "m", w.namespace).status.conditions[0]
    assert condition.message == f"no such namespace: {w.namespace}-none"
    w.client.delete(example.Mirror, "m", w.namespace)
    eventually(lambda: w.gone("m"))
