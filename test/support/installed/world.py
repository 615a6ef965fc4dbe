"""A control plane that authorises, with config/default applied by kubectl, and the manager as a process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc
import orjson
import yaml
from lab.pool import Pool
from lab.real import AttachedCluster, real_assets
from lab.world import FACTOR, World

from homelab_api.core import Pod, Secret
from homelab_autoscaler.cli.listening import free_port
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE, Place
from homelab_autoscaler.runtime import Client, NotFoundError, SystemClock, load_config
from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.hosted import HostedControlPlane
from homelab_autoscaler.sandbox.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_autoscaler.sandbox.apiserver import Fault

ROOT = Path(__file__).parents[3]
OWN = Place().own
MANAGER_USER = f"system:serviceaccount:{OWN}:{MANAGER}"
MANAGER_POD = "manager-0"
WEBHOOK = "homelab-autoscaler-webhook"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Of containers in the install's namespaces, which enforce it."""
# As in lab.world.quick_settings, before the division by the factor.
_TIMES = {
    "job-timeout": 60.0,
    "registration-wait": 60.0,
    "gate-timeout": 60.0,
    "deadline-slack": 60.0,
    "off-settle": 6.0,
}


def kubectl(*arguments: str, kubeconfig: str = "", stdin: str | None = None, check: bool = True):
    """Run the kubectl of the development environment, else the machine's."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "these tests need kubectl: it comes with the locked development dependencies"
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    done = subprocess.run(
        [found, *arguments], input=stdin, capture_output=True, text=True, env=environment, timeout=90, check=False
    )
    assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done


def manifests(folder: str = "config/default") -> list[dict]:
    """The objects of a kustomization."""
    return [body for body in yaml.safe_load_all(kubectl("kustomize", str(ROOT / folder)).stdout) if body]


@dataclass(frozen=True)
class Decision:
    """What the manager asked for, and whether its roles allow it."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    allowed: bool

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}".strip("/")
        return f"{self.verb} {self.resource}.{self.group} {place}".replace(". ", " ")


class InstalledWorld(World):
    """Runs from `with` to its end, on any control plane unless the server's decisions or its faults are asked for."""

    def __init__(self, folder: Path, *, inspected: bool = False) -> None:
        simulators = SimulatorOptions(timings=Timings().scaled(FACTOR))
        self._assets = None if inspected else real_assets()
        cluster = (
            AttachedCluster(self._assets, simulators)
            if self._assets
            else HostedControlPlane(ControlPlaneOptions(server=ApiServerOptions(rbac=True), simulators=simulators))
        )
        super().__init__(folder, cluster)
        self.webhook_port, self.grpc_port, self.health_port = (free_port() for _ in range(3))
        self._inspected = inspected
        self.decisions: list[Decision] = []
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        self._cluster.start()
        self.kubeconfig = str(self._cluster.write_kubeconfig(self._folder / "kubeconfig"))
        self.client = Client(load_config(self.kubeconfig), SystemClock())
        if self._inspected:
            self._cluster.call(lambda plane: plane.server.on_decision(self._decided))
        self.apply()
        self.give_secret(POOLS_NAMESPACE)
        self._pool = Pool(self.kubeconfig, POOLS_NAMESPACE, self.settings)
        pod = {
            "metadata": {"name": MANAGER_POD, "namespace": OWN, "labels": {"app.kubernetes.io/name": MANAGER}},
            "spec": {
                "schedulerName": "nobody",
                "containers": [{"name": "manager", "image": "local", "securityContext": RESTRICTED}],
            },
        }
        self.client.create_json(Pod, pod, OWN)
        return self

    def __exit__(self, *error: object) -> None:
        for client in (*self._clients, self._pool.client):
            client.close()
        super().__exit__(*error)

    def apply(self) -> None:
        """Apply the install, without pods: the process that `manager` starts is the Deployment's.

        Without a service network the webhook's Service leads to this machine, and its port is the process's.
        """
        objects = manifests()
        for body in objects:
            if body["kind"] == "Deployment":
                body["spec"]["replicas"] = 0
            elif body["kind"] == "Service" and body["metadata"]["name"] == WEBHOOK:
                body["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            elif body["kind"] == "ValidatingWebhookConfiguration":
                for webhook in body["webhooks"]:
                    webhook["clientConfig"]["service"]["port"] = self.webhook_port
        kubectl("apply", "-f", "-", kubeconfig=self.kubeconfig, stdin=yaml.safe_dump_all(objects))

    def pool(self, **_: object) -> Pool:
        """The pools' namespace of the installation."""
        return self._pool

    def _decided(self, user, asked, allowed) -> None:
        if user.name == MANAGER_USER and asked.resource:
            self.decisions.append(
                Decision(asked.verb, asked.group, asked.full_resource, asked.namespace, asked.name, allowed)
            )

    def add_fault(self, fault: Fault) -> None:
        """Let the API server misbehave."""
        self._cluster.call(lambda plane: plane.server.faults.add(fault))

    def kubeconfig_of(self, user: str, groups: tuple[str, ...] = ()) -> str:
        """A kubeconfig with which one acts as a user."""
        if self._assets:
            return str(self._cluster.kubeconfig_of(user, groups, POOLS_NAMESPACE))
        path = self._folder / f"{user.replace(':', '-')}.kubeconfig"
        content = self._cluster.call(
            lambda plane: plane.server.kubeconfig(plane.server.token(user, groups), POOLS_NAMESPACE)
        )
        path.write_bytes(orjson.dumps(content))
        return str(path)

    def acting_as(self, user: str) -> Client:
        """A client of a user, closed with the world."""
        client = Client(load_config(self.kubeconfig_of(user)), SystemClock())
        self._clients.append(client)
        return client

    def kubectl(self, *arguments: str, user: str = "", stdin: str | None = None, check: bool = True):
        """Run kubectl as a user; the administrator by default."""
        kubeconfig = self.kubeconfig_of(user) if user else self.kubeconfig
        return kubectl(*arguments, kubeconfig=kubeconfig, stdin=stdin, check=check)

    @contextlib.contextmanager
    def manager(self, *flags: str) -> Iterator[subprocess.Popen]:
        """A manager from when it is ready until the end of the block; it must end well."""
        log = (self._folder / "manager.log").open("ab")
        arguments = [
            "manager",
            f"--kubeconfig={self.kubeconfig_of(MANAGER_USER)}",
            f"--namespace={POOLS_NAMESPACE}",
            f"--own-namespace={OWN}",
            f"--webhook-address=127.0.0.1:{self.webhook_port}",
            f"--grpc-address=127.0.0.1:{self.grpc_port}",
            f"--health-address=127.0.0.1:{self.health_port}",
            "--metrics-address=",
            "--retry-period=0.2",
            "--job-priority-class=homelab-autoscaler-job",
            f"--time-factor={FACTOR}",
            *(f"--{name}={seconds * FACTOR}" for name, seconds in _TIMES.items()),
            *flags,
        ]
        environment = {**os.environ, "POD_NAME": MANAGER_POD, "POD_NAMESPACE": OWN, "NODE_NAME": "elsewhere"}
        process = subprocess.Popen(
            [sys.executable, "-m", "homelab_autoscaler.cli", *arguments], stdout=log, stderr=log, env=environment
        )
        try:
            self._pool.until("the manager is ready", lambda: self._ready(process))
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            log.close()
        assert process.returncode == 0, self.log()[-3000:]

    def _ready(self, process: subprocess.Popen) -> bool:
        assert process.poll() is None, self.log()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def log(self) -> str:
        """Everything that the managers said."""
        return (self._folder / "manager.log").read_text(errors="replace")

    @contextlib.contextmanager
    def autoscaler(self) -> Iterator[grpc.Channel]:
        """A channel as Cluster Autoscaler makes it: with the certificate that the manager made for it."""
        self._pool.until("the manager made certificates", self._has_certificate)
        secret = self.client.get(Secret, "homelab-autoscaler-grpc-client", OWN)
        credentials = grpc.ssl_channel_credentials(
            secret.entry("ca.crt"), secret.entry("tls.key"), secret.entry("tls.crt")
        )
        with grpc.secure_channel(f"127.0.0.1:{self.grpc_port}", credentials) as channel:
            grpc.channel_ready_future(channel).result(60)
            yield channel

    def _has_certificate(self) -> bool:
        """Whether the client's certificate is there and of the present authority: a new one is made at a start."""
        try:
            authority = self.client.get(Secret, "homelab-autoscaler-grpc-ca", OWN)
            client = self.client.get(Secret, "homelab-autoscaler-grpc-client", OWN)
        except NotFoundError:
            return False
        return client.entry("ca.crt") == authority.entry("tls.crt")
