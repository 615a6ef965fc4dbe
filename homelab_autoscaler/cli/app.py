"""The executable and its commands. A module is imported when its command is asked for: `manager` stays small."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: Final = {
    "demo": "demo.command",
    "status": "status",
    "explain": "explain",
    "claim": "claim",
    "unclaim": "unclaim",
    "manager": "manager",
    "sandbox": "sandbox",
    "manifests": "manifests",
    "version": "version",
}
"""Name to module, in the order in which `--help` shows them. Each module has an `app`."""


class LazyCommands(TyperGroup):
    """Finds commands by name and imports nothing else."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, None if there is none."""
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = typer.main.get_command(importlib.import_module(f"homelab_autoscaler.cli.{module}").app)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="homelab-autoscaler",
    cls=LazyCommands,
    help="Power physical machines on and off for Cluster Autoscaler. A machine is wanted exactly while a live "
    "NodeClaim names its slot.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # errors of people are CommandErrors; defects deserve a whole traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Makes it a group without commands of its own."""


def single(function: Callable[..., None]) -> typer.Typer:
    """An app of one command, as each module offers it."""
    command = typer.Typer(
        add_completion=False, rich_markup_mode="markdown", context_settings={"help_option_names": ["-h", "--help"]}
    )
    command.command()(function)
    return command
