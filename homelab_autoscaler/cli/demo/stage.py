"""Around the demo's day: a directory, a screen, children that end, and what is said at the end."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from homelab_autoscaler.cli.demo.day import Day
from homelab_autoscaler.cli.demo.processes import Children
from homelab_autoscaler.cli.demo.screen import LiveScreen, PlainScreen
from homelab_autoscaler.cli.demo.summary import report
from homelab_autoscaler.cli.failure import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from homelab_autoscaler.cli.demo.day import DayOptions, Outcome
    from homelab_autoscaler.cli.demo.processes import Child


def play(options: DayOptions, *, keep: bool, data_dir: Path | None) -> None:
    """Play the day and say how it went.

    Raises:
        CommandError: it did not go as it should.
        KeyboardInterrupt: somebody had enough (also after SIGTERM); everything was ended.
    """
    console = Console()
    started = time.monotonic()
    factor = options.time_factor
    pace = "in real time" if factor == 1 else f"every wait is {factor:g} times shorter"
    title = f"homelab-autoscaler demo   {pace}"
    screen = LiveScreen(console, started, title) if console.is_terminal else PlainScreen(console, started)
    if not console.is_terminal:
        console.print(title, highlight=False)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT for what it starts in the background
        signal.signal(number, _interrupt)
    directory = _prepared(data_dir)
    finished = False
    try:
        with Children(directory) as children:
            with screen as open_screen:
                outcome = Day(options, directory, children, open_screen).run()
            console.print(report(outcome, factor))
            if keep:
                _tell_kept(console, children.keep(), outcome, directory)
        finished = True
    finally:
        if finished and not keep and data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)  # after a failure the logs stay: the message names them


def _prepared(data_dir: Path | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="homelab-demo-"))
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if any(data_dir.iterdir()):
            raise CommandError(f"--data-dir: {data_dir} is not empty: choose a new directory, or empty it")
    except OSError as error:
        raise CommandError(f"--data-dir: {data_dir} cannot be used: {error.strerror or error}") from error
    return data_dir.resolve()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise KeyboardInterrupt


def _tell_kept(console: Console, children: Sequence[Child], outcome: Outcome, directory: Path) -> None:
    pids = " ".join(str(child.pid) for child in reversed(children))
    console.print("\nEverything is still running. Look at it with kubectl:")
    for line in (
        f"export KUBECONFIG={outcome.place.kubeconfig}",
        "kubectl get nodes.infra.homecluster.dev -o wide",
        "kubectl get nodeclaims -o wide",
        "kubectl get events",
        "homelab-autoscaler claim rack-3             # switch a machine on by hand",
        f"curl {outcome.place.bmc}/ledger             # every power command so far",
    ):
        console.print(f"  {line}", soft_wrap=True, highlight=False)
    console.print(f"Logs are in {directory}. Stop it with:\n  kill {pids}", soft_wrap=True, highlight=False)
