"""Our kinds on the control plane that the tests of a session share."""

import uuid
from pathlib import Path

import pytest
import yaml

from homelab_autoscaler.runtime.testing import eventually

SHIPPED = Path(__file__).parents[2] / "config" / "crd" / "bases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def admin(control_plane):
    """A client of paths and bodies that may do everything."""
    return control_plane.api()


@pytest.fixture(scope="session")
def our_kinds(admin):
    """Installs our definitions as they are shipped, once, and waits until their objects can be asked for."""
    bodies = [yaml.safe_load(path.read_text()) for path in SHIPPED.glob("*.yaml")]
    for definition in [admin.create(CRDS, body, fieldValidation="Strict") for body in bodies]:
        spec = definition["spec"]
        where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        eventually(lambda where=where: admin.request("GET", where).status == 200, 30, what=f"{where} is served")


@pytest.fixture
def make_namespace(admin):
    """Creates a namespace that no other test uses; returns its name."""

    def make():
        name = f"ns-{uuid.uuid4().hex[:10]}"
        admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    return make
