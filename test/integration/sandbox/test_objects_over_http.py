"""The embedded API server as another client sees it: the official Python client over HTTP."""

import pytest
from kubernetes import client, config, watch

from homelab_autoscaler.sandbox.testing import running_api_server


@pytest.fixture(scope="module")
def server():
    with running_api_server() as running:
        yield running


@pytest.fixture
def core(server):
    with config.new_client_from_config(str(server.kubeconfig)) as api:
        yield client.CoreV1Api(api)


def test_the_official_client_creates_reads_patches_and_deletes(core):
    core.create_namespaced_config_map("default", {"metadata": {"name": "official"}, "data": {"a": "1"}})
    patched = core.patch_namespaced_config_map("official", "default", {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}
    core.delete_namespaced_config_map("official", "default")
    names = [item.metadata.name for item in core.list_namespaced_config_map("default").items]
    assert "official" not in names


def test_a_watch_of_the_official_client_sees_changes_in_order(core):
    start = core.list_namespaced_config_map("default").metadata.resource_version
    core.create_namespaced_config_map("default", {"metadata": {"name": "seen"}})
    core.patch_namespaced_config_map("seen", "default", {"data": {"a": "1"}})
    core.delete_namespaced_config_map("seen", "default")
    events = watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=1)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_writes_are_recorded_with_their_writer_and_fields(server):
    client = server.client("system:serviceaccount:default:tester")
    before = server.run(lambda: server.server.store.revision)
    client.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "recorded"}})
    client.patch("/api/v1/namespaces/default/configmaps/recorded", {"data": {"a": "1"}})
    writes = server.writes(before)
    assert [(write.user, write.verb, write.type) for write in writes] == [
        ("system:serviceaccount:default:tester", "create", "ADDED"),
        ("system:serviceaccount:default:tester", "patch", "MODIFIED"),
    ]
    assert writes[1].fields == ("data",)
