"""Where the provider's TLS material comes from: Secrets that the manager makes itself, or files.

Own authority (the default): three Secrets in the manager's namespace, `<service>-ca`, `<service>-server` and
`<service>-client`, each with `tls.crt`, `tls.key` and `ca.crt`. The client Secret is for the autoscaler, which reads
its files once at its start; so it lives long, and only the server's certificate is renewed as a matter of course.
Deleting a Secret makes a new one at the next check (deleting the authority makes all three new).
Files: for cert-manager or any other authority; they are read again when they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from homelab_api.core import Secret
from homelab_api.meta import ObjectMeta, format_time
from homelab_autoscaler.provider.certificates import (
    CertificateError,
    KeyPair,
    common_name,
    hosts_of,
    issue,
    make_authority,
    signed_by,
)
from homelab_autoscaler.runtime.errors import AlreadyExistsError, NotFoundError, TransportError
from homelab_autoscaler.runtime.patch import MergePatch

if TYPE_CHECKING:
    from cryptography import x509

    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock

log = structlog.get_logger(__name__)

CLIENT_NAME: Final = "cluster-autoscaler"
"""Common name of the client certificate that the manager makes, and the identity that the provider admits."""
LONG: Final = timedelta(days=3650)
SERVER_LIFETIME: Final = timedelta(days=365)
CLIENT_RENEWAL: Final = timedelta(days=30)
_KIND: Final = "kubernetes.io/tls"


@dataclass(frozen=True, slots=True)
class Material:
    """What a TLS server needs.

    Attributes:
        server: the server's certificate and key.
        client_authority: PEM of the authority whose client certificates are accepted.
        expiry: name of each certificate that the manager knows of, and until when it is valid.
    """

    server: KeyPair
    client_authority: bytes
    expiry: dict[str, datetime]


class MaterialSource(Protocol):
    """Gives the present material; asked at the start and again from time to time."""

    def load(self) -> Material:
        """The material, made or renewed if need be.

        Raises:
            CertificateError: it cannot be used.
            ApiError: the Secrets cannot be read or written.
        """
        ...


class FileMaterial:
    """Certificates from files.

    Args:
        certificate: PEM file of the server's certificate, with its chain.
        key: PEM file of its private key.
        client_authority: PEM file of the authority of client certificates.
    """

    def __init__(self, certificate: str, key: str, client_authority: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._client_authority = Path(client_authority)

    def load(self) -> Material:
        """See MaterialSource."""
        try:
            server = KeyPair(self._certificate.read_bytes(), self._key.read_bytes())
            authority = self._client_authority.read_bytes()
        except OSError as error:
            raise CertificateError(f"cannot read {error.filename}: {error.strerror}") from error
        try:
            return Material(server, authority, {"server": server.expires_at})
        except CertificateError as error:
            raise CertificateError(f"{self._certificate}, {self._key}: {error}") from error


class SecretMaterial:
    """Certificates of the manager's own authority, kept in Secrets.

    Two managers that start at once agree: a Secret is made by whoever creates it first.

    Args:
        client: for the Secrets.
        clock: for validity.
        namespace: where the Secrets are.
        service: the Service's name; the Secrets' names begin with it.
        hosts: further DNS names and IP addresses under which the provider is dialled.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str, service: str, hosts: tuple[str, ...] = ()) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._service = service
        self.hosts = (
            service,
            f"{service}.{namespace}",
            f"{service}.{namespace}.svc",
            f"{service}.{namespace}.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            "::1",
            *hosts,
        )

    def secret_name(self, role: str) -> str:
        """The Secret of a role: `ca`, `server` or `client`."""
        return f"{self._service}-{role}"

    def load(self) -> Material:
        """See MaterialSource."""
        now = self._clock.now()
        authority = self._authority(now)
        root = authority.parsed()
        server = self._ensure("server", authority, lambda found: self._server_fault(found, root, now))
        client = self._ensure("client", authority, lambda found: self._client_fault(found, root, now))
        expiry = {"ca": root.not_valid_after_utc, "server": server.expires_at, "client": client.expires_at}
        return Material(server, authority.certificate, expiry)

    def _authority(self, now: datetime) -> KeyPair:
        secret = self._read("ca")
        if secret is None:
            pair = make_authority(f"{self._service} authority", now, LONG)
            secret = self._create("ca", self._entries(pair, pair.certificate))
        pair = self._pair(secret)
        until = self._usable(pair, secret).not_valid_after_utc
        if until <= now:
            raise CertificateError(
                f"the authority in Secret {self._namespace}/{secret.name} ended on {format_time(until)}: delete the "
                "Secret to get a new one, then give the autoscaler its new client certificate"
            )
        return pair

    def _ensure(self, role: str, authority: KeyPair, fault: Fault) -> KeyPair:
        """The pair of a role; a missing or faulty one is made anew and stored."""
        now = self._clock.now()
        secret = self._read(role)
        why = "there is none" if secret is None else fault(self._pair(secret))
        if secret is not None and why is None:
            return self._pair(secret)
        if role == "server":
            pair = issue(authority, self._service, now, SERVER_LIFETIME, hosts=self.hosts, server=True)
        else:
            pair = issue(authority, CLIENT_NAME, now, LONG, server=False)
        entries = self._entries(pair, authority.certificate)
        log.info("certificate made", secret=self.secret_name(role), why=why, until=format_time(pair.expires_at))
        if secret is None:
            return self._pair(self._create(role, entries))
        body = {
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": Secret.encode(entries),
        }
        return self._pair(self._client.patch(Secret, secret.name, self._namespace, MergePatch(body)))

    def _server_fault(self, pair: KeyPair, root: x509.Certificate, now: datetime) -> str | None:
        """Why the server's certificate must be made anew. It is renewed when two thirds of its life are over."""
        try:
            certificate = pair.parsed()
        except CertificateError as error:
            return str(error)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        missing = set(self.hosts) - hosts_of(certificate)
        if missing:
            return f"it is not for {', '.join(sorted(missing))}"
        if not signed_by(certificate, root):
            return "it is of another authority"
        # At the end of the authority's own life a renewal would bring nothing.
        renewable = end < root.not_valid_after_utc
        return f"it ends on {format_time(end)}" if renewable and now >= begin + (end - begin) * 2 / 3 else None

    def _client_fault(self, pair: KeyPair, root: x509.Certificate, now: datetime) -> str | None:
        try:
            certificate = pair.parsed()
        except CertificateError as error:
            return str(error)
        if not signed_by(certificate, root):
            return "it is of another authority"
        if common_name(certificate) != CLIENT_NAME:
            return f"its name is not {CLIENT_NAME}"
        end = certificate.not_valid_after_utc
        renewable = end < root.not_valid_after_utc
        return f"it ends on {format_time(end)}" if renewable and now >= end - CLIENT_RENEWAL else None

    # --- Secrets ------------------------------------------------------------------------------------------------

    def _read(self, role: str) -> Secret | None:
        try:
            return self._client.get(Secret, self.secret_name(role), self._namespace)
        except NotFoundError:
            return None

    def _create(self, role: str, entries: dict[str, bytes]) -> Secret:
        """Create the Secret, or take the one that another process created first."""
        secret = Secret(
            metadata=ObjectMeta(name=self.secret_name(role), namespace=self._namespace),
            type=_KIND,
            data=Secret.encode(entries),
        )
        try:
            return self._client.create(secret)
        except (AlreadyExistsError, TransportError) as error:
            found = self._read(role)
            if found is None:
                raise
            log.info("certificate found", secret=secret.name, why=str(error))
            return found

    def _pair(self, secret: Secret) -> KeyPair:
        try:
            return KeyPair(secret.entry("tls.crt"), secret.entry("tls.key"))
        except (KeyError, ValueError) as error:
            raise CertificateError(
                f"Secret {self._namespace}/{secret.name} has no usable tls.crt and tls.key ({error}): "
                "delete it to get a new one"
            ) from error

    def _usable(self, pair: KeyPair, secret: Secret) -> x509.Certificate:
        try:
            return pair.parsed()
        except CertificateError as error:
            raise CertificateError(
                f"Secret {self._namespace}/{secret.name}: {error}. Delete it to get a new one"
            ) from error

    @staticmethod
    def _entries(pair: KeyPair, authority: bytes) -> dict[str, bytes]:
        return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority}


class Fault(Protocol):
    """Why a key pair must be made anew, None if it is good."""

    def __call__(self, found: KeyPair, /) -> str | None:
        """See Fault."""
        ...
