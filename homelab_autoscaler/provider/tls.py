"""TLS of the gRPC server: present certificates, and a word in the log about clients that are turned away.

Source: the contract's section 6. Anyone who can reach the port can switch machines off, so a client must show a
certificate of our authority and be who it may be.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, cast

import grpc
import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from homelab_autoscaler.provider.certs import Material
    from homelab_autoscaler.runtime.clock import Clock

log = structlog.get_logger(__name__)

HANDSHAKE_PATIENCE: Final = 5.0
"""Seconds after which a connection without a call counts as refused."""
_KNOWN_PEERS: Final = 1024


class HandshakeWatch:
    """Notices connections that never got as far as a call.

    gRPC turns clients away inside its core and tells nobody. What can be seen is that a handshake began (the server
    asks for its certificate) and that a call arrived on a new connection. A handshake that no new connection's call
    followed was refused, given up, or is of a client that only connects.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque()
        self._peers: OrderedDict[str, None] = OrderedDict()
        self.silent_total = 0

    def begun(self) -> None:
        """A handshake began."""
        with self._lock:
            self._begun.append(self._clock.monotonic())

    def heard(self, peer: str) -> None:
        """A call arrived from a connection."""
        if peer in self._peers:
            return
        with self._lock:
            if peer not in self._peers:
                self._peers[peer] = None
                if len(self._peers) > _KNOWN_PEERS:
                    self._peers.popitem(last=False)
                if self._begun:
                    self._begun.popleft()

    def report(self) -> int:
        """Log the connections that stayed without a call for too long; how many there were."""
        limit = self._clock.monotonic() - HANDSHAKE_PATIENCE
        count = 0
        with self._lock:
            while self._begun and self._begun[0] <= limit:
                self._begun.popleft()
                count += 1
            self.silent_total += count
        if count:
            log.warning(
                "TLS connections came to nothing: the client showed no certificate of this provider's authority, does "
                "not trust the provider's, or only probed the port. Cluster Autoscaler needs cert, key and cacert of "
                "the client Secret in its cloud-config",
                connections=count,
            )
        return count


class Credentials:
    """Server credentials whose certificate can be replaced while serving.

    Args:
        material: the first certificate and the authority of clients.
        watch: told of each handshake.
    """

    def __init__(self, material: Material, watch: HandshakeWatch) -> None:
        self._watch = watch
        self._material = material
        self._fresh: grpc.ServerCertificateConfiguration | None = None
        self._lock = threading.Lock()

    @property
    def material(self) -> Material:
        """What new connections are offered."""
        return self._material

    def renew(self, material: Material) -> bool:
        """Offer other material from the next connection on; False if it is what is offered already."""
        same = (self._material.server, self._material.client_authority) == (material.server, material.client_authority)
        with self._lock:
            self._material = material
            if not same:
                self._fresh = _configuration(material)
        return not same

    def server_credentials(self) -> grpc.ServerCredentials:
        """For `add_secure_port`. A client certificate is required and verified."""
        # The stubs do not know that the callback may answer None.
        fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", self._next_configuration)
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._material), fetch, require_client_authentication=True
        )

    def _next_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC at each handshake; None means: as before."""
        self._watch.begun()
        with self._lock:
            fresh, self._fresh = self._fresh, None
        return fresh


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    pair = (material.server.key, material.server.certificate)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=material.client_authority)


def identities(context: grpc.ServicerContext) -> set[str]:
    """The names in the client's verified certificate; empty on a plaintext connection."""
    # The stubs say bytes where gRPC gives a list of them.
    auth = cast("Mapping[str, Iterable[bytes]]", context.auth_context())
    return {
        value.decode("utf-8", "replace")
        for key in ("x509_common_name", "x509_subject_alternative_name")
        for value in auth.get(key, ())
    }


def admitted(context: grpc.ServicerContext, allowed: Collection[str]) -> bool:
    """Whether the client may call; with no allowed names, every certificate of the authority is enough."""
    return not allowed or not identities(context).isdisjoint(allowed)
