import asyncio
import base64

import pytest

from homelab_autoscaler.sandbox.kubelet.runtime import NotReadyYetError
from homelab_autoscaler.sandbox.podrunner.environment import PathMap, container_environment, expand

POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}, "annotations": {"note": "y"}},
    "spec": {"nodeName": "host"},
    "status": {"podIP": "10.0.0.1"},
}
OBJECTS = {
    ("Secret", "bmc"): {"kind": "Secret", "data": {"user": base64.b64encode(b"admin").decode(), "not a name": ""}},
    ("ConfigMap", "conf"): {"kind": "ConfigMap", "data": {"mode": "fast"}, "binaryData": {"bin": "eA=="}},
}


def environment(container, base=None):
    async def lookup(kind, name):
        return OBJECTS.get((kind, name))

    return asyncio.run(container_environment(POD, container, base or {}, lookup))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("x-$(A)-$(B)", "x-1-2"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$A $(A", "$A $(A"),
        ("", ""),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text, result):
    assert expand(text, {"A": "1", "B": "2"}) == result


def test_later_variables_may_use_earlier_ones():
    found = environment({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}]})
    assert found == {"A": "1", "B": "12"}


def test_values_come_from_secrets_and_config_maps():
    env = [
        {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "bmc", "key": "user"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "mode"}}},
        {"name": "BIN", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "bin"}}},
    ]
    assert environment({"env": env}) == {"USER": "admin", "MODE": "fast", "BIN": "x"}


def test_whole_objects_are_taken_over_and_own_variables_win():
    container = {
        "envFrom": [{"secretRef": {"name": "bmc"}, "prefix": "BMC_"}, {"configMapRef": {"name": "conf"}}],
        "env": [{"name": "mode", "value": "slow"}],
    }
    assert environment(container, {"PATH": "/bin"}) == {"PATH": "/bin", "BMC_user": "admin", "mode": "slow", "bin": "x"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['app']", "x"),
        ("metadata.annotations['note']", "y"),
        ("spec.nodeName", "host"),
        ("status.podIP", "10.0.0.1"),
        ("status.unknown", ""),
    ],
)
def test_fields_of_the_pod_are_available(path, value):
    found = environment({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})
    assert found == {"X": value}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"secretKeyRef": {"name": "none", "key": "a"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "none", "key": "a"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "bmc", "key": "none"}}, "couldn't find key none in Secret n/bmc"),
    ],
)
def test_what_is_missing_is_named_and_waited_for(reference, message):
    with pytest.raises(NotReadyYetError, match=message) as caught:
        environment({"env": [{"name": "X", "valueFrom": reference}]})
    assert caught.value.waiting == "CreateContainerConfigError"


def test_what_is_optional_may_be_missing():
    container = {
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a", "optional": True}}}],
        "envFrom": [{"secretRef": {"name": "none", "optional": True}}],
    }
    assert environment(container) == {}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("/etc/bmc/password", "/real/bmc/password"),
        ("cat /etc/bmc", "cat /real/bmc"),
        ("--file=/etc/bmc/a:/etc/bmc/b", "--file=/real/bmc/a:/real/bmc/b"),
        ("/etc/bmcs", "/etc/bmcs"),
        ("/my/etc/bmc", "/my/etc/bmc"),
        ("/etc/bmc/inner/x", "/real/inner/x"),
    ],
)
def test_mount_paths_are_rewritten_where_they_stand_as_paths(text, result):
    paths = PathMap({"/etc/bmc": "/real/bmc", "/etc/bmc/inner/": "/real/inner"})
    assert paths.rewrite(text) == result
