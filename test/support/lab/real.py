"""The same world on a real kube-apiserver: our machines and controllers attach to it over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.attached import AttachedSimulators, read_kubeconfig
from homelab_autoscaler.sandbox.testing.control_plane import ASSETS, real_control_plane

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.sandbox.simulators import SimulatorOptions, Simulators


def real_assets() -> Path | None:
    """Where the binaries of a real control plane are; None to use the embedded one."""
    found = os.environ.get(ASSETS)
    return Path(found) if found else None


class AttachedCluster:
    """etcd, kube-apiserver and our simulators; the part of HostedControlPlane that a world needs."""

    def __init__(self, assets: Path, options: SimulatorOptions) -> None:
        self._assets = assets
        self._options = options
        self._stack = contextlib.ExitStack()
        self._loop = asyncio.new_event_loop()
        self._kubeconfig = Path()

    def start(self) -> None:
        """Start everything; returns when machines can be added."""
        plane = self._stack.enter_context(real_control_plane(self._assets))
        self._kubeconfig = plane.kubeconfig
        threading.Thread(target=self._loop.run_forever, name="simulators", daemon=True).start()
        self._attached = AttachedSimulators(read_kubeconfig(plane.kubeconfig), self._options)
        self._simulators = self._run(self._attached.__aenter__())

    def call(self, action: Callable[[Simulators], object]) -> object:
        """Run a function on the simulators' loop and wait for its result."""

        async def run() -> object:
            return action(self._simulators)

        return self._run(run())

    def write_kubeconfig(self, _path: Path) -> Path:
        """Where the administrator's kubeconfig is."""
        return self._kubeconfig

    def stop(self) -> None:
        """End everything."""
        self._run(self._attached.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._stack.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
