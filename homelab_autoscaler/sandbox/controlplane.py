"""A whole cluster without machines of its own: API server and simulators on one event loop."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

import yaml

from homelab_autoscaler.sandbox.apiserver import ApiServer, ApiServerOptions
from homelab_autoscaler.sandbox.clock import SandboxClock, SystemSandboxClock
from homelab_autoscaler.sandbox.podrunner.log_provider import PodLogs
from homelab_autoscaler.sandbox.simulators import SimulatorOptions, Simulators

if TYPE_CHECKING:
    from pathlib import Path

    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.machines.fleet import Fleet
    from homelab_autoscaler.sandbox.machines.ledger import PowerLedger


@dataclass(frozen=True)
class ControlPlaneOptions:
    """What to run.

    Attributes:
        host: Address of the API server.
        port: Its port; 0 for a free one.
        server: Options of the API server itself.
        simulators: Machines, controllers, pace.
        kubeconfig: Write a kubeconfig here; None for none.
    """

    host: str = "127.0.0.1"
    port: int = 0
    server: ApiServerOptions = field(default_factory=ApiServerOptions)
    simulators: SimulatorOptions = field(default_factory=SimulatorOptions)
    kubeconfig: Path | None = None


class ControlPlane:
    """Runs from `start` to `close` on the present event loop.

    Guarantee: after `close` no task, process or port of it is left; the kubeconfig that it wrote stays.
    """

    def __init__(self, options: ControlPlaneOptions | None = None, clock: SandboxClock | None = None) -> None:
        """Prepare a control plane.

        Args:
            options: What to run.
            clock: Sandbox time; real time by default.
        """
        self.options = options or ControlPlaneOptions()
        self.clock = clock or SystemSandboxClock()
        self.server = ApiServer(self.clock, self.options.server)
        self.simulators = Simulators(self._simulator_client, self.clock, self.options.simulators)
        self.url = ""

    def _simulator_client(self, user: str) -> ApiClient:
        # Their roles are not part of what is shown or tested: with RBAC on they may do what the real ones may.
        return self.server.local(user, ("system:masters",))

    @property
    def fleet(self) -> Fleet:
        """The machines."""
        return self.simulators.fleet

    @property
    def ledger(self) -> PowerLedger:
        """The power ledger."""
        return self.simulators.ledger

    @property
    def bmc_url(self) -> str:
        """Base URL of the machines' management endpoint."""
        return self.simulators.bmc.url

    async def start(self) -> str:
        """Start everything.

        Returns:
            The API server's base URL; the ports are open when it returns.

        Raises:
            OSError: a port is in use.
        """
        try:
            self.url = await self.server.start(self.options.host, self.options.port)
            await self.simulators.start()
        except OSError:
            await self.close()
            raise
        self.server.set_log_provider(PodLogs(self.simulators.logs, self.clock))
        if self.options.kubeconfig is not None:
            self.write_kubeconfig(self.options.kubeconfig)
        return self.url

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for this control plane, readable by its owner alone."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self.server.kubeconfig(), sort_keys=False), encoding="utf-8")

    async def close(self) -> None:
        """End everything."""
        await self.simulators.close()
        await self.server.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()


def until_signalled() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, instead of ending the process."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    return ended


async def serve(options: ControlPlaneOptions, out: TextIO) -> None:
    """Run a control plane until SIGTERM or SIGINT, telling where it is.

    Raises:
        OSError: a port is in use.
    """
    ended = until_signalled()
    async with ControlPlane(options) as plane:
        machines = ", ".join(machine.name for machine in plane.fleet) or "none"
        lines = [
            f"API server   {plane.url}",
            f"machines     {machines}   ({plane.bmc_url}/machines, ledger: {plane.bmc_url}/ledger)",
        ]
        if options.kubeconfig is not None:
            lines.append(f"kubeconfig   {options.kubeconfig}   (kubectl --kubeconfig {options.kubeconfig} get nodes)")
        out.write("\n".join(lines) + "\n")
        out.flush()
        await ended.wait()
