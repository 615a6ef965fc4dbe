"""A control plane for tests that hold on any: embedded by default, a real kube-apiserver if its binaries are at hand.

The environment variable KUBEBUILDER_ASSETS names a directory with `etcd` and `kube-apiserver`, as envtest does. Either
authorises with RBAC, speaks TLS and runs no controllers, no scheduler and no kubelets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import yaml

from homelab_autoscaler.runtime import Client, ClientConfig, SystemClock, load_config
from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.client import HttpClient
from homelab_autoscaler.sandbox.testing.real import real_api_server
from homelab_autoscaler.sandbox.testing.running import running_api_server
from homelab_autoscaler.sandbox.testing.sync import BackgroundLoop, SyncClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from homelab_api.meta import JsonObject

ASSETS = "KUBEBUILDER_ASSETS"


class ControlPlane:
    """A running API server, shared by the tests of a session: use namespaces and names of your own.

    What a real one does a moment later (a new kind is served, a role binding or a webhook counts) has to be waited for
    on both.

    Attributes:
        kubeconfig: file of an administrator.
        url: where it listens.
        real: it is a kube-apiserver.
    """

    def __init__(
        self, kubeconfig: Path, credentials: Callable[[str, tuple[str, ...], str], JsonObject], *, real: bool
    ) -> None:
        """Take over a server that runs.

        Args:
            kubeconfig: file of an administrator.
            credentials: gives the kubeconfig of a user, by name, groups and namespace of the context.
            real: it is a kube-apiserver.
        """
        self.kubeconfig = kubeconfig
        self.real = real
        content = yaml.safe_load(kubeconfig.read_text())
        self.url: str = content["clusters"][0]["cluster"]["server"]
        self._credentials = credentials
        self._numbers = itertools.count()
        self._stack = contextlib.ExitStack()
        self._loop = self._stack.enter_context(BackgroundLoop("control-plane-clients"))

    @property
    def config(self) -> ClientConfig:
        """How to reach it as its administrator."""
        return load_config(str(self.kubeconfig))

    def kubeconfig_of(self, user: str, groups: tuple[str, ...] = (), namespace: str = "default") -> Path:
        """The file of a kubeconfig with which one is that user; service accounts have to exist."""
        path = self.kubeconfig.with_name(f"user-{next(self._numbers)}.kubeconfig")
        path.touch(mode=0o600)
        path.write_bytes(orjson.dumps(self._credentials(user, groups, namespace)))
        return path

    def client(self) -> Client:
        """A client of the runtime, as the administrator; close it."""
        return Client(self.config, SystemClock(), field_manager="test")

    def api(self, user: str | None = None, groups: tuple[str, ...] = ()) -> SyncClient:
        """A client that takes paths and bodies, as a user, else as the administrator. Closed with the control plane."""
        path = self.kubeconfig if user is None else self.kubeconfig_of(user, groups)
        client = HttpClient.from_kubeconfig(yaml.safe_load(path.read_text()))
        self._stack.callback(lambda: self._loop.call(client.close()))
        return SyncClient(client, self._loop.call)

    def close(self) -> None:
        """Close its clients."""
        self._stack.close()


@contextlib.contextmanager
def embedded_control_plane() -> Iterator[ControlPlane]:
    """The embedded API server."""
    with running_api_server(options=ApiServerOptions(rbac=True)) as server:

        def credentials(user: str, groups: tuple[str, ...], namespace: str) -> JsonObject:
            return server.run(lambda: server.server.kubeconfig(server.server.token(user, groups), namespace))

        plane = ControlPlane(server.kubeconfig, credentials, real=False)
        with contextlib.closing(plane):
            yield plane


@contextlib.contextmanager
def real_control_plane(assets: Path) -> Iterator[ControlPlane]:
    """An etcd and a kube-apiserver of their own, on free loopback ports, in a temporary directory.

    Raises:
        RuntimeError: a binary is missing, or they were not ready in time; the text holds the end of their output.
    """
    with real_api_server(assets) as server:
        plane = ControlPlane(server.kubeconfig, server.credentials, real=True)
        with contextlib.closing(plane):
            yield plane


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """The real one when KUBEBUILDER_ASSETS is set, else the embedded one."""
    assets = os.environ.get(ASSETS)
    with real_control_plane(Path(assets)) if assets else embedded_control_plane() as plane:
        yield plane
