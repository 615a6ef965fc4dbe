"""The simulators against a cluster of somebody else: machines, host node and scheduler, but no API server of ours."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import yaml

from homelab_autoscaler.sandbox.client import HttpClient
from homelab_autoscaler.sandbox.clock import SystemSandboxClock
from homelab_autoscaler.sandbox.simulators import SimulatorOptions, Simulators

if TYPE_CHECKING:
    from pathlib import Path

    from homelab_api.meta import JsonObject


class AttachedSimulators:
    """Simulators that reach an API server over HTTP, all with the rights of one kubeconfig.

    For a real kube-apiserver with its real controllers: start with `controllers=False`. `kubectl logs` has nothing to
    read there, since the server asks the kubelets and ours have no port.
    """

    def __init__(self, kubeconfig: JsonObject, options: SimulatorOptions) -> None:
        """Prepare simulators for the cluster of a kubeconfig's current context."""
        self._kubeconfig = kubeconfig
        self._clients: dict[str, HttpClient] = {}
        self.simulators = Simulators(self._client, SystemSandboxClock(), options)

    def _client(self, user: str) -> HttpClient:
        if user not in self._clients:
            self._clients[user] = HttpClient.from_kubeconfig(self._kubeconfig)
        return self._clients[user]

    async def __aenter__(self) -> Simulators:
        """Start them.

        Raises:
            OSError: the BMC port is in use.
            ValueError: the kubeconfig lacks something.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            await self.simulators.start()
            stack.pop_all()
        return self.simulators

    async def __aexit__(self, *_: object) -> None:
        """End them."""
        await self._close()

    async def _close(self) -> None:
        await self.simulators.close()
        await asyncio.gather(*(client.close() for client in self._clients.values()))


def read_kubeconfig(path: Path) -> JsonObject:
    """A kubeconfig from a file.

    Raises:
        ValueError: it cannot be read or understood; the message names the file.
    """
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a kubeconfig")  # noqa: TRY004 - one error for bad input
    return found
