"""A control plane for tests that hold on any: embedded by default, a real kube-apiserver if its binaries are at hand.

The environment variable KUBEBUILDER_ASSETS names a directory with `etcd` and `kube-apiserver`, as envtest does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from homelab_autoscaler.runtime import Client, ClientConfig, SystemClock, load_config
from homelab_autoscaler.runtime.client import NO_RETRY
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.runtime.webhook.pki import issue, make_authority
from homelab_autoscaler.sandbox.testing.running import running_api_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject

ASSETS = "KUBEBUILDER_ASSETS"
_START_DEADLINE = 120.0


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running API server.

    Attributes:
        kubeconfig: file of an administrator.
        real: it is a kube-apiserver, shared by the tests of a session: use names of your own.
    """

    kubeconfig: Path
    real: bool

    @property
    def config(self) -> ClientConfig:
        """How to reach it."""
        return load_config(str(self.kubeconfig))

    def client(self) -> Client:
        """A client of it."""
        return Client(self.config, SystemClock(), field_manager="test")


@contextlib.contextmanager
def embedded_control_plane() -> Iterator[ControlPlane]:
    """The embedded API server."""
    with running_api_server() as server:
        yield ControlPlane(server.kubeconfig, real=False)


@contextlib.contextmanager
def real_control_plane(assets: Path) -> Iterator[ControlPlane]:
    """An etcd and a kube-apiserver of their own, on free loopback ports, in a temporary directory.

    Raises:
        RuntimeError: a binary is missing, or they were not ready in time; the text holds the end of their output.
    """
    for binary in ("etcd", "kube-apiserver"):
        if not (assets / binary).is_file():
            raise RuntimeError(f"{ASSETS}={assets} has no {binary}")
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder, contextlib.ExitStack() as stack:
        yield _start_real(assets, Path(folder), stack)


def _start_real(assets: Path, folder: Path, stack: contextlib.ExitStack) -> ControlPlane:
    etcd_client, etcd_peer, port = _free_ports(3)
    token = secrets.token_hex(16)
    _write_secrets(folder, token)
    peer = f"http://127.0.0.1:{etcd_peer}"
    _run(
        stack,
        folder,
        [
            str(assets / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd_client}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd_client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ],
    )
    flags = [
        f"--etcd-servers=http://127.0.0.1:{etcd_client}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
    ]
    if _minor_version(assets) < 24:
        flags.append("--insecure-port=0")
    server = _run(stack, folder, [str(assets / "kube-apiserver"), *flags])
    plane = ControlPlane(_write_kubeconfig(folder, port, token), real=True)
    _wait_until_ready(plane, server, folder)
    return plane


def _write_secrets(folder: Path, token: str) -> None:
    now = datetime.now(UTC)
    authority = make_authority("test", now, timedelta(days=1))
    serving = issue(authority, ["127.0.0.1", "localhost"], now, timedelta(days=1))
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    files = {
        "ca.crt": authority.certificate,
        "tls.crt": serving.certificate,
        "tls.key": serving.key,
        "sa.key": accounts,
        "tokens.csv": f'{token},admin,admin,"system:masters"\n'.encode(),
    }
    for name, content in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)


def _write_kubeconfig(folder: Path, port: int, token: str) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(folder / "ca.crt")}
    content: JsonObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
    }
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))
    return path


def _run(stack: contextlib.ExitStack, folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder)  # noqa: S603 - the binaries that the caller named

    def end() -> None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)

    stack.callback(end)
    return process


def _wait_until_ready(plane: ControlPlane, server: subprocess.Popen[bytes], folder: Path) -> None:
    client = Client(plane.config, SystemClock(), retry=NO_RETRY, timeout=5)
    end = time.monotonic() + _START_DEADLINE
    try:
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(TransportError):
                if client.transport.request("GET", "/readyz", timeout=5).status == 200:
                    return
            SystemClock().sleep(0.1)
    finally:
        client.close()
    tail = (folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"kube-apiserver was not ready within {_START_DEADLINE:g} s:\n{tail}")


def _minor_version(assets: Path) -> int:
    done = subprocess.run(  # noqa: S603 - the binary that the caller named
        [str(assets / "kube-apiserver"), "--version"], capture_output=True, text=True, timeout=30, check=True
    )
    return int(done.stdout.split("v1.")[1].split(".")[0])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """The real one when KUBEBUILDER_ASSETS is set, else the embedded one."""
    assets = os.environ.get(ASSETS)
    with real_control_plane(Path(assets)) if assets else embedded_control_plane() as plane:
        yield plane
