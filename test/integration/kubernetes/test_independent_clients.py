"""The API as independent clients see it: the official Python client, kr8s, lightkube. They run unchanged."""

import subprocess
import sys

import lightkube
import pytest
from kubernetes import client, config, watch
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap


@pytest.fixture
def core(control_plane):
    with config.new_client_from_config(str(control_plane.kubeconfig)) as api:
        yield client.CoreV1Api(api)


def test_the_official_client_creates_reads_patches_and_deletes(core, namespace):
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "official"}, "data": {"a": "1"}})
    patched = core.patch_namespaced_config_map("official", namespace, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}
    core.delete_namespaced_config_map("official", namespace)
    names = [item.metadata.name for item in core.list_namespaced_config_map(namespace).items]
    assert "official" not in names


def test_a_watch_of_the_official_client_sees_changes_in_order(core, namespace):
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "seen"}})
    core.patch_namespaced_config_map("seen", namespace, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("seen", namespace)
    events = watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=start, timeout_seconds=1)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


KR8S_STORY = """
import sys
import kr8s

api = kr8s.api(kubeconfig=sys.argv[1])
body = {"metadata": {"name": "kr8s", "namespace": sys.argv[2]}, "data": {"a": "1"}}
created = kr8s.objects.ConfigMap(body, api=api)
created.create()
created.patch({"data": {"b": "2"}})
print(sorted(kr8s.objects.ConfigMap.get("kr8s", namespace=sys.argv[2], api=api).data.items()))
created.delete()
print(created.exists())
"""


def test_kr8s_works_unchanged(control_plane, namespace):
    # In a process of its own: it keeps a loop and connections for as long as the process lives.
    done = subprocess.run(
        [sys.executable, "-c", KR8S_STORY, str(control_plane.kubeconfig), namespace],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[('a', '1'), ('b', '2')]", "False"]


def test_lightkube_works_unchanged(control_plane, namespace):
    found = lightkube.KubeConfig.from_file(str(control_plane.kubeconfig))
    light = lightkube.Client(config=found, namespace=namespace, field_manager="lightkube")
    light.create(ConfigMap(metadata=ObjectMeta(name="light"), data={"a": "1"}))
    light.apply(ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="light"), data={"b": "2"}))
    assert light.get(ConfigMap, "light").data == {"a": "1", "b": "2"}
    start = light.get(ConfigMap, "light").metadata.resourceVersion
    light.delete(ConfigMap, "light")
    kind, gone = next(iter(light.watch(ConfigMap, resource_version=start)))
    assert (kind, gone.metadata.name) == ("DELETED", "light")
