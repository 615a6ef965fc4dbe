"""The product's own definitions on the embedded API server: installed as they are shipped, samples accepted."""

from pathlib import Path

import pytest
import yaml

from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing import running_api_server

ROOT = Path(__file__).parents[3]
CRDS = sorted((ROOT / "config/crd/bases").glob("*.yaml"))
SAMPLES = sorted(path for path in (ROOT / "config/samples").glob("*.yaml") if path.stem != "kustomization")
PATHS = {"Group": "groups", "Node": "nodes", "NodeClaim": "nodeclaims", "NodeReclaim": "nodereclaims"}


@pytest.fixture(scope="module")
def installed():
    with running_api_server() as server:
        api = server.client()
        for path in CRDS:
            manifest = yaml.safe_load(path.read_text())
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest, fieldValidation="Strict")
        yield api


def collection(manifest):
    group = manifest["apiVersion"]
    namespace = manifest["metadata"].get("namespace", "default")
    return f"/apis/{group}/namespaces/{namespace}/{PATHS[manifest['kind']]}"


def manifests():
    return [
        pytest.param(manifest, id=f"{path.stem}-{manifest['metadata']['name']}")
        for path in SAMPLES
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest and manifest["apiVersion"].startswith("infra.homecluster.dev/")
    ]


@pytest.mark.parametrize("manifest", manifests())
def test_a_sample_is_accepted_under_strict_validation_and_changes_only_by_defaults(installed, manifest):
    namespace = manifest["metadata"].get("namespace", "default")
    try:
        installed.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    except ApiStatusError as error:
        assert error.reason == "AlreadyExists"  # noqa: PT017  (another sample may have made it)
    created = installed.create(collection(manifest), manifest, fieldValidation="Strict")
    for key, value in manifest["spec"].items():
        assert contains(created["spec"][key], value), key


def contains(found, wanted):
    if isinstance(wanted, dict):
        return all(contains(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(contains, found, wanted))
    return found == wanted


def test_the_samples_cover_something():
    assert len(manifests()) >= 3
    assert len(CRDS) >= 4
