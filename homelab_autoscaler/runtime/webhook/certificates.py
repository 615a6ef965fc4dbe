"""Serving certificates that change without a restart: made by the manager, or mounted by cert-manager."""

from __future__ import annotations

import base64
import ssl
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from homelab_api.core import Secret
from homelab_api.meta import JsonObject, ObjectMeta
from homelab_autoscaler.runtime.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from homelab_autoscaler.runtime.patch import JsonPatch, MergePatch
from homelab_autoscaler.runtime.webhook.model import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from homelab_autoscaler.runtime.webhook.pki import KeyPair, issue, make_authority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.metrics import Metrics
    from homelab_autoscaler.runtime.stop import StopSignal

_log = structlog.get_logger("homelab_autoscaler.runtime.certificates")
_TRIES = 5
_Configuration = type[ValidatingWebhookConfiguration] | type[MutatingWebhookConfiguration]


class CertificateError(ValueError):
    """There is no usable certificate; the text says why."""


class _Holder:
    """The certificate in use, as a context for new connections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pair: KeyPair | None = None
        self._context: ssl.SSLContext | None = None

    def use(self, pair: KeyPair) -> None:
        with self._lock:
            if self._pair == pair:
                return
        context = _context_of(pair)
        with self._lock:
            self._pair, self._context = pair, context

    def context(self) -> ssl.SSLContext:
        """See CertificateSource."""
        with self._lock:
            if self._context is None:
                raise CertificateError("there is no certificate yet")
            return self._context

    def check(self) -> None:
        """See CertificateSource."""
        with self._lock:
            pair = self._pair
        if pair is None:
            raise CertificateError("there is no certificate yet")
        if not pair.valid(self._clock.now()):
            raise CertificateError(f"the certificate is valid from {pair.not_before} to {pair.not_after} only")

    @property
    def pair(self) -> KeyPair | None:
        """The certificate in use."""
        with self._lock:
            return self._pair


class MountedCertificates(_Holder):
    """`tls.crt` and `tls.key` in a directory that someone else keeps fresh. A Runnable that reads them every 10 s.

    A pair that cannot be used (half written, expired key, other key) is counted, and the old one stays in use.
    """

    name = "certificates"

    def __init__(
        self, directory: Path, clock: Clock, metrics: Metrics | None = None, *, interval: float = 10.0
    ) -> None:
        super().__init__(clock)
        self._directory = directory
        self._metrics = metrics
        self._interval = interval

    def load(self) -> None:
        """Read the files.

        Raises:
            CertificateError: they are absent or cannot be used.
        """
        if self._metrics is not None:
            self._metrics.certificate_reads.inc()
        try:
            pair = KeyPair((self._directory / "tls.crt").read_bytes(), (self._directory / "tls.key").read_bytes())
            self.use(pair)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            if self._metrics is not None:
                self._metrics.certificate_errors.inc()
            raise CertificateError(f"the certificate in {self._directory} cannot be used: {error}") from error

    def run(self, stop: StopSignal) -> None:
        """Keep reading until stopped."""
        while True:
            try:
                self.load()
            except CertificateError as error:
                _log.warning("certificate not read", error=str(error))
            if self._clock.sleep(self._interval, stop):
                return


@dataclass(frozen=True, slots=True)
class ManagedCertificatesOptions:
    """Of certificates that the manager makes.

    Attributes:
        namespace: of the Secret.
        secret: name of the Secret that holds authority and certificate, shared by all replicas.
        names: DNS names and addresses that the API server may call.
        validating: names of ValidatingWebhookConfigurations whose caBundle is kept.
        mutating: names of MutatingWebhookConfigurations whose caBundle is kept.
        authority_life: of the authority; renewed after two thirds.
        certificate_life: of the serving certificate; renewed after two thirds.
        interval: seconds between looks.
    """

    namespace: str
    secret: str
    names: Sequence[str]
    validating: Sequence[str] = ()
    mutating: Sequence[str] = ()
    authority_life: timedelta = timedelta(days=3650)
    certificate_life: timedelta = timedelta(days=90)
    interval: float = 60.0


class ManagedCertificates(_Holder):
    """Makes an authority and a serving certificate, keeps them in a Secret, and gives the authority to the API server.

    All replicas share the Secret; whoever comes first writes it, with the resourceVersion as precondition. A new
    authority is published beside the old one (`ca-old.crt`), so that connections work during a change: certificates
    of both are trusted until the old authority has run out.

    A Runnable. `ensure` may be called before to have a certificate at once.

    Needs get, create and patch on the Secret, and get and patch on the named webhook configurations.
    """

    name = "certificates"

    def __init__(
        self, client: Client, clock: Clock, options: ManagedCertificatesOptions, metrics: Metrics | None = None
    ) -> None:
        super().__init__(clock)
        self._client = client
        self._options = options
        self._metrics = metrics

    def run(self, stop: StopSignal) -> None:
        """Keep certificates and bundles fresh until stopped."""
        while True:
            try:
                self.ensure()
            except (ApiError, CertificateError) as error:
                if self._metrics is not None:
                    self._metrics.certificate_errors.inc()
                _log.warning("certificates not ensured", error=str(error))
            if self._clock.sleep(self._options.interval, stop):
                return

    def ensure(self) -> None:
        """Read the Secret, renew what is due, use it, and inject the bundle.

        Raises:
            ApiError: the API server does not let us.
            CertificateError: other replicas kept changing the Secret.
        """
        for _ in range(_TRIES):
            if self._metrics is not None:
                self._metrics.certificate_reads.inc()
            try:
                bundle, pair = self._ensure_secret()
            except (ConflictError, AlreadyExistsError):
                continue
            # The bundle goes first: nobody may be shown a certificate whose authority is not known yet.
            self._inject(bundle)
            self.use(pair)
            return
        raise CertificateError(f"the Secret {self._options.namespace}/{self._options.secret} keeps changing")

    def _ensure_secret(self) -> tuple[bytes, KeyPair]:
        options = self._options
        now = self._clock.now()
        try:
            stored: Secret | None = self._client.get(Secret, options.secret, options.namespace)
        except NotFoundError:
            stored = None
        data = {} if stored is None else _decoded(stored)
        authority = _pair(data, "ca.crt", "ca.key")
        serving = _pair(data, "tls.crt", "tls.key")
        old = data.get("ca-old.crt", b"")
        changed = False
        if authority is None or authority.due(now):
            old = authority.certificate if authority is not None and authority.valid(now) else b""
            authority = make_authority(f"{options.secret}.{options.namespace}", now, options.authority_life)
            serving = None
            changed = True
        if old and not KeyPair(old, b"").valid(now):
            old = b""
            changed = True
        if serving is None or serving.due(now) or not set(options.names) <= serving.names():
            serving = issue(authority, options.names, now, options.certificate_life)
            changed = True
        if changed:
            self._store(
                stored,
                {
                    "ca.crt": authority.certificate,
                    "ca.key": authority.key,
                    "ca-old.crt": old,
                    "tls.crt": serving.certificate,
                    "tls.key": serving.key,
                },
            )
            _log.info("certificates made", secret=options.secret, not_after=str(serving.not_after))
        return authority.certificate + old, serving

    def _store(self, stored: Secret | None, data: dict[str, bytes]) -> None:
        options = self._options
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if stored is None:
            metadata = ObjectMeta(name=options.secret, namespace=options.namespace)
            self._client.create(Secret(metadata=metadata, data=encoded))
            return
        body: JsonObject = {"metadata": {"resourceVersion": stored.metadata.resource_version}, "data": encoded}
        self._client.patch(Secret, options.secret, options.namespace, MergePatch(body))

    def _inject(self, bundle: bytes) -> None:
        encoded = base64.b64encode(bundle).decode()
        for name in self._options.validating:
            self._inject_into(ValidatingWebhookConfiguration, name, encoded)
        for name in self._options.mutating:
            self._inject_into(MutatingWebhookConfiguration, name, encoded)

    def _inject_into(self, kind: _Configuration, name: str, encoded: str) -> None:
        try:
            configuration: ValidatingWebhookConfiguration | MutatingWebhookConfiguration = self._client.get(kind, name)
        except NotFoundError:
            _log.warning("webhook configuration not found", name=name)
            return
        operations: list[JsonObject] = []
        for index, webhook in enumerate(configuration.webhooks):
            if (webhook.get("clientConfig") or {}).get("caBundle") != encoded:
                # The test keeps a reordered list from getting the bundle at a wrong place.
                operations += [
                    {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.get("name")},
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded},
                ]
        if operations:
            self._client.patch(kind, name, None, JsonPatch(operations))


def _decoded(secret: Secret) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in secret.data.items()}


def _pair(data: dict[str, bytes], certificate: str, key: str) -> KeyPair | None:
    pair = KeyPair(data.get(certificate, b""), data.get(key, b""))
    try:
        _context_of(pair)
    except (OSError, ValueError):
        return None
    return pair


def _context_of(pair: KeyPair) -> ssl.SSLContext:
    """A server context; the ssl module reads key pairs from files only, so they exist for a moment.

    Raises:
        ValueError, OSError: the pair cannot be used.
    """
    if not pair.certificate or not pair.key:
        raise ValueError("the certificate or the key is empty")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)
    return context
