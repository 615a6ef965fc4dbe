"""The power ledger: every power command that a machine ever received, in order. The judge of most fault tests."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from homelab_api.meta import format_micro_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One command.

    Attributes:
        time: When it came, RFC 3339 with microseconds.
        machine: To which machine.
        command: `on` or `off`.
        sender: Who sent it: the Job's name for commands of lifecycle Jobs, `hand` for a person at the machine.
        result: `accepted`, `unchanged` (the machine was so already), `refused`, `ignored` (the firmware said yes and
            did nothing).
    """

    time: str
    machine: str
    command: str
    sender: str
    result: str

    def to_json(self) -> dict[str, Any]:
        """As written to disk and served over HTTP."""
        return asdict(self)


class PowerLedger:
    """Commands in memory and, if a path is given, appended to a JSON lines file.

    Guarantee: an entry is on disk before the command's answer leaves. A ledger that is opened on an existing file
    goes on with what is in it.
    """

    def __init__(self, now: Callable[[], datetime], path: Path | None = None) -> None:
        """An empty ledger, or the continued one of a file.

        Args:
            now: Dates entries.
            path: The file; its directory must exist.
        """
        self._now = now
        self._path = path
        self._entries: list[LedgerEntry] = []
        if path is not None and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            self._entries = [LedgerEntry(**json.loads(line)) for line in lines if line.strip()]

    def write(self, machine: str, command: str, sender: str, result: str) -> LedgerEntry:
        """Add an entry, dated now."""
        entry = LedgerEntry(format_micro_time(self._now()), machine, command, sender, result)
        self._entries.append(entry)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry.to_json()) + "\n")
        return entry

    def entries(self, machine: str | None = None, command: str | None = None) -> list[LedgerEntry]:
        """The entries in order, of one machine or command if asked."""
        return [
            entry for entry in self._entries if machine in (None, entry.machine) and command in (None, entry.command)
        ]

    def to_lines(self) -> str:
        """JSON lines."""
        return "".join(json.dumps(entry.to_json()) + "\n" for entry in self._entries)
