"""Bad input: one clear message where a person looks, and nothing lost or left half done."""

from __future__ import annotations

import socket

import pytest

from homelab_autoscaler.cli.demo import pool
from homelab_autoscaler.cli.listening import free_port
from homelab_autoscaler.cli.manifests import as_yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def slot(name, **spec):
    made = pool.slot(1)
    made["metadata"]["name"] = name
    made["spec"] = {**made["spec"], "kubernetesNodeName": name, **spec}
    return made


def script(text):
    return {"image": "local/script", "command": ["sh", "-c", text]}


def condition(obj, kind):
    found = (obj or {}).get("status", {}).get("conditions", [])
    return next((entry for entry in found if entry["type"] == kind and entry["status"] == "True"), None)


def events_of(stand, name):
    return [event for event in stand.get("events") if event["involvedObject"]["name"] == name]


@pytest.fixture
def declared(stand, wait_until):
    """Declares slots for one test; afterwards nothing of them is left."""
    made = []

    def declare(entry):
        stand.apply(entry)
        made.append(entry["metadata"]["name"])

    yield declare
    for name in made:
        stand.kubectl("delete", "slot", name, "--wait=false")
    wait_until(lambda: not [item for item in stand.get("slots") if item["metadata"]["name"] in made])


def test_a_quantity_with_words_is_refused_at_admission(stand):
    refused = stand.kubectl("apply", "-f", "-", check=False, stdin=_yaml(slot("odd", capacity={"cpu": "16 cores"})))

    assert refused.returncode == 1
    assert "spec.capacity" in refused.stderr
    assert "16 cores" in refused.stderr
    assert stand.get("slot", "odd") is None


def test_a_duration_without_a_unit_is_refused_at_admission(stand):
    group = pool.group(3, 20)
    group["metadata"]["name"] = "odd"
    group["spec"]["maxNodeProvisionTime"] = "10"

    refused = stand.kubectl("apply", "-f", "-", check=False, stdin=_yaml(group))

    assert refused.returncode == 1
    assert "spec.maxNodeProvisionTime" in refused.stderr
    assert '"10"' in refused.stderr
    assert stand.get("group.infra.homecluster.dev", "odd") is None


def test_a_slot_of_an_unknown_group_says_so_in_a_condition(stand, declared, wait_until):
    entry = slot("stray")
    entry["metadata"]["labels"] = {"infra.homecluster.dev/group": "nowhere"}
    declared(entry)

    found = wait_until(lambda: condition(stand.get("slot", "stray"), "UnknownGroup"))

    assert '"nowhere"' in found["message"]


def test_two_slots_of_one_kubernetes_node_say_so_in_a_condition(stand, declared, wait_until):
    declared(slot("twin", kubernetesNodeName="rack-3"))

    found = wait_until(lambda: condition(stand.get("slot", "twin"), "InvalidSlot"))

    assert "rack-3" in found["message"]


def test_a_claim_for_a_missing_slot_ends_failed_and_leaves_nothing_behind(stand, wait_until):
    claim = {
        "apiVersion": "infra.homecluster.dev/v2alpha1",
        "kind": "NodeClaim",
        "metadata": {"name": "lost", "namespace": "default"},
        "spec": {"slotRef": {"name": "nobody"}, "call": "Manual", "group": "rack"},
    }
    stand.apply(claim)

    def the_claim_has_failed():
        found = stand.get("nodeclaim", "lost")
        return found if found["status"].get("phase") == "failed" else None

    failed = wait_until(the_claim_has_failed)
    assert "nobody" in failed["status"]["message"]
    stand.kubectl("delete", "nodeclaim", "lost", "--timeout=30s")


@pytest.mark.parametrize(
    ("startup", "reason"),
    [
        (["/no/such/command"], "StartupJobFailed"),
        (["sh", "-c", "echo the plug is out >&2; exit 1"], "StartupJobFailed"),
        (["sleep", "600"], "StartupJobTimeout"),
    ],
    ids=["missing command", "exit 1", "hangs"],
)
def test_a_startup_that_goes_wrong_fails_its_claim_and_is_reversed(stand, declared, wait_until, startup, reason):
    name = f"bad-{startup[0].strip('/').replace('/', '-')}"
    body = slot(name)
    body["spec"]["startupPodSpec"] = {"image": "local/script", "command": startup}
    body["spec"]["shutdownPodSpec"] = script("exit 0")
    declared(body)
    stand.until_phase(name, "off")
    stand.cli("claim", name)

    def the_digest_names_the_reason():
        digest = stand.get("slot", name)["status"].get("lastClaim") or {}
        return digest.get("reason") == reason

    wait_until(the_digest_names_the_reason)
    ended = stand.get("slot", name)["status"]["lastClaim"]["name"]
    assert "ClaimFailed" in {event["reason"] for event in events_of(stand, ended)}
    stand.until_phase(name, "off")
    for claim in stand.get("nodeclaims"):
        if claim["spec"]["slotRef"]["name"] == name:
            stand.kubectl("delete", "nodeclaim", claim["metadata"]["name"], "--timeout=60s")


def test_a_manager_without_our_kinds_ends_with_the_command_that_helps(sandbox_alone):
    done = sandbox_alone.cli(*sandbox_alone.manager_arguments(), check=False)

    assert done.returncode == 1
    assert "does not know groups.infra.homecluster.dev" in done.stderr
    assert "homelab-autoscaler manifests crds | kubectl apply" in done.stderr


def test_a_port_in_use_ends_the_manager_with_its_name(sandbox_alone):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = sandbox_alone.manager_arguments(f"--health-address={address}")
        done = sandbox_alone.cli(*arguments, check=False)

    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        f"--health-address: {address} is in use already: stop what listens there, or choose another address"
    )


def test_a_sandbox_whose_port_is_in_use_says_so(tmp_path, sandbox_alone):
    port = sandbox_alone.place["server"].rpartition(":")[2]

    done = sandbox_alone.cli("sandbox", "--port", port, "--data-dir", str(tmp_path / "other"), check=False)

    assert done.returncode == 1
    assert f"--port: 127.0.0.1:{port} is in use already" in done.stderr


def test_a_kubeconfig_that_does_not_answer_ends_every_command_in_bounded_time(tmp_path, sandbox_alone):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    dead = tmp_path / "dead"
    text = (tmp_path / "kubeconfig").read_text()
    dead.write_text(text.replace(sandbox_alone.place["server"], f"http://127.0.0.1:{port}"))

    for command in (["manager", "--grpc-address=", "--health-address=", "--metrics-address="], ["status"]):
        done = sandbox_alone.cli(*command, f"--kubeconfig={dead}", check=False)

        assert done.returncode == 1
        assert f"the API server http://127.0.0.1:{port} (from {dead}) does not answer" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_kubeconfig_that_is_not_there_or_no_kubeconfig_is_a_usage_error(tmp_path, sandbox_alone):
    (tmp_path / "odd").write_text("just a sentence")

    missing = sandbox_alone.cli("status", f"--kubeconfig={tmp_path / 'missing'}", check=False)
    odd = sandbox_alone.cli("status", f"--kubeconfig={tmp_path / 'odd'}", check=False)

    assert (missing.returncode, odd.returncode) == (2, 2)
    assert "kubeconfig not found" in missing.stderr
    assert "cannot be used" in odd.stderr


def test_an_autoscaler_without_a_certificate_is_turned_away_and_the_log_says_so(sandbox_alone, tmp_path, wait_until):
    port = free_port()
    sandbox_alone.declare_pool(machines=1)
    arguments = sandbox_alone.manager_arguments(f"--grpc-address=127.0.0.1:{port}")
    arguments.remove("--grpc-address=")
    manager = sandbox_alone.children.start("manager", arguments)
    wait_until(lambda: "serving the autoscaler" in manager.log.read_text())

    config = tmp_path / "cloud-config.yaml"
    config.write_text(f"address: 127.0.0.1:{port}\n")
    caller = sandbox_alone.children.start(
        "autoscaler",
        [f"--kubeconfig={sandbox_alone.place['kubeconfig']}", f"--cloud-config={config}", "--speed=20"],
        module="homelab_autoscaler.sandbox.autoscaler",
    )

    wait_until(lambda: "UNAVAILABLE" in caller.log.read_text() or "LoopEnded" in caller.log.read_text())
    wait_until(lambda: "certificate" in manager.log.read_text().split("serving the autoscaler")[1])
    assert sandbox_alone.get("nodeclaims") == []


def _yaml(entry):
    return as_yaml([entry])
