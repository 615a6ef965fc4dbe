"""`homelab-autoscaler status`: the pool at a glance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.console import Group as Stack
from rich.live import Live
from rich.text import Text

from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.connection import Context, Kubeconfig, Namespace, connected
from homelab_autoscaler.cli.failure import UsageError
from homelab_autoscaler.cli.snapshot import Snapshot, take, take_what_is_left
from homelab_autoscaler.cli.still_on import still_on_table
from homelab_autoscaler.cli.table import pool_table

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_EVERY: Final = 1.0


def status(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking until Ctrl-C.")] = False,
    on: Annotated[
        bool, typer.Option("--on", help="List only machines that are on or may be, whatever is left of their pool.")
    ] = False,
) -> None:
    """Show every machine: what it does, for whom, since when, and why."""
    if on and watch:
        raise UsageError("--on and --watch do not go together: --on is a list to keep")
    with connected(kubeconfig, context, namespace) as (client, where, _):
        console = Console()
        if on:
            console.print(still_on_table(take_what_is_left(client, where), where))
            return
        if not watch:
            console.print(overview(take(client, where), where))
            return
        with Live(console=console, refresh_per_second=4) as live:
            while True:
                live.update(overview(take(client, where), where))
                time.sleep(_WATCH_EVERY)


def overview(snapshot: Snapshot, namespace: str) -> RenderableType:
    """A line per pool, and the table of slots."""
    if not snapshot.slots:
        return Text(f"no slots in namespace {namespace}: apply a Group and Nodes of infra.homecluster.dev first")
    lines = [
        Text.assemble(
            (group.name, "bold"),
            f": {_number(group.status.slots)} slots, {_number(group.status.on)} on, "
            f"{_number(group.status.target)} wanted, {group.status.health or 'not looked at yet'}",
        )
        for group in sorted(snapshot.groups, key=lambda group: group.name)
    ]
    return Stack(*lines, pool_table(snapshot))


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


app = single(status)
