"""From flags to an embedded control plane that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from homelab_autoscaler.cli.failure import CommandError, UsageError
from homelab_autoscaler.cli.listening import check_free
from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.controlplane import ControlPlane, ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.declare import machines_from_file
from homelab_autoscaler.sandbox.machines.spec import MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_autoscaler.sandbox.apiserver import Write

PLACE_FILE: Final = "sandbox.json"
"""Written into the data directory when everything listens: where to find what, for programs."""
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SandboxFlags:
    """What `homelab-autoscaler sandbox` was told; see its `--help`."""

    port: int = 0
    data_dir: Path | None = None
    keep_objects: bool = False
    names: tuple[str, ...] = ()
    file: Path | None = None
    rbac: bool = False
    time_factor: float = 1.0


def run(flags: SandboxFlags) -> None:
    """Run a control plane until SIGTERM or Ctrl-C.

    Raises:
        UsageError: the machines, the factor or the data directory make no sense.
        CommandError: the port is in use.
    """
    if flags.port:
        check_free("--port", f"{_HOST}:{flags.port}")
    with _directory(flags.data_dir) as directory:
        try:
            options = _options(flags, directory)
        except ValueError as error:
            raise UsageError(str(error)) from error
        try:
            asyncio.run(_serve(options, directory))
        except OSError as error:
            raise CommandError(f"the control plane cannot run: {error}") from error


def _options(flags: SandboxFlags, directory: Path) -> ControlPlaneOptions:
    machines = tuple(MachineSpec(name) for name in flags.names)
    if flags.file is not None:
        machines += machines_from_file(flags.file)
    simulators = SimulatorOptions(
        machines=machines,
        timings=Timings().scaled(flags.time_factor),
        ledger_path=directory / "power-ledger.jsonl",
    )
    server = ApiServerOptions(rbac=flags.rbac, data_dir=directory / "objects" if flags.keep_objects else None)
    return ControlPlaneOptions(
        host=_HOST, port=flags.port, server=server, simulators=simulators, kubeconfig=directory / "kubeconfig"
    )


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """The data directory; one that nobody asked for goes with us."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="homelab-sandbox-") as made:
            yield Path(made)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
        if not os.access(given, os.W_OK):
            raise UsageError(f"--data-dir: {given} cannot be written to")
    except OSError as error:
        raise UsageError(f"--data-dir: {given} cannot be used: {error.strerror or error}") from error
    yield given.resolve()


async def _serve(options: ControlPlaneOptions, directory: Path) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    writes = directory / "writes.jsonl"
    async with ControlPlane(options) as plane:
        with writes.open("a", encoding="utf-8", buffering=1) as log:

            def note(write: Write) -> None:
                log.write(json.dumps(write.to_json()) + "\n")

            plane.server.writes.subscribe(note)
            _announce(plane, directory, writes)
            await ended.wait()
            with contextlib.suppress(FileNotFoundError):
                (directory / PLACE_FILE).unlink()


def _announce(plane: ControlPlane, directory: Path, writes: Path) -> None:
    kubeconfig = directory / "kubeconfig"
    place = {
        "server": plane.url,
        "kubeconfig": str(kubeconfig),
        "bmc": plane.bmc_url,
        "writes": str(writes),
        "pid": os.getpid(),
    }
    draft = directory / f"{PLACE_FILE}.new"
    draft.write_text(json.dumps(place), encoding="utf-8")
    draft.rename(directory / PLACE_FILE)
    machines = ", ".join(machine.name for machine in plane.fleet) or "none"
    typer.echo(f"control plane  {plane.url}")
    typer.echo(f"machines       {machines}")
    typer.echo(f"power          {plane.bmc_url}/machines, {plane.bmc_url}/ledger")
    typer.echo(f"writes         {writes}")
    typer.echo(f"use it         export KUBECONFIG={kubeconfig}")
