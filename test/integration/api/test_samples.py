"""The shipped samples under the definitions as they are shipped."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SAMPLES = sorted(path for path in (ROOT / "config/samples").glob("*.yaml") if path.stem != "kustomization")
PATHS = {"Group": "groups", "Node": "nodes", "NodeClaim": "nodeclaims", "NodeReclaim": "nodereclaims"}


def manifests():
    return [
        pytest.param(manifest, id=f"{path.stem}-{manifest['metadata']['name']}")
        for path in SAMPLES
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest and manifest["apiVersion"].startswith("infra.homecluster.dev/")
    ]


@pytest.mark.parametrize("manifest", manifests())
def test_a_sample_is_accepted_under_strict_validation_and_changes_only_by_defaults(api, place, manifest):
    manifest["metadata"].pop("namespace", None)
    created = api.create(f"{place}/{PATHS[manifest['kind']]}", manifest, fieldValidation="Strict")
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
