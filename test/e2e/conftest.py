"""A sandbox and a manager as a person starts them: processes, files, kubectl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from homelab_autoscaler.cli.demo import pool
from homelab_autoscaler.cli.demo.processes import Children
from homelab_autoscaler.cli.manifests import as_yaml

FACTOR = 20
PATIENCE = 60.0


def eventually(check, within=PATIENCE):
    """The first true answer of `check`; polls, since what is waited for happens in other processes."""
    end = time.monotonic() + within
    pause = threading.Event()
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not within {within:.0f} s: {getattr(check, '__name__', check)}"
        pause.wait(0.1)


class Stand:
    """A control plane with three machines that are off, and perhaps a manager."""

    def __init__(self, directory, children):
        self.directory = directory
        self.children = children
        self.place = {}

    def start_control_plane(self, machines=3):
        declared = self.directory / "machines.yaml"
        declared.write_text(json.dumps(pool.machines(machines)))
        self.children.start(
            "control plane",
            ["sandbox", f"--data-dir={self.directory}", f"--machines={declared}", f"--time-factor={FACTOR}"],
        )
        ready = self.directory / "sandbox.json"

        def the_control_plane_is_ready():
            self.children.check()
            return ready.exists()

        eventually(the_control_plane_is_ready)
        self.place = json.loads(ready.read_text())

    def manager_arguments(self, *more):
        return [
            "manager",
            f"--kubeconfig={self.place['kubeconfig']}",
            "--namespace=default",
            "--lease-duration=3s",
            "--renew-deadline=2s",
            "--retry-period=300ms",
            "--grpc-address=",
            "--health-address=",
            "--metrics-address=",
            f"--time-factor={FACTOR}",
            *more,
        ]

    def start_manager(self, *more):
        return self.children.start("manager", self.manager_arguments(*more), revive=True)

    def kill_manager(self):
        self.children.named("manager").process.kill()
        self.children.named("manager").process.wait()
        self.children.check()

    def run(self, *command, check=True, stdin=None):
        environment = {**os.environ, "KUBECONFIG": self.place.get("kubeconfig", ""), "HOME": str(self.directory)}
        done = subprocess.run(
            command, capture_output=True, text=True, input=stdin, env=environment, timeout=60, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def kubectl(self, *arguments, check=True, stdin=None):
        return self.run(kubectl(), *arguments, check=check, stdin=stdin)

    def cli(self, *arguments, check=True):
        return self.run(sys.executable, "-m", "homelab_autoscaler.cli", *arguments, check=check)

    def get(self, kind, name=None, namespace="default"):
        """An object or the list of a kind's objects, None when the object is not there."""
        names = [name] if name else []
        done = self.kubectl("get", kind, *names, "-n", namespace, "-o", "json", check=False)
        if done.returncode:
            assert "NotFound" in done.stderr, done.stderr
            return None
        found = json.loads(done.stdout)
        return found if name else found["items"]

    def apply(self, *objects):
        return self.kubectl("apply", "-f", "-", stdin=as_yaml(objects))

    def declare_pool(self, machines=3):
        self.kubectl("apply", "-f", "-", stdin=self.cli("manifests", "crds").stdout)
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        self.apply(pool.group(machines, FACTOR), *(pool.slot(number) for number in range(1, machines + 1)))

    def phases(self):
        return {slot["metadata"]["name"]: slot.get("status", {}).get("phase") for slot in self.get("slots")}

    def phase(self, slot):
        found = self.get("slot", slot)
        return found.get("status", {}).get("phase") if found else None

    def until_phase(self, slot, phase, within=PATIENCE):
        def slot_has_the_phase():
            self.children.check()
            return self.phase(slot) == phase

        eventually(slot_has_the_phase, within)

    def writes(self):
        return [json.loads(line) for line in Path(self.place["writes"]).read_text().splitlines()]

    def manager_writes(self):
        return [
            write
            for write in self.writes()
            if write["agent"] == "homelab-autoscaler" and write["resource"] not in {"leases", "events"}
        ]

    def commands(self, machine):
        ledger = self.directory / "power-ledger.jsonl"
        lines = ledger.read_text().splitlines() if ledger.exists() else []  # made by the first command
        entries = [json.loads(line) for line in lines]
        return [entry["command"] for entry in entries if entry["machine"] == machine]


def kubectl():
    """The kubectl of the virtual environment, else the machine's."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "these tests need kubectl: it comes with the locked development dependencies"
    return found


@pytest.fixture(scope="module")
def stand(tmp_path_factory):
    """A control plane, a manager, and a pool whose slots are observed off. Shared by a module: tests clean up."""
    directory = tmp_path_factory.mktemp("stand")
    with Children(directory) as children:
        built = Stand(directory, children)
        built.start_control_plane()
        built.declare_pool()
        built.start_manager()
        for number in (1, 2, 3):
            built.until_phase(pool.slot_name(number), "off")
        yield built


@pytest.fixture
def sandbox_alone(tmp_path):
    """A control plane alone, without our kinds."""
    with Children(tmp_path) as children:
        built = Stand(tmp_path, children)
        built.start_control_plane(machines=1)
        yield built


@pytest.fixture(scope="session")
def samples():
    """The objects of config/samples."""
    folder = Path(__file__).parents[2] / "config" / "samples"
    return {path.stem: list(yaml.safe_load_all(path.read_text())) for path in folder.glob("*.yaml")}


@pytest.fixture(scope="session")
def wait_until():
    return eventually
