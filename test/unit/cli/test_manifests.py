"""What `manifests` prints is what the install applies."""

import yaml
from typer.testing import CliRunner

from homelab_autoscaler.cli.manifests import app
from homelab_autoscaler.install.roles import Place, manager_roles, pool_roles


def printed(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.stdout))


def test_rbac_prints_the_service_account_and_the_roles_of_the_inventory():
    account, *roles = printed("rbac")
    assert account["kind"] == "ServiceAccount"
    assert roles == [*manager_roles(Place()), *pool_roles(Place())]


def test_rbac_follows_the_namespaces_that_it_is_told():
    account, *roles = printed("rbac", "--namespace=lab", "--own-namespace=elsewhere")
    assert account["metadata"]["namespace"] == "elsewhere"
    assert roles == [*manager_roles(Place("elsewhere", "lab")), *pool_roles(Place("elsewhere", "lab"))]


def test_rbac_for_every_namespace_grants_the_pools_rights_in_the_cluster():
    assert printed("rbac", "--all-namespaces")[-1]["kind"] == "ClusterRoleBinding"


def test_crds_prints_every_kind_of_ours():
    assert {body["spec"]["names"]["kind"] for body in printed("crds")} == {"Group", "Node", "NodeClaim", "NodeReclaim"}
