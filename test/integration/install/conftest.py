import pytest
from installed.world import InstalledWorld

from homelab_api import names
from homelab_autoscaler.install.roles import POOLS_NAMESPACE


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An installation on a control plane that authorises; no manager runs yet."""
    with InstalledWorld(tmp_path_factory.mktemp("installed")) as world:
        yield world


@pytest.fixture
def inspected(tmp_path):
    """The same on the embedded control plane, which tells what it decided and can be made to fail."""
    with InstalledWorld(tmp_path, inspected=True) as world:
        yield world


@pytest.fixture(scope="module")
def pool(installed):
    found = installed.pool()
    found.create_group()
    return found


@pytest.fixture(scope="module")
def person(installed):
    """Somebody who may write everything of ours in the pools' namespace but holds no further right."""
    for name in ("operator", "admin"):
        installed.kubectl(
            "create", "rolebinding", name, f"--namespace={POOLS_NAMESPACE}", "--user=person",
            f"--clusterrole=homelab-autoscaler-{name}",
        )  # fmt: skip
    installed.kubectl(
        "create", "role", "reclaims", f"--namespace={POOLS_NAMESPACE}", "--verb=create",
        f"--resource=nodereclaims.{names.GROUP}",
    )  # fmt: skip
    installed.kubectl(
        "create", "rolebinding", "reclaims", f"--namespace={POOLS_NAMESPACE}", "--user=person", "--role=reclaims"
    )
    return installed.acting_as("person")
