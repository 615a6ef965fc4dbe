"""`python -m homelab_autoscaler.sandbox`: the embedded control plane alone, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final, TextIO

from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.attached import AttachedSimulators, read_kubeconfig
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions, serve, until_signalled
from homelab_autoscaler.sandbox.machines.declare import machines_from_file
from homelab_autoscaler.sandbox.machines.spec import MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.timings import Timings

LIMITS: Final = """\
What it is: a Kubernetes API for one computer, with controllers, a small scheduler, machines that exist only as time,
and one node that runs the commands of pods as local processes.
What it is not: it knows no authentication beyond loopback tokens, no containers and no isolation (a pod's command runs
as you), no high availability, and it keeps nothing unless --data-dir is given.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m homelab_autoscaler.sandbox",
        description="Run the embedded control plane.",
        epilog=LIMITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--port", type=int, default=0, help="port of the API server (0: a free one)")
    found.add_argument("--bmc-port", type=int, default=0, help="port of the machines' power endpoint (0: a free one)")
    found.add_argument("--kubeconfig", type=Path, default=Path("sandbox.kubeconfig"), help="where to write it")
    found.add_argument("--machines", type=int, default=0, metavar="N", help="N machines machine-1 … machine-N, off")
    found.add_argument("--machines-file", type=Path, metavar="FILE", help="machines declared in YAML")
    found.add_argument("--ledger", type=Path, metavar="FILE", help="keep the power ledger in this file, too")
    found.add_argument("--data-dir", type=Path, metavar="DIR", help="keep objects here over a restart")
    found.add_argument("--speed", type=float, default=1.0, help="20: delays of the cluster are 20 times shorter")
    found.add_argument(
        "--attach",
        type=Path,
        metavar="KUBECONFIG",
        help="run no API server: machines, host node, scheduler for that cluster; add --no-controllers if it has some",
    )
    found.add_argument("--rbac", action="store_true", help="evaluate roles for tokens and impersonated users")
    found.add_argument("--token-file", type=Path, metavar="FILE", help='static tokens: token,user,uid,"group1,group2"')
    found.add_argument("--no-controllers", action="store_true", help="run none of a cluster's controllers")
    found.add_argument("--no-scheduler", action="store_true", help="leave pods without a node as they are")
    found.add_argument("--no-host-node", action="store_true", help="run no pods as local processes")
    return found


def options(arguments: argparse.Namespace) -> ControlPlaneOptions:
    """Options from the command line.

    Raises:
        ValueError: naming the option or the field of the machines' file.
    """
    machines = tuple(MachineSpec(f"machine-{number}") for number in range(1, arguments.machines + 1))
    if arguments.machines_file is not None:
        machines += machines_from_file(arguments.machines_file)
    simulators = SimulatorOptions(
        machines=machines,
        timings=Timings().scaled(arguments.speed),
        controllers=not arguments.no_controllers,
        scheduler=not arguments.no_scheduler,
        host_node=not arguments.no_host_node,
        ledger_path=arguments.ledger,
        bmc_port=arguments.bmc_port,
    )
    server = ApiServerOptions(rbac=arguments.rbac, data_dir=arguments.data_dir, token_file=arguments.token_file)
    return ControlPlaneOptions(
        port=arguments.port, server=server, simulators=simulators, kubeconfig=arguments.kubeconfig
    )


async def attach(kubeconfig: Path, options: SimulatorOptions, out: TextIO) -> None:
    """Run the simulators against another cluster until SIGTERM or SIGINT.

    Raises:
        OSError: the BMC port is in use.
        ValueError: the kubeconfig lacks something.
    """
    ended = until_signalled()
    async with AttachedSimulators(read_kubeconfig(kubeconfig), options) as simulators:
        machines = ", ".join(machine.name for machine in simulators.fleet) or "none"
        out.write(f"attached to  {kubeconfig}\nmachines     {machines}   ({simulators.bmc.url}/machines)\n")
        out.flush()
        await ended.wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = parser().parse_args(arguments)
    try:
        if given.attach is not None:
            asyncio.run(attach(given.attach, options(given).simulators, sys.stdout))
        else:
            asyncio.run(serve(options(given), sys.stdout))
    except (ValueError, OSError) as error:
        print(f"sandbox: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
