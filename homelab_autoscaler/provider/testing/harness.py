"""A ProviderServer over a MemoryStore, serving on a free port of the loopback interface."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import grpc

from homelab_api.core import Secret
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.server import ProviderOptions, ProviderServer
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.event import CreateEvent, DeleteEvent, UpdateEvent
from homelab_autoscaler.runtime.stop import StopSignal
from homelab_autoscaler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from homelab_api.meta import KubeObject
    from homelab_autoscaler.claim.testing import MemoryStore
    from homelab_autoscaler.provider.offer import Gate
    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock

_PATIENCE = 60.0
NAMESPACE = "homelab-autoscaler-system"


class MemoryCache:
    """The informers of a Cache, told of a MemoryStore's changes in the thread that makes them."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._known: dict[str, KubeObject] = {}
        self._handlers: list[tuple[type[KubeObject], Callable[[Any], None]]] = []
        store.listeners.append(self._changed)

    def informer(self, kind: type[KubeObject], *, namespace: str | None = None) -> _MemoryInformer:
        """The informer of a kind; every namespace of the store is seen."""
        del namespace
        return _MemoryInformer(self, kind)

    def add(self, kind: type[KubeObject], handler: Callable[[Any], None]) -> None:
        """Tell the handler of what is there, then of every change."""
        for obj in self._store.all(kind):
            self._known[obj.uid] = obj
            handler(CreateEvent(obj, initial=True))
        self._handlers.append((kind, handler))

    def _changed(self, change: str, obj: KubeObject) -> None:
        before = self._known.get(obj.uid)
        event: CreateEvent[Any] | UpdateEvent[Any] | DeleteEvent[Any]
        if change == "DELETED":
            self._known.pop(obj.uid, None)
            event = DeleteEvent(obj)
        else:
            self._known[obj.uid] = obj
            event = CreateEvent(obj) if before is None else UpdateEvent(before, obj)
        for kind, handler in self._handlers:
            if isinstance(obj, kind):
                handler(event)


class _MemoryInformer:
    def __init__(self, cache: MemoryCache, kind: type[KubeObject]) -> None:
        self._cache = cache
        self._kind = kind

    def add_handler(self, handler: Callable[[Any], None], *, name: str) -> _Synced:
        del name
        self._cache.add(self._kind, handler)
        return _Synced()


class _Synced:
    def wait_for_sync(self, _stop: StopSignal, _timeout: float) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Served:
    """A provider that answers calls, and ways to call it."""

    server: ProviderServer
    store: MemoryStore
    address: str

    def channel(self) -> grpc.Channel:
        """A channel as Cluster Autoscaler makes it: with the client Secret's certificate, or plaintext."""
        if self.server.options.plaintext:
            return grpc.insecure_channel(self.address)
        return grpc.secure_channel(self.address, self.credentials())

    def credentials(self, *, role: str = "client") -> grpc.ChannelCredentials:
        """Credentials from the Secret of a role."""
        secret = self.store.get(Secret, f"{self.server.options.service}-{role}", NAMESPACE)
        return grpc.ssl_channel_credentials(secret.entry("ca.crt"), secret.entry("tls.key"), secret.entry("tls.crt"))

    @contextmanager
    def stub(self) -> Iterator[pb_grpc.CloudProviderStub]:
        """A client of the service."""
        with self.channel() as channel:
            yield pb_grpc.CloudProviderStub(channel)  # type: ignore[no-untyped-call]  # generated


@contextmanager
def serve(
    store: MemoryStore,
    *,
    options: ProviderOptions | None = None,
    namespace: str | None = "pool",
    settings: Settings | None = None,
    gates: Sequence[Gate] = (),
    clock: Clock | None = None,
) -> Iterator[Served]:
    """Run a provider until the block ends.

    Raises:
        Exception: whatever ended the server early.
    """
    options = options or ProviderOptions(address="127.0.0.1:0", secrets_namespace=NAMESPACE)
    server = ProviderServer(
        cast("Client", store),
        cast("Cache", MemoryCache(store)),
        clock or SystemClock(),
        settings or Settings(),
        None,
        namespace,
        options,
        gates=gates,
    )
    stop = StopSignal()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run(stop)
        except BaseException as error:  # noqa: BLE001 - passed on to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="provider-under-test", daemon=True)
    thread.start()
    try:
        while not server.wait_serving(0.05):
            if failures:
                raise failures[0]
            if not thread.is_alive():
                raise RuntimeError("the provider ended before it served")
        host = options.address.rpartition(":")[0]
        yield Served(server, store, f"{host}:{server.port}")
    finally:
        stop.set()
        thread.join(_PATIENCE)
