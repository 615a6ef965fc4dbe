"""`homelab-autoscaler sandbox`: the embedded control plane alone."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import Annotated

import typer

from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.logs import configure_logs
from homelab_autoscaler.cli.run_sandbox import SandboxFlags, run


def sandbox(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server; 0 takes a free one.")] = 0,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the kubeconfig and the power ledger go.", show_default="a new temporary directory"),
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option(help="Name of a simulated machine, off at first; may be repeated.")
    ] = None,
    machines: Annotated[
        Path | None, typer.Option(help="YAML file with machines, for more than names: see docs/sandbox.md.")
    ] = None,
    rbac: Annotated[bool, typer.Option("--rbac", help="Evaluate RBAC instead of allowing everything.")] = False,
    time_factor: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Divide every delay of the simulated cluster by this.")
    ] = 1.0,
) -> None:
    """Run a small Kubernetes control plane with simulated machines until Ctrl-C, for trying things out and for tests.

    It prints the path of a kubeconfig; kubectl and client libraries work with it. It listens on loopback only. Pods of
    lifecycle Jobs are run as processes of this user: do not give it manifests that you would not run yourself.
    """
    configure_logs()
    run(
        SandboxFlags(
            port=port,
            data_dir=data_dir,
            names=tuple(machine or ()),
            file=machines,
            rbac=rbac,
            time_factor=time_factor,
        )
    )


app = single(sandbox)
