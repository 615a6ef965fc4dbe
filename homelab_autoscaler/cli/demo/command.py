"""`homelab-autoscaler demo`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import Annotated, Final

import typer

from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.demo.day import DayOptions
from homelab_autoscaler.cli.demo.stage import play

DEFAULT_FACTOR: Final = 20.0


def demo(
    *,
    machines: Annotated[int, typer.Option(min=2, max=50, help="Machines of the pool; two of them get work.")] = 3,
    time_factor: Annotated[
        float, typer.Option(min=1, max=200, help="Divide every wait of the model and of the simulation by this.")
    ] = DEFAULT_FACTOR,
    real_time: Annotated[bool, typer.Option("--real-time", help="With the true waits: six minutes or seven.")] = (
        False
    ),
    kills: Annotated[
        int, typer.Option(min=0, max=100, help="Kill the manager outright this often during the day (SIGKILL).")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Of the moments of the kills, to repeat a day.", show_default="chosen")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end, to play with.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where kubeconfig, logs and certificates go.", show_default="a new temporary directory"),
    ] = None,
) -> None:
    """See the operator work: an embedded control plane, simulated machines, a scripted day of about a minute.

    Needs no cluster, no container engine and no rights. Exit codes: 0 when the day went as it should; 1 with a message
    when something did not happen in time; 130 after Ctrl-C. All processes are ended in any case, except after --keep.
    """
    factor = 1.0 if real_time else time_factor
    options = DayOptions(machines=machines, time_factor=factor, kills=kills, seed=seed)
    play(options, keep=keep, data_dir=data_dir)


app = single(demo)
