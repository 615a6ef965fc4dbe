"""The committed install, judged against the code that it installs."""

import importlib.util
import json
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from homelab_api import names
from homelab_autoscaler.cli.manager import app
from homelab_autoscaler.cli.run_webhook import AdmissionFlags
from homelab_autoscaler.install.rights import LEASE, RIGHTS, SECRETS, WEBHOOK_CONFIGURATION
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE, Place, manager_roles, pool_roles
from homelab_autoscaler.lifecycle.job_spec import JobOptions
from homelab_autoscaler.provider.server import ProviderOptions
from homelab_autoscaler.webhook import assemble

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config"


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "hack" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objects(*folders):
    """Every object of the files in these folders of config/."""
    paths = [path for folder in folders for path in sorted((CONFIG / folder).glob("*.yaml"))]
    bodies = [body for path in paths for body in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    return [body for body in bodies if body["kind"] not in {"Kustomization", "Component"}]


def named(kind, name, *folders):
    return next(body for body in objects(*folders) if (body["kind"], body["metadata"]["name"]) == (kind, name))


def deployment():
    return named("Deployment", MANAGER, "manager")


def container():
    (found,) = deployment()["spec"]["template"]["spec"]["containers"]
    return found


def test_the_committed_roles_are_what_the_inventory_says():
    assert load("generate_rbac").differing() == [], "run hack/generate_rbac.py and commit what it writes"


def test_a_stale_role_is_found(monkeypatch, tmp_path):
    generator = load("generate_rbac")
    monkeypatch.setattr(generator, "CONFIG", tmp_path / "config")
    monkeypatch.setattr("sys.argv", ["generate_rbac.py", "--check"])
    assert generator.main() == 1
    monkeypatch.setattr("sys.argv", ["generate_rbac.py"])
    assert generator.main() == 0
    assert generator.differing() == []
    (tmp_path / "config" / "rbac" / "role.yaml").write_text("rules: []\n")
    assert generator.differing() == ["config/rbac/role.yaml"]


def shipped_rules():
    everything = [*objects("rbac", "pool"), *objects("components/all-namespaces")]
    roles = [body for body in everything if body["kind"] in {"Role", "ClusterRole"}]
    assert len(roles) == 9
    return [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]


def test_no_role_has_a_wildcard():
    for name, rule in shipped_rules():
        assert "*" not in json.dumps(rule), name


def test_secrets_are_never_listed_or_watched_and_are_read_by_name_alone():
    about = [rule for _, rule in shipped_rules() if "secrets" in rule["resources"]]
    assert {verb for rule in about for verb in rule["verbs"]} == {"create", "get", "patch"}
    assert all(rule["verbs"] == ["create"] or rule["resourceNames"] for rule in about)


def test_nobody_may_hand_out_rights_act_as_others_or_create_pods():
    for name, rule in shipped_rules():
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), name
        assert not ("pods" in rule["resources"] and "create" in rule["verbs"]), name


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.scope} {right.resource} {right.verbs[0]}")
def test_a_right_for_named_objects_has_only_verbs_with_a_name_and_every_right_a_purpose(right):
    assert right.why
    assert list(right.verbs) == sorted(right.verbs)
    if right.names:
        assert not {"create", "list", "watch", "deletecollection"} & set(right.verbs)


def test_roles_bind_the_managers_service_account_of_whatever_namespace_it_has():
    built = [*manager_roles(Place("elsewhere", "lab")), *pool_roles(Place("elsewhere", "lab"))]
    bindings = [body for body in built if body["kind"].endswith("Binding")]
    assert {subject["namespace"] for body in bindings for subject in body["subjects"]} == {"elsewhere"}
    assert {body["metadata"].get("namespace") for body in bindings} == {None, "elsewhere", "lab", "kube-node-lease"}


def test_pools_of_every_namespace_take_a_cluster_role():
    assert {body["kind"] for body in pool_roles(Place(pools=None))} == {"ClusterRole", "ClusterRoleBinding"}


def test_the_deployment_runs_a_command_line_that_the_manager_understands():
    command, *flags = container()["args"]
    assert command == "manager"
    parsed = get_command(app).make_context("manager", list(flags)).params
    assert parsed["namespace"] == POOLS_NAMESPACE
    assert parsed["webhook_address"] == ":9443"
    priority = named("PriorityClass", parsed["job_priority_class"], "manager")
    assert priority["value"] > 0


def test_the_deployments_pod_is_restricted_and_has_no_more_than_it_needs():
    pod = deployment()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    limits = container()["securityContext"]
    assert limits == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container()["resources"]["limits"]["memory"]
    assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container().keys()
    accounts = [body for body in objects("rbac", "pool") if body["kind"] == "ServiceAccount"]
    assert [body["automountServiceAccountToken"] for body in accounts] == [False, False]


def test_ports_of_services_and_probes_are_ports_of_the_container():
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    defaults = {parameter.name: parameter.default for parameter in get_command(app).params}
    flags = {"metrics": "metrics_address", "health": "health_address", "grpc": "grpc_address"}
    for port, flag in flags.items():
        assert defaults[flag].endswith(f":{ports[port]}")
    services = [body for body in objects("webhook", "grpc", "prometheus") if body["kind"] == "Service"]
    assert sorted(port["targetPort"] for body in services for port in body["spec"]["ports"]) == [
        "grpc",
        "metrics",
        "webhook",
    ]
    for body in services:
        chosen = {**body["spec"]["selector"]}
        chosen.pop(names.LABEL_LEADER, None)
        assert chosen == deployment()["spec"]["selector"]["matchLabels"]
    assert named("Service", "homelab-autoscaler-grpc", "grpc")["spec"]["selector"][names.LABEL_LEADER] == "true"


def test_names_in_the_install_are_the_names_in_the_code():
    defaults = {parameter.name: parameter.default for parameter in get_command(app).params}
    grpc, webhook = ProviderOptions().service, AdmissionFlags().service
    assert named("Service", grpc, "grpc")
    assert named("Service", webhook, "webhook")
    assert named("ServiceAccount", JobOptions().service_account, "pool")["metadata"]["namespace"] == POOLS_NAMESPACE
    assert (defaults["lease_name"], defaults["grpc_service"], defaults["webhook_service"]) == (LEASE, grpc, webhook)
    assert set(SECRETS) == {webhook, *(f"{grpc}-{role}" for role in ("ca", "client", "server"))}
    assert deployment()["metadata"]["namespace"] == names.DEFAULT_NAMESPACE
    assert named("ValidatingWebhookConfiguration", assemble.CONFIGURATION, "webhook")
    assert defaults["webhook_configuration"] == assemble.CONFIGURATION == WEBHOOK_CONFIGURATION


def test_admission_is_asked_about_our_kinds_alone_never_for_deletes_and_statuses_and_never_stops_anybody():
    configuration = named("ValidatingWebhookConfiguration", MANAGER, "webhook")
    paths = set()
    for webhook in configuration["webhooks"]:
        (rule,) = webhook["rules"]
        (resource,) = rule["resources"]
        assert rule["apiGroups"] == [names.GROUP]
        assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
        assert "/" not in resource
        assert resource != "*"
        assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
        assert webhook["timeoutSeconds"] <= 5
        paths.add(webhook["clientConfig"]["service"]["path"])
    assert paths == {assemble.PATH_CLAIMS, assemble.PATH_SLOTS, assemble.PATH_GROUPS, assemble.PATH_RECLAIMS}


def test_the_default_install_declares_no_pool():
    kinds = {body["kind"] for body in objects("manager", "rbac", "pool", "webhook", "grpc", "network-policy")}
    assert not kinds & {"Group", "Node", "NodeClaim"}


def test_nobody_reaches_lifecycle_jobs_and_they_reach_no_credentials_of_the_place_they_run_in():
    policy = named("NetworkPolicy", "homelab-autoscaler-jobs", "pool")["spec"]
    assert policy["podSelector"] == {}
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert "ingress" not in policy
    blocks = [peer["ipBlock"] for rule in policy["egress"] for peer in rule.get("to", [])]
    assert all("169.254.0.0/16" in block["except"] for block in blocks)


def test_the_provider_is_reached_by_the_autoscaler_alone():
    policy = named("NetworkPolicy", MANAGER, "network-policy")["spec"]
    chosen = deployment()["spec"]["selector"]["matchLabels"]
    assert policy["podSelector"]["matchLabels"].items() <= chosen.items()
    (grpc,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == "grpc"]
    assert grpc["from"]
    assert all("cluster-autoscaler" in json.dumps(peer["podSelector"]) for peer in grpc["from"])
    assert not [rule for rule in policy["ingress"] if {"metrics", "health"} & {port["port"] for port in rule["ports"]}]
    assert not [flag for flag in container()["args"] if "insecure" in flag or "plaintext" in flag]


def test_only_the_manager_and_admins_write_statuses_slots_and_their_locks():
    writing = {"create", "update", "patch", "delete"}
    slots = {"nodes", "nodes/status", "nodeclaims/status", "groups/status", "nodereclaims/status"}
    writers = {
        name
        for name, rule in shipped_rules()
        if names.GROUP in rule["apiGroups"] and slots & set(rule["resources"]) and writing & set(rule["verbs"])
    }
    assert writers == {f"{MANAGER}-pools", f"{MANAGER}-admin"}
