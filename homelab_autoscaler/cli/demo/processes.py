"""The demo's child processes: started with a log file each, watched, and ended together whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from homelab_autoscaler.cli.failure import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_GRACE: Final = 10.0
"""Seconds between asking a process to stop and killing it."""
_TAIL: Final = 15
"""Lines of a log that are shown when its process died."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running process.

    Attributes:
        name: for people.
        process: its handle; it leads a process group of its own.
        log: where its stdout and stderr go.
        started_at: wall-clock seconds just before it was started.
        command: how it was started.
        revive: start it again when it ends.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    started_at: float
    command: tuple[str, ...]
    revive: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL:])


class Children:
    """Processes that live as long as the demo. Use as a context manager.

    Guarantee: on leaving the context every one of them has ended, unless `keep` was called. Non-guarantee: if this
    process is killed outright (SIGKILL), they go on.
    """

    def __init__(self, directory: Path) -> None:
        """Nothing runs yet.

        Args:
            directory: for their logs; must exist.
        """
        self._directory = directory
        self._children: list[Child] = []
        self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self.stop()

    def start(
        self, name: str, arguments: Sequence[str], module: str = "homelab_autoscaler.cli", *, revive: bool = False
    ) -> Child:
        """Start a module of ours with this Python.

        Args:
            name: for people, and of the log file.
            arguments: after the program's name.
            module: what to run; `homelab-autoscaler` if not given.
            revive: when it ends, `check` starts it again instead of complaining.
        """
        child = self._launch(name, (sys.executable, "-m", module, *arguments), revive=revive)
        self._children.append(child)
        return child

    def _launch(self, name: str, command: tuple[str, ...], *, revive: bool) -> Child:
        log = self._directory / f"{name.replace(' ', '-')}.log"
        started_at = time.time()
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to hand on: in order, and with patience
            )
        return Child(name, process, log, started_at, command, revive)

    def named(self, name: str) -> Child:
        """The present process of that name.

        Raises:
            KeyError: none was started.
        """
        for child in self._children:
            if child.name == name:
                return child
        raise KeyError(name)

    def stop_named(self, name: str) -> None:
        """End the process of that name, if one runs."""
        for child in [child for child in self._children if child.name == name]:
            stop_group(child.process, _GRACE)
            self._children.remove(child)

    def check(self) -> None:
        """Make sure that all of them still run; start those again that are to be revived.

        Raises:
            CommandError: one has ended; the text has the end of its log.
        """
        for index, child in enumerate(self._children):
            code = child.process.poll()
            if code is None:
                continue
            if not child.revive:
                raise CommandError(f"{child.name} ended with exit code {code}; its last words:\n{child.tail()}")
            self._children[index] = self._launch(child.name, child.command, revive=True)

    def keep(self) -> list[Child]:
        """Leave them running when the context ends."""
        self._kept = True
        return list(self._children)

    def stop(self) -> None:
        """End them, last started first, each with everything that it started itself."""
        for child in reversed(self._children):
            stop_group(child.process, _GRACE)
        self._children.clear()


def stop_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask a process to stop; kill its whole group when it has not after `grace` seconds, or left something behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
