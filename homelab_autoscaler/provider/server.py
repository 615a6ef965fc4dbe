"""ProviderServer: the gRPC server as a part of the manager.

It serves only while it leads, since its answers come from the caches of the process that acts on claims, and since
two providers at once would be two opinions on one pool.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from homelab_autoscaler.provider.certificates import CertificateError
from homelab_autoscaler.provider.certs import CLIENT_NAME, FileMaterial, SecretMaterial
from homelab_autoscaler.provider.feed import Feed
from homelab_autoscaler.provider.index import PoolIndex
from homelab_autoscaler.provider.leader import LeaderLabel
from homelab_autoscaler.provider.metrics import ProviderMetrics
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.pool import Pool
from homelab_autoscaler.provider.scale import Scaler
from homelab_autoscaler.provider.service import SERVICE_NAME, CloudProviderService
from homelab_autoscaler.provider.tls import HANDSHAKE_PATIENCE, Credentials, HandshakeWatch
from homelab_autoscaler.runtime.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

    from homelab_api.v2alpha1 import Group
    from homelab_autoscaler.provider.certs import MaterialSource
    from homelab_autoscaler.provider.offer import Gate
    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.recorder import EventRecorder
    from homelab_autoscaler.runtime.stop import StopSignal
    from homelab_autoscaler.settings import Settings

log = structlog.get_logger(__name__)

DEFAULT_ADDRESS: Final = "0.0.0.0:50051"
_SYNC_PATIENCE: Final = 120.0
_STOP_GRACE: Final = 2.0


class ProviderError(Exception):
    """The provider cannot serve. The text says why and what to change."""


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """How the provider listens.

    Attributes:
        address: `host:port`; port 0 takes a free one.
        plaintext: serve without TLS and without knowing who calls. For experiments only.
        service: the Service's name; the certificate Secrets' names begin with it.
        secrets_namespace: where those Secrets are: the manager's own namespace.
        hosts: further DNS names and IP addresses under which the provider is dialled.
        certificate, key, client_authority: PEM files, instead of an own authority; all three or none.
        clients: names of client certificates that may call. With files and none given: all of the authority.
        threads: calls that are answered at once.
        answer_within: seconds for a writing call; the autoscaler waits five by default.
        certificate_check: seconds between two looks at the certificates.
    """

    address: str = DEFAULT_ADDRESS
    plaintext: bool = False
    service: str = "homelab-autoscaler-grpc"
    secrets_namespace: str = "homelab-autoscaler-system"
    hosts: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    client_authority: str | None = None
    clients: tuple[str, ...] | None = None
    threads: int = 8
    answer_within: float = 4.0
    certificate_check: float = 3600.0

    def __post_init__(self) -> None:
        """Refuse half a configuration."""
        files = (self.certificate, self.key, self.client_authority)
        if any(files) and not all(files):
            raise ProviderError("certificate, key and client authority must be given together, or none of them")
        if any(files) and self.plaintext:
            raise ProviderError("plaintext and certificate files contradict each other: give one of them")


class ProviderServer:
    """Serves Cluster Autoscaler from the manager's caches; a Runnable that needs the lead.

    Make it before the cache starts: it registers its informers at once.

    Args:
        client: uncached reads and writes.
        cache: the manager's.
        clock: the manager's.
        settings: the manager's.
        recorder: for refusals, as events on Groups; None publishes none.
        namespace: the pool's namespace; None serves all, with group ids `<namespace>/<name>`.
        options: how to listen.
        gates: further conditions on offering a slot.
        registry: where metrics go.
    """

    def __init__(  # noqa: PLR0917 - collaborators, each of its own type
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        settings: Settings,
        recorder: EventRecorder | None,
        namespace: str | None,
        options: ProviderOptions,
        *,
        gates: Sequence[Gate] = (),
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.options = options
        self.index = PoolIndex()
        self.pool = Pool(self.index, clock, settings, namespace, gates)
        self.scaler = Scaler(client, self.pool, clock, settings)
        self.label = LeaderLabel.from_environment(client)
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._feed = Feed(cache, self.index, namespace)
        self._metrics = ProviderMetrics(registry)
        self._watch = None if options.plaintext else HandshakeWatch(clock)
        self._source = None if options.plaintext else self._material_source()
        self._credentials: Credentials | None = None
        self._serving = threading.Event()
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is listened on, 0 before that."""
        return self._port

    def wait_serving(self, timeout: float) -> bool:
        """Wait until calls are answered; real seconds. For tests and for starting things in order."""
        return self._serving.wait(timeout)

    def run(self, stop: StopSignal) -> None:
        """Serve until stopped.

        Raises:
            ProviderError: the address cannot be listened on, or the certificates cannot be used.
        """
        if not self._feed.wait_for_sync(stop, _SYNC_PATIENCE, self._clock):
            if stop.is_set():
                return
            raise ProviderError(f"the pool could not be read within {_SYNC_PATIENCE:.0f} s: see the log of the cache")
        pool = ThreadPoolExecutor(self.options.threads, thread_name_prefix="provider")
        # Without this option two processes could listen on one port, each getting part of the calls.
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        checks = health.HealthServicer()
        self._register(server, checks)
        self._listen(server)
        server.start()
        self.label.claim()
        for name in ("", SERVICE_NAME):
            checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "serving the autoscaler", address=self.options.address, port=self._port, tls=not self.options.plaintext
        )
        self._serving.set()
        try:
            self._tend(stop)
        finally:
            self._serving.clear()
            checks.enter_graceful_shutdown()
            self.label.clear()
            server.stop(_STOP_GRACE).wait()
            pool.shutdown(wait=False)

    def _register(self, server: grpc.Server, checks: health.HealthServicer) -> None:
        clients = self.options.clients
        if clients is None:
            clients = () if self.options.certificate else (CLIENT_NAME,)
        service = CloudProviderService(
            self._client,
            self.pool,
            self.scaler,
            self._metrics,
            self._complain,
            clock=self._clock,
            watch=self._watch,
            allowed=clients,
            answer_within=self.options.answer_within,
        )
        pb_grpc.add_CloudProviderServicer_to_server(service, server)  # type: ignore[no-untyped-call]  # generated
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)

    def _listen(self, server: grpc.Server) -> None:
        address = self.options.address
        try:
            if self._source is None or self._watch is None:
                log.warning(
                    "PLAINTEXT: whoever reaches this port can switch machines on and off; use TLS for anything but "
                    "an experiment",
                    address=address,
                )
                self._port = server.add_insecure_port(address)
            else:
                self._credentials = Credentials(self._source.load(), self._watch)
                self._metrics.certificates(self._credentials.material.expiry)
                self._port = server.add_secure_port(address, self._credentials.server_credentials())
        except RuntimeError as error:
            raise ProviderError(
                f"cannot listen on {address} for the autoscaler: the address is in use or is not this machine's; "
                "choose another provider address"
            ) from error
        except (CertificateError, ApiError) as error:
            raise ProviderError(f"no usable certificate for the autoscaler's port {address}: {error}") from error

    def _tend(self, stop: StopSignal) -> None:
        """Look after certificates and connections until stopped."""
        next_check = self._clock.monotonic() + self.options.certificate_check
        while not self._clock.sleep(min(HANDSHAKE_PATIENCE, self.options.certificate_check), stop):
            if self._watch is not None:
                self._watch.report()
                self._metrics.silent_connections(self._watch.silent_total)
            if self._clock.monotonic() >= next_check:
                next_check = self._clock.monotonic() + self.options.certificate_check
                self.renew_certificates()

    def renew_certificates(self) -> None:
        """Take up renewed certificates for new connections; a failure keeps the present ones."""
        if self._source is None or self._credentials is None:
            return
        try:
            material = self._source.load()
        except (CertificateError, ApiError) as error:
            log.exception("the provider's certificates could not be checked; the present ones stay", error=str(error))
            return
        if self._credentials.renew(material):
            log.info("certificate renewed for new connections")
        self._metrics.certificates(material.expiry)

    def _material_source(self) -> MaterialSource:
        options = self.options
        if options.certificate and options.key and options.client_authority:
            return FileMaterial(options.certificate, options.key, options.client_authority)
        return SecretMaterial(self._client, self._clock, options.secrets_namespace, options.service, options.hosts)

    def _complain(self, group: Group, reason: str, text: str) -> None:
        if self._recorder is not None:
            self._recorder.event(group, "Warning", reason, text)
