"""The install as a person does it: kubectl apply -k, once, again, with each component, and away again."""

import pytest
import yaml
from installed.world import ROOT, kubectl

from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.testing import running_api_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
DEFAULT = str(ROOT / "config" / "default")
COMPONENTS = ["components/all-namespaces", "components/high-availability", "components/cert-manager", "prometheus"]


@pytest.fixture
def kubeconfig():
    with running_api_server(options=ApiServerOptions(rbac=True)) as server:
        yield str(server.kubeconfig)


def verdicts(applied):
    """Object to what kubectl says of it."""
    return dict(line.rsplit(" ", 1) for line in applied.stdout.splitlines())


def test_the_default_install_applies_repeats_without_a_change_takes_the_samples_and_goes_away(kubeconfig):
    first = verdicts(kubectl("apply", "-k", DEFAULT, kubeconfig=kubeconfig))
    assert set(first.values()) == {"created"}
    again = verdicts(kubectl("apply", "-k", DEFAULT, kubeconfig=kubeconfig))
    assert again.keys() == first.keys()
    assert set(again.values()) == {"unchanged"}
    samples = str(ROOT / "config" / "samples")
    kubectl("apply", "-n", "homelab-pools", "-k", samples, kubeconfig=kubeconfig)
    listed = kubectl("get", "groups.infra.homecluster.dev", "-A", "-o", "name", kubeconfig=kubeconfig)
    assert listed.stdout.split() == ["group.infra.homecluster.dev/rack"]
    kubectl("delete", "--wait=false", "-k", DEFAULT, kubeconfig=kubeconfig)
    left = kubectl("get", "deployments,clusterroles", "-A", "-o", "name", kubeconfig=kubeconfig)
    assert "homelab-autoscaler" not in left.stdout


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_builds_upon_the_default_install(component, tmp_path_factory):
    overlay = ROOT / "config" / f".overlay-{component.replace('/', '-')}"
    content = {"resources": ["../default"], "components": [f"../{component}"]}
    overlay.mkdir()
    try:
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
        built = list(yaml.safe_load_all(kubectl("kustomize", str(overlay)).stdout))
    finally:
        (overlay / "kustomization.yaml").unlink()
        overlay.rmdir()
    plain = list(yaml.safe_load_all(kubectl("kustomize", DEFAULT).stdout))
    assert len(built) > len(plain)
    deployment = next(body for body in built if body["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--all-namespaces" in arguments) == ("all-namespaces" in component)
    assert ("--webhook-cert-dir=/etc/webhook" in arguments) == ("cert-manager" in component)
    assert (deployment["spec"]["replicas"] == 2) == ("high-availability" in component)
