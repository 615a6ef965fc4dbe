"""Small parts: stop signals, predicates, handlers, health checks, patches, addresses, configuration."""

import base64
import subprocess
import sys
import threading

import pytest
import yaml

from homelab_api.core import CoreNode, Job
from homelab_api.meta import ObjectMeta, OwnerReference
from homelab_autoscaler.runtime import ClientConfig, ConfigError, Request, StopSignal, load_config
from homelab_autoscaler.runtime import config as config_module
from homelab_autoscaler.runtime import predicate as p
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, GenericEvent, UpdateEvent
from homelab_autoscaler.runtime.handler import enqueue_owner, enqueue_self
from homelab_autoscaler.runtime.health import HealthChecks
from homelab_autoscaler.runtime.http import parse_address
from homelab_autoscaler.runtime.patch import merge
from homelab_autoscaler.runtime.testing import FakeClock

# --- stop -------------------------------------------------------------------------------------------------------------


def test_setting_a_signal_sets_its_children_and_not_its_parent():
    parent = StopSignal()
    child, sibling = parent.child(), parent.child()
    child.set()
    assert not parent.is_set()
    assert not sibling.is_set()
    parent.set()
    assert sibling.is_set()
    assert parent.child().is_set()


def test_a_wait_ends_with_the_signal_or_its_time():
    clock, stop = FakeClock(), StopSignal()
    results = []
    thread = threading.Thread(target=lambda: results.append(stop.wait(5, clock)))
    thread.start()
    clock.wait_for_waiters()
    clock.step(5)
    thread.join(5)
    thread = threading.Thread(target=lambda: results.append(clock.sleep(60, stop)))
    thread.start()
    clock.wait_for_waiters()
    stop.set()
    thread.join(5)
    assert results == [False, True]


def test_callbacks_are_called_once_and_can_be_taken_back():
    stop, called = StopSignal(), []
    stop.on_set(lambda: called.append("kept"))
    stop.on_set(lambda: called.append("removed"))()
    stop.set()
    stop.set()
    stop.on_set(lambda: called.append("late"))
    assert called == ["kept", "late"]


# --- predicates -------------------------------------------------------------------------------------------------------


def node(name="n", generation=1, version="1", uid="u", **metadata):
    return CoreNode(
        metadata=ObjectMeta(name=name, generation=generation, resource_version=version, uid=uid, **metadata)
    )


def update(old, new):
    return UpdateEvent(old, new)


OTHER_EVENTS = [CreateEvent(node()), DeleteEvent(node()), GenericEvent(node())]


@pytest.mark.parametrize(
    ("predicate", "change"),
    [
        (p.generation_changed, {"generation": 2}),
        (p.labels_changed, {"labels": {"a": "b"}}),
        (p.annotations_changed, {"annotations": {"a": "b"}}),
        (p.version_changed, {"version": "2"}),
    ],
)
def test_change_predicates_filter_updates_only(predicate, change):
    assert predicate(update(node(), node(**change)))
    assert not predicate(update(node(), node()))
    assert all(predicate(event) for event in OTHER_EVENTS)


@pytest.mark.parametrize("predicate", [p.generation_changed, p.labels_changed])
def test_a_recreated_object_always_counts_as_changed(predicate):
    assert predicate(update(node(), node(uid="other")))


def test_predicates_combine():
    yes, no = (lambda event: True), (lambda event: False)
    event = CreateEvent(node())
    assert p.all_of(yes, yes)(event)
    assert not p.all_of(yes, no)(event)
    assert p.any_of(no, yes)(event)
    assert not p.any_of()(event)
    assert p.negate(no)(event)
    assert not p.no_deletes(DeleteEvent(node()))


def test_a_label_selector_passes_an_object_that_begins_or_ceases_to_match():
    selects = p.labels({"pool": "a"})
    inside, outside = node(labels={"pool": "a", "x": "y"}), node(labels={"pool": "b"})
    assert selects(CreateEvent(inside))
    assert not selects(CreateEvent(outside))
    assert selects(update(inside, outside))
    assert selects(update(outside, inside))
    assert not selects(update(outside, outside))
    assert not p.in_namespace("ns")(CreateEvent(inside))


# --- handlers ---------------------------------------------------------------------------------------------------------


def owned(*owners, namespace="ns"):
    return Job(metadata=ObjectMeta(name="j", namespace=namespace, owner_references=list(owners)))


def owner(name, kind="Node", api_version="v1", controller=None):
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid="u", controller=controller)


def test_an_object_wakes_itself_by_its_new_state():
    assert list(enqueue_self(update(node("old"), node("new")))) == [Request("", "new")]
    assert list(enqueue_self(DeleteEvent(owned()))) == [Request("ns", "j")]


def test_owners_are_matched_by_group_and_kind_whatever_the_version():
    job = owned(owner("a"), owner("b", kind="Pod"), owner("c", api_version="apps/v1"), owner("d", api_version="v9"))
    assert list(enqueue_owner(CoreNode)(CreateEvent(job))) == [Request("", "a"), Request("", "d")]


def test_a_namespaced_owner_is_in_the_dependants_namespace():
    job = owned(owner("parent", kind="Job", api_version="batch/v1"))
    assert list(enqueue_owner(Job)(CreateEvent(job))) == [Request("ns", "parent")]


def test_only_the_controller_is_woken_when_asked_so():
    job = owned(owner("a"), owner("b", controller=True))
    assert list(enqueue_owner(CoreNode, controller_only=True)(CreateEvent(job))) == [Request("", "b")]


# --- health -----------------------------------------------------------------------------------------------------------


def broken():
    raise RuntimeError("secret detail")


@pytest.fixture
def checks():
    checks = HealthChecks()
    checks.add_readyz("good", lambda: None)
    checks.add_readyz("bad", broken)
    return checks


def test_reasons_are_withheld_from_the_body(checks):
    report = checks.handle("/readyz", {})
    assert report.status == 500
    assert "[-]bad failed: reason withheld" in report.body
    assert "[+]good ok" in report.body
    assert "secret" not in report.body


def test_one_check_has_a_path_of_its_own(checks):
    assert checks.handle("/readyz/good", {}).status == 200
    assert checks.handle("/readyz/bad/", {}).status == 500
    assert checks.handle("/readyz/none", {}).status == 404


def test_checks_can_be_excluded_and_unknown_ones_are_told(checks):
    assert checks.handle("/readyz", {"exclude": ["bad"]}).status == 200
    report = checks.handle("/readyz", {"exclude": ["bad", "typo"], "verbose": [""]})
    assert report.status == 200
    assert "[+]bad excluded: ok" in report.body
    assert 'no matches for "typo"' in report.body


def test_without_checks_the_process_is_healthy(checks):
    assert checks.handle("/healthz", {}).body == "ok\n"
    assert "[+]ping ok" in checks.handle("/healthz", {"verbose": [""]}).body
    assert checks.handle("/metrics", {}) is None


def test_checks_come_before_the_start_and_under_names_of_their_own(checks):
    with pytest.raises(ValueError, match="taken"):
        checks.add_readyz("good", lambda: None)
    with pytest.raises(ValueError, match="slash"):
        checks.add_readyz("a/b", lambda: None)
    checks.freeze()
    with pytest.raises(RuntimeError, match="too late"):
        checks.add_healthz("late", lambda: None)


@pytest.mark.parametrize(
    ("text", "address"),
    [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))],
)
def test_addresses_are_host_and_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8080", "host:", "host:http", ":70000"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ValueError, match="write host:port"):
        parse_address(text)


# --- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "c"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({"a": "b"}, ["c"], ["c"]),
    ],
)
def test_merging_follows_the_examples_of_rfc_7386(target, patch, result):
    before = repr(target)
    assert merge(target, patch) == result
    assert repr(target) == before


# --- configuration ----------------------------------------------------------------------------------------------------


def kubeconfig(**user):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
            {"name": "two", "context": {"cluster": "c", "user": "u"}},
        ],
    }


def write(path, content):
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_kubeconfig_gives_server_namespace_and_token(tmp_path):
    config = load_config(write(tmp_path / "config", kubeconfig(token="s3cret")))
    assert config.host == "https://api.example:6443"
    assert config.namespace == "mine"
    assert config.authorization() == "Bearer s3cret"
    assert "s3cret" not in repr(config)


def test_the_environment_names_the_kubeconfig_and_a_context_may_be_chosen(tmp_path):
    environ = {"KUBECONFIG": write(tmp_path / "config", kubeconfig(token="x"))}
    assert load_config(environ=environ).namespace == "mine"
    assert load_config(context="two", environ=environ).namespace is None


def test_a_user_with_a_password_gets_a_basic_header():
    config = ClientConfig.from_kubeconfig(kubeconfig(username="alice", password="pw"))
    header = config.authorization()
    assert header.startswith("Basic ")
    assert base64.b64decode(header.split()[1]) == b"alice:pw"


def test_an_exec_plugin_gives_the_token(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"from-plugin"}}\'\n'
    )
    plugin.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "args": [],
            "interactiveMode": "Never",
        }
    }
    config = load_config(write(tmp_path / "config", kubeconfig(**user)))
    assert config.authorization() == "Bearer from-plugin"


def test_nothing_to_find_is_told_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="give --kubeconfig, set KUBECONFIG"):
        load_config(environ={})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("no-such-file", "not found"),
        ("{", "cannot be used"),
        ("a: 1", "cannot be used"),
    ],
)
def test_a_broken_kubeconfig_is_named(tmp_path, content, text):
    path = tmp_path / "config"
    if content != "no-such-file":
        path.write_text(content)
    with pytest.raises(ConfigError, match=text) as caught:
        load_config(str(path))
    assert str(path) in str(caught.value)


def test_an_unknown_context_is_named(tmp_path):
    with pytest.raises(ConfigError, match="three"):
        load_config(write(tmp_path / "config", kubeconfig(token="x")), context="three")


def test_a_pod_without_its_service_account_is_told(monkeypatch):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="service account"):
        load_config(environ=environ)


def test_a_pod_uses_its_service_account(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "namespace").write_text("mine\n")
    (tmp_path / "ca.crt").write_text("pem")
    monkeypatch.setattr(config_module, "_TOKEN_FILE", tmp_path / "token")
    monkeypatch.setattr(config_module, "_NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    config = load_config(environ=environ)
    assert (config.host, config.namespace) == ("https://10.0.0.1:443", "mine")
    assert config.authorization().lower() == "bearer pod-token"


def test_the_runtime_package_is_light_until_it_is_used():
    code = (
        "import sys, homelab_autoscaler.runtime as r; r.StopSignal; r.Request;"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'kubernetes', 'prometheus_client', 'cryptography', 'yaml', 'requests'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
