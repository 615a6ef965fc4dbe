"""The same cluster as a person meets it: over HTTP, in a thread or as a process, in real time made fast."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from homelab_autoscaler.sandbox.attached import AttachedSimulators, read_kubeconfig
from homelab_autoscaler.sandbox.client import HttpClient
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.spec import Behaviour, Firmware, MachineSpec
from homelab_autoscaler.sandbox.resources import JOBS, NODES, PODS, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing import running_api_server
from homelab_autoscaler.sandbox.testing.hosted import HostedControlPlane
from homelab_autoscaler.sandbox.timings import Timings

SPEED = 40.0


@pytest.fixture
def cluster():
    machines = (MachineSpec("m1"), MachineSpec("liar", behaviour=Behaviour(power_on=Firmware.REFUSE)))
    simulators = SimulatorOptions(machines=machines, timings=Timings().scaled(SPEED))
    with HostedControlPlane(ControlPlaneOptions(simulators=simulators)) as found:
        yield found


def http(method, url, body=None):
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def power(cluster, *arguments, **environment):
    command = [sys.executable, "-m", "homelab_autoscaler.sandbox.power", *arguments]
    env = {"PATH": os.environ["PATH"], "SANDBOX_BMC": cluster.bmc_url, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def ready(cluster, name):
    return shows_ready(cluster.client().get(path(NODES, name=name)))


def test_a_machine_is_turned_on_over_http_and_becomes_a_node(cluster):
    status, text = http("POST", f"{cluster.bmc_url}/machines/m1/power", {"command": "on", "sender": "me"})
    assert (status, json.loads(text)) == (200, {"machine": "m1", "result": "accepted"})
    cluster.eventually(lambda: ready(cluster, "m1"), "the node is ready")
    status, text = http("GET", f"{cluster.bmc_url}/machines/m1")
    shown = json.loads(text)
    assert (shown["power"], shown["on"], shown["node"]) == ("up", True, "m1")
    assert [item["power"] for item in shown["history"]] == ["booting", "up"]
    status, text = http("GET", f"{cluster.bmc_url}/ledger?machine=m1")
    entry = json.loads(text)
    assert (entry["machine"], entry["command"], entry["sender"], entry["result"]) == ("m1", "on", "me", "accepted")


def test_machines_are_programmed_over_http(cluster):
    url = f"{cluster.bmc_url}/machines/m1"
    status, text = http("PATCH", f"{url}/behaviour", {"boot_seconds": 0.1, "dead": True})
    assert status == 200
    assert json.loads(text)["behaviour"]["dead"] is True
    status, text = http("POST", f"{url}/events", {"event": "press"})
    assert status == 200
    cluster.eventually(lambda: json.loads(http("GET", url)[1])["power"] == "booting", "it boots")
    status, text = http("POST", f"{url}/events", {"event": "crash"})
    assert json.loads(text)["power"] == "crashed"
    status, text = http("POST", f"{url}/events", {"event": "cut"})
    assert json.loads(text)["power"] == "off"
    names = [machine["name"] for machine in json.loads(http("GET", f"{cluster.bmc_url}/machines")[1])["machines"]]
    assert names == ["m1", "liar"]


def test_a_machine_can_be_added_while_the_cluster_runs(cluster):
    declared = {"name": "m3", "labels": {"disk": "ssd"}, "initiallyOn": True, "behaviour": {"boot_seconds": 4}}
    status, text = http("POST", f"{cluster.bmc_url}/machines", declared)
    assert (status, json.loads(text)["behaviour"]["boot_seconds"]) == (201, 4 / SPEED)
    cluster.eventually(lambda: ready(cluster, "m3"), "the new node is ready")
    status, text = http("POST", f"{cluster.bmc_url}/machines", declared)
    assert (status, "declared twice" in text) == (400, True)
    status, text = http("POST", f"{cluster.bmc_url}/machines", {"nodeName": "x"})
    assert (status, json.loads(text)["error"]) == (400, "machine.name: every machine needs a name")


def test_a_slow_management_endpoint_answers_late_but_has_done_it(cluster):
    http("PATCH", f"{cluster.bmc_url}/machines/m1/behaviour", {"reply_delay": 600})
    with pytest.raises(TimeoutError):
        send_with_patience(f"{cluster.bmc_url}/machines/m1/power", 0.3)
    assert [entry.result for entry in cluster.call(lambda plane: plane.ledger.entries())] == ["accepted"]


def send_with_patience(url, seconds):
    body = json.dumps({"command": "on", "sender": "me"}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=seconds):
        raise AssertionError("it answered")


@pytest.mark.parametrize("controllers", [True, False])
def test_the_simulators_run_against_a_server_that_they_only_know_by_kubeconfig(tmp_path, controllers):
    with running_api_server() as server:
        kubeconfig = read_kubeconfig(server.kubeconfig)
        options = SimulatorOptions(
            machines=(MachineSpec("m1", initially_on=True),),
            timings=Timings().scaled(SPEED),
            controllers=controllers,
        )

        async def story():
            client = HttpClient.from_kubeconfig(kubeconfig)
            async with asyncio.timeout(60), client, AttachedSimulators(kubeconfig, options):
                await seen(client, path(NODES), lambda node: node["metadata"]["name"] == "m1" and shows_ready(node))
                if controllers:
                    await client.create(path(JOBS, "default"), simple_job())
                    await seen(client, path(JOBS), lambda job: job["status"].get("succeeded") == 1)

        asyncio.run(story())


async def seen(client, collection, check):
    """Follow a collection until one of its objects passes a check."""
    async for event in client.watch(collection):
        if check(event["object"]):
            return


def shows_ready(node):
    conditions = node["status"].get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def simple_job():
    container = {"name": "main", "image": "x", "command": ["true"]}
    tolerations = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("method", "where", "body", "status", "message"),
    [
        ("POST", "/machines/m9/power", {"command": "on", "sender": "x"}, 404, 'no machine "m9": there is liar, m1'),
        ("POST", "/machines/m1/power", {"command": "on"}, 400, "sender: say who sends the command"),
        ("POST", "/machines/m1/power", {"command": "up", "sender": "x"}, 400, 'command: unknown power command "up"'),
        ("POST", "/machines/m1/power", b"{", 400, "the body is not JSON"),
        ("POST", "/machines/m1/power", b"\xff\xfe", 400, "the body is not JSON"),
        ("POST", "/machines/m1/power", [], 400, "the body must be a JSON object"),
        ("POST", "/machines/liar/power", {"command": "on", "sender": "x"}, 502, 'machine "liar" did not confirm "on"'),
        (
            "POST",
            "/machines/m1/events",
            {"event": "sing"},
            400,
            'event: "sing" is not one of press, cut, crash, reboot',
        ),
        ("PATCH", "/machines/m1/behaviour", {"dead": "yes"}, 400, 'dead: "yes" must be true or false'),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("DELETE", "/ledger", None, 405, "Method Not Allowed"),
        ("POST", "/machines/m1/power", b"x" * 100_000, 413, "Request Entity Too Large"),
    ],
)
def test_bad_requests_to_the_machines_get_one_clear_answer(cluster, method, where, body, status, message):
    found, text = http(method, cluster.bmc_url + where, body)
    assert found == status
    assert message in json.loads(text)["error"]


def test_the_power_command_tells_what_happened(cluster):
    done = power(cluster, "on", "m1", JOB_NAME="m1-startup")
    assert (done.returncode, done.stdout) == (0, "power on m1: accepted\n")
    again = power(cluster, "on", "m1", POD_NAME="pod-1")
    assert (again.returncode, again.stdout) == (0, "power on m1: unchanged\n")
    entries = cluster.call(lambda plane: plane.ledger.entries())
    assert [entry.sender for entry in entries] == ["m1-startup", "pod-1"]


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (("on",), {}, 2, "usage:"),
        (("up", "m1"), {}, 2, "usage:"),
        (("on", "m1"), {"SANDBOX_BMC": ""}, 2, "usage:"),
        (("on", "m9"), {}, 1, 'power on m9: no machine "m9": there is liar, m1'),
        (("on", "liar"), {}, 1, 'power on liar: machine "liar" did not confirm "on"'),
        (("on", "m1"), {"SANDBOX_BMC": "http://127.0.0.1:1"}, 1, "http://127.0.0.1:1 does not answer"),
        (("on", "m1"), {"SANDBOX_BMC": "ftp://x"}, 1, 'SANDBOX_BMC: "ftp://x" is not an HTTP address'),
    ],
)
def test_the_power_command_fails_with_a_reason(cluster, arguments, environment, code, message):
    done = power(cluster, *arguments, **environment)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_is_created_and_followed_over_http(cluster):
    client = cluster.client("me")
    cluster.eventually(lambda: ready(cluster, "sandbox-host"), "the host node is ready")
    container = {"name": "main", "image": "x", "command": ["sh", "-c", "echo one; sleep 0.2; echo two"]}
    tolerations = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    client.create(path(JOBS, "default"), body)

    def started():
        pods = client.list(path(PODS, "default"))["items"]
        return [item["metadata"]["name"] for item in pods if item["status"]["phase"] in ("Running", "Succeeded")]

    name = cluster.eventually(started, "the pod runs")[0]
    status, text = http("GET", f"{cluster.url}{path(PODS, 'default', name, 'log')}?follow=true")
    assert (status, text) == (200, "one\ntwo\n")
    cluster.eventually(lambda: client.get(path(JOBS, "default", "j"))["status"].get("succeeded"), "the Job is done")


def test_the_kubeconfig_is_for_its_owner_alone(cluster, tmp_path):
    found = cluster.write_kubeconfig(tmp_path / "new" / "kubeconfig")
    assert found.stat().st_mode & 0o077 == 0
    assert cluster.url in found.read_text()


def test_a_port_in_use_is_a_clear_error_and_leaves_nothing_running():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for options in (
            ControlPlaneOptions(port=port),
            ControlPlaneOptions(simulators=SimulatorOptions(bmc_port=port)),
        ):
            hosted = HostedControlPlane(options)
            with pytest.raises(OSError, match=r"(?i)address already in use"):
                hosted.start()


class Process:
    def __init__(self, folder, *arguments):
        self.kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "homelab_autoscaler.sandbox", "--kubeconfig", str(self.kubeconfig), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)

    def lines(self):
        return {line.split()[0]: line.split()[1:] for line in (self.process.stdout.readline() for _ in range(3))}

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_end(tmp_path, number):
    process = Process(tmp_path, "--machines", "2", "--speed", "20", "--ledger", str(tmp_path / "ledger"))
    try:
        lines = process.lines()
        url = lines["API"][1]
        assert lines["machines"][:2] == ["machine-1,", "machine-2"]
        _, text = http("GET", f"{url}/api/v1/namespaces")
        assert "kube-node-lease" in text
        assert process.kubeconfig.exists()
        code, err = process.end(number)
        assert (code, "Traceback" in err) == (0, False)
    finally:
        process.process.kill()
        process.process.communicate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "0"], "speed 0.0 must be greater than 0"),
        (["--machines-file", "none.yaml"], "none.yaml: No such file or directory"),
        (
            ["--machines-file", "bad.yaml"],
            'bad.yaml: machines[0].capacity.memory: quantity "16 cores" is not understood',
        ),
        (["--attach", "none.kubeconfig"], "none.kubeconfig: No such file or directory"),
        (["--attach", "bad.yaml"], "bad.yaml: not a kubeconfig"),
        (["--machines-file", "twice.yaml"], 'machine "a" is declared twice'),
    ],
)
def test_bad_options_end_the_command_with_one_clear_line(tmp_path, arguments, message):
    Path(tmp_path, "bad.yaml").write_text("- name: a\n  capacity: {memory: 16 cores}\n")
    Path(tmp_path, "twice.yaml").write_text("- name: a\n- name: a\n")
    process = Process(tmp_path, *arguments)
    _, err = process.process.communicate(timeout=60)
    assert process.process.returncode == 1
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_the_help_says_what_the_sandbox_is_not():
    command = [sys.executable, "-m", "homelab_autoscaler.sandbox", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "What it is not" in done.stdout
    assert "runs\nas you" in done.stdout or "runs as you" in done.stdout.replace("\n", " ")
