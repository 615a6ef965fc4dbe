"""The way from v1alpha1 that docs/install.md describes, on a control plane of its own: it takes definitions away."""

import yaml
from typer.testing import CliRunner

from homelab_api.crd import definitions
from homelab_autoscaler.cli.manifests import app
from homelab_autoscaler.install.migrate import OLD_VERSION
from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.testing.control_plane import control_plane as running_control_plane

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OURS = "/apis/infra.homecluster.dev"
POD = {"image": "curlimages/curl:8.17.0", "args": ["http://bmc.example/on"]}


def old_definition(kind, plural):
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": kind, "plural": plural}
    return {
        "metadata": {"name": f"{plural}.infra.homecluster.dev"},
        "spec": {"group": "infra.homecluster.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def served(api, version, plural):
    where = f"{OURS}/{version}/namespaces/default/{plural}"
    eventually(lambda: api.request("GET", where).status == 200, 30, what=f"{where} is served")
    return where


def test_an_exported_pool_is_taken_by_the_new_definitions(tmp_path):
    with running_control_plane() as plane:
        api = plane.api()
        for kind, plural in (("Group", "groups"), ("Node", "nodes")):
            api.create(CRDS, old_definition(kind, plural))
        slot = {"kubernetesNodeName": "pc-1", "powerState": "on", "startupPodSpec": POD, "shutdownPodSpec": POD}
        old = {
            "groups": {"metadata": {"name": "rack"}, "spec": {"name": "rack", "maxSize": 2, "nodeSelector": {}}},
            "nodes": {"metadata": {"name": "pc-1", "labels": {"group": "rack"}}, "spec": slot},
        }
        exported = []
        for plural, body in old.items():
            kind = {"apiVersion": OLD_VERSION, "kind": plural[:-1].capitalize()}
            exported.append(api.create(served(api, "v1alpha1", plural), kind | body))
        (tmp_path / "old.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": exported}))

        for plural in old:
            api.request("DELETE", f"{CRDS}/{plural}.infra.homecluster.dev")
            eventually(lambda p=plural: api.request("GET", f"{CRDS}/{p}.infra.homecluster.dev").status == 404, 30)
        for body in definitions():
            api.create(CRDS, body)
        new = list(yaml.safe_load_all(CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml")]).stdout))
        assert [body["kind"] for body in new] == ["Group", "Node"]
        for body in new:
            plural = f"{body['kind'].lower()}s"
            api.create(served(api, "v2alpha1", plural), body, fieldValidation="Strict")

        flags = CliRunner().invoke(app, ["startup-taints", f"--kubeconfig={plane.kubeconfig}"])
        assert flags.stdout == "--startup-taint=node.cilium.io/agent-not-ready\n", flags.output
