"""An etcd and a kube-apiserver as processes, for tests. Linux binaries of any release since 1.20 will do."""

from __future__ import annotations

import base64
import contextlib
import secrets
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from homelab_autoscaler.runtime import Client, ClientConfig, SystemClock, load_config
from homelab_autoscaler.runtime.client import NO_RETRY
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.runtime.webhook.pki import KeyPair, issue, make_authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject

_START_DEADLINE = 120.0
_LIFE = timedelta(days=1)
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True)
class RealApiServer:
    """A running kube-apiserver.

    Attributes:
        url: where it listens.
        kubeconfig: file of an administrator.
        authority: what its users' certificates are signed with.
    """

    url: str
    kubeconfig: Path
    authority: KeyPair

    def credentials(self, user: str, groups: tuple[str, ...] = (), namespace: str = "default") -> JsonObject:
        """The kubeconfig of a user: a token for a service account, which has to exist, a certificate for others.

        Raises:
            RuntimeError: there is no such service account.
        """
        if user.startswith(_SERVICE_ACCOUNT):
            login = {"token": self._token(*user.split(":")[2:])}
            return _kubeconfig(self.url, self.authority, login, namespace)
        pair = _issue_user(self.authority, user, groups)
        login = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        return _kubeconfig(self.url, self.authority, login, namespace)

    def _token(self, namespace: str, name: str) -> str:
        client = Client(load_config(str(self.kubeconfig)), SystemClock())
        with contextlib.closing(client):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            reply = client.transport.request("POST", path, body=orjson.dumps(body))
        if reply.status >= 400:
            raise RuntimeError(f"no token for {namespace}/{name}: {reply.body.decode()}")
        return str(orjson.loads(reply.body)["status"]["token"])


@contextlib.contextmanager
def real_api_server(assets: Path) -> Iterator[RealApiServer]:
    """An etcd and a kube-apiserver of their own, on free loopback ports, in a temporary directory.

    Raises:
        RuntimeError: a binary is missing, or they were not ready in time; the text holds the end of their output.
    """
    for binary in ("etcd", "kube-apiserver"):
        if not (assets / binary).is_file():
            raise RuntimeError(f"{assets} has no {binary}")
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder, contextlib.ExitStack() as stack:
        yield _start(assets, Path(folder), stack)


def _start(assets: Path, folder: Path, stack: contextlib.ExitStack) -> RealApiServer:
    etcd_client, etcd_peer, port = _free_ports(3)
    token = secrets.token_hex(16)
    authority = _write_secrets(folder, token)
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
        f"--client-ca-file={folder / 'ca.crt'}",
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
    process = _run(stack, folder, [str(assets / "kube-apiserver"), *flags])
    url = f"https://127.0.0.1:{port}"
    kubeconfig = folder / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    content = _kubeconfig(url, authority, {"token": token})
    kubeconfig.write_text(yaml.safe_dump(content))
    _wait_until_ready(ClientConfig.from_kubeconfig(content), process, folder)
    return RealApiServer(url, kubeconfig, authority)


def _write_secrets(folder: Path, token: str) -> KeyPair:
    now = datetime.now(UTC)
    authority = make_authority("test", now, _LIFE)
    serving = issue(authority, ["127.0.0.1", "localhost"], now, _LIFE)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    files = {
        "ca.crt": authority.certificate,
        "tls.crt": serving.certificate,
        "tls.key": serving.key,
        "sa.key": accounts,
        "tokens.csv": f'{token},system:admin,admin,"system:masters"\n'.encode(),
    }
    for name, content in files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
    return authority


def _issue_user(authority: KeyPair, name: str, groups: tuple[str, ...]) -> KeyPair:
    """A client certificate: the common name is the user, the organizations are its groups."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private)


def _kubeconfig(url: str, authority: KeyPair, login: JsonObject, namespace: str = "default") -> JsonObject:
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority.certificate).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": login}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
    }


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


def _wait_until_ready(config: ClientConfig, server: subprocess.Popen[bytes], folder: Path) -> None:
    client = Client(config, SystemClock(), retry=NO_RETRY, timeout=5)
    paths = ["/readyz", *(f"/api/v1/namespaces/{name}" for name in _NAMESPACES)]
    end = time.monotonic() + _START_DEADLINE
    try:
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(TransportError):
                # The first namespaces come a moment after it is ready.
                if all(client.transport.request("GET", path, timeout=5).status == 200 for path in paths):
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
