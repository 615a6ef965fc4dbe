"""What `manifests` prints is what the install applies."""

import pytest
import yaml
from typer.testing import CliRunner

from homelab_autoscaler.cli.failure import UsageError
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


OLD = """\
apiVersion: infra.homecluster.dev/v1alpha1
kind: Node
metadata: {name: pc-1, labels: {group: rack}}
spec:
  kubernetesNodeName: pc-1
  powerState: on  # as people write it: a boolean
  startupPodSpec: {image: a/on}
  shutdownPodSpec: {image: a/off}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: v1
kind: List
items:
  - apiVersion: infra.homecluster.dev/v1alpha1
    kind: Group
    metadata: {name: rack}
    spec: {maxSize: 3}
"""


def test_migrate_prints_what_can_be_applied_and_tells_the_rest_on_stderr(tmp_path):
    (tmp_path / "old.yaml").write_text(OLD)
    done = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml")])
    assert done.exit_code == 0, done.output
    node, group = yaml.safe_load_all(done.stdout)
    assert (node["kind"], node["apiVersion"]) == ("Node", "infra.homecluster.dev/v2alpha1")
    assert (group["kind"], group["spec"]) == ("Group", {"maxSize": 3, "adoptRunningMachines": True})
    assert "Node pc-1: spec.powerState asked for the machine to be on" in done.stderr
    assert "Group rack: spec.adoptRunningMachines is set" in done.stderr


def test_migrate_reads_standard_input():
    done = CliRunner().invoke(app, ["migrate"], input=OLD)
    assert [body["metadata"]["name"] for body in yaml.safe_load_all(done.stdout)] == ["pc-1", "rack"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to migrate"),
        ("kind: Secret\napiVersion: v1\n", "nothing to migrate"),
        ("- a\n- b\n", "old.yaml, document 1 is no Kubernetes object"),
        ("a: [", "old.yaml cannot be read"),
        ("---\n" + OLD.replace("name: pc-1, ", "", 1), "old.yaml, document 1: metadata.name is missing"),
    ],
)
def test_migrate_says_which_file_and_document_it_cannot_take(tmp_path, text, says):
    (tmp_path / "old.yaml").write_text(text)
    done = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml")])
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)
    assert not done.stdout


def test_a_file_that_is_not_there_is_named(tmp_path):
    done = CliRunner().invoke(app, ["migrate", str(tmp_path / "none.yaml")])
    assert "none.yaml cannot be read" in str(done.exception)


GROUPS = """\
apiVersion: infra.homecluster.dev/v2alpha1
kind: Group
metadata: {name: %s}
spec: {nodeReadinessTaints: %s}
"""


def test_startup_taints_are_a_flag_per_key_of_all_groups(tmp_path):
    taints = "[{key: b.example/cold, effect: NoSchedule}, {key: a.example/net, effect: NoExecute}]"
    (tmp_path / "one.yaml").write_text(GROUPS % ("one", taints))
    (tmp_path / "two.yaml").write_text(GROUPS % ("two", "[{key: a.example/net, effect: NoSchedule}]"))
    done = CliRunner().invoke(app, ["startup-taints", str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")])
    assert done.stdout.splitlines() == ["--startup-taint=a.example/net", "--startup-taint=b.example/cold"]


def test_a_group_that_names_no_taint_has_the_default_and_one_with_none_has_none(tmp_path):
    (tmp_path / "one.yaml").write_text((GROUPS % ("one", "[]")).replace("{nodeReadinessTaints: []}", "{}"))
    (tmp_path / "two.yaml").write_text(GROUPS % ("two", "[]"))
    one, two = (CliRunner().invoke(app, ["startup-taints", str(tmp_path / name)]) for name in ("one.yaml", "two.yaml"))
    assert one.stdout == "--startup-taint=node.cilium.io/agent-not-ready\n"
    assert (two.stdout, two.stderr) == ("", "no Group names a readiness taint: no flag is needed\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [(OLD, "there is no Group"), (GROUPS % ("one", "[{effect: NoSchedule}]"), "one.yaml, document 1: spec.nodeReadin")],
)
def test_startup_taints_without_a_usable_group_say_so(tmp_path, text, says):
    (tmp_path / "one.yaml").write_text(text)
    done = CliRunner().invoke(app, ["startup-taints", str(tmp_path / "one.yaml")])
    assert says in str(done.exception)
