"""The same world on a real kube-apiserver: our machines and controllers attach to it over HTTP."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.attached import AttachedSimulators, read_kubeconfig
from homelab_autoscaler.sandbox.testing.control_plane import ASSETS, real_control_plane
from homelab_autoscaler.sandbox.testing.sync import BackgroundLoop

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
        self._loop = BackgroundLoop("simulators")

    def start(self) -> None:
        """Start everything; returns when machines can be added."""
        plane = self._stack.enter_context(real_control_plane(self._assets))
        self._plane = plane
        self._stack.enter_context(self._loop)
        attached = AttachedSimulators(read_kubeconfig(plane.kubeconfig), self._options)
        self._simulators = self._loop.call(attached.__aenter__())
        self._stack.callback(lambda: self._loop.call(attached.__aexit__()))

    def call(self, action: Callable[[Simulators], object]) -> object:
        """Run a function on the simulators' loop and wait for its result."""

        async def run() -> object:
            return action(self._simulators)

        return self._loop.call(run())

    def write_kubeconfig(self, _path: Path) -> Path:
        """Where the administrator's kubeconfig is."""
        return self._plane.kubeconfig

    def kubeconfig_of(self, user: str, groups: tuple[str, ...], namespace: str) -> Path:
        """Where the kubeconfig of a user is."""
        return self._plane.kubeconfig_of(user, groups, namespace)

    def stop(self) -> None:
        """End everything."""
        self._stack.close()
