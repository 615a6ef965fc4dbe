"""What happened, in numbers: a timeline per machine, the writes of the manager, every power command."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from homelab_autoscaler.cli.table import PHASE_STYLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.cli.demo.day import Outcome

_WIDTH: Final = 46
"""Characters of a timeline's band."""
_BLOCKS: Final = {"off": "·", "pending": "░", "booting": "▒", "ready": "█", "draining": "▓", "reclaimed": "▚"}
UNCOUNTED: Final = ("leases", "events")
"""Renewals and Events are not part of the budget of writes."""


@dataclass(frozen=True, slots=True)
class Span:
    """A slot's phase over a time."""

    phase: str
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True)
class Command:
    """A power command that a machine received."""

    time: datetime
    machine: str
    command: str
    sender: str
    result: str


def spans(slot: Node, end: datetime) -> list[Span]:
    """The slot's reported phases in order, the last one until `end`."""
    rows = slot.status.recent_transitions
    ends = [*(row.at for row in rows[1:]), end][: len(rows)]
    return [Span(row.to, row.at, max(row.at, until)) for row, until in zip(rows, ends, strict=True)]


def band(parts: Sequence[Span], start: datetime, end: datetime, width: int = _WIDTH) -> Text:
    """The spans to scale, one character per slice of time; a short phase still gets one."""
    total = max((end - start).total_seconds(), 1e-9)
    cells = ["off"] * width
    for part in parts:
        first = int((part.start - start).total_seconds() / total * width)
        last = int((part.end - start).total_seconds() / total * width)
        for index in range(max(0, min(first, width - 1)), max(0, min(max(first + 1, last), width))):
            cells[index] = part.phase
    text = Text()
    for phase in cells:
        text.append(_BLOCKS.get(phase, "?"), style=PHASE_STYLES.get(phase, ""))
    return text


def commands(lines: str) -> list[Command]:
    """The power ledger, from JSON lines."""
    return [
        Command(
            datetime.fromisoformat(entry["time"]), entry["machine"], entry["command"], entry["sender"], entry["result"]
        )
        for entry in map(json.loads, filter(None, lines.splitlines()))
    ]


def manager_writes(writes: Iterable[dict[str, Any]]) -> Counter[str]:
    """Committed writes of the manager by resource, without Lease renewals and Events."""
    return Counter(
        f"{write['resource']}{'.' + write['group'] if write['group'] else ''}"
        for write in writes
        if write["agent"] == "homelab-autoscaler" and write["resource"] not in UNCOUNTED
    )


def fetch(url: str) -> str:
    """A page of the control plane, as text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
    with opener.open(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def report(outcome: Outcome, time_factor: float) -> RenderableType:
    """The summary, for a terminal of any kind."""
    ledger = commands(fetch(f"{outcome.place.bmc}/ledger"))
    writes = manager_writes(map(json.loads, Path(outcome.place.writes).read_text(encoding="utf-8").splitlines()))
    return Group(
        Text.assemble(
            ("Timeline per machine", "bold"),
            (f"  (times are real; the model's are {time_factor:g} times as long)", "dim"),
        ),
        timeline(outcome.snapshot.slots),
        Text.assemble(("Power commands", "bold"), (f"  {len(ledger)}, as the machines received them", "dim")),
        _commands_table(ledger),
        Text.assemble(("API writes of the manager", "bold"), ("  without Lease renewals and Events", "dim")),
        Text(", ".join(f"{name} {count}" for name, count in writes.most_common()) + f": {writes.total()} in all"),
        Text(""),
        Text.assemble(
            ("Manager", "bold"),
            f"  led {outcome.leading_after:.1f} s after its start, {outcome.manager_peak:.0f} MiB resident at most",
        ),
    )


def timeline(slots: Sequence[Node]) -> Table:
    """A band per slot, and how long it was in each phase."""
    moments = [row.at for slot in slots for row in slot.status.recent_transitions]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("SLOT", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("PHASES")
    if not moments:
        return table
    start, end = min(moments), max(moments)
    for slot in sorted(slots, key=lambda slot: slot.name):
        parts = spans(slot, end)
        words = Text(" ")
        words = words.join(
            Text(f"{part.phase} {part.seconds:.1f}s", style=PHASE_STYLES.get(part.phase, ""))
            for part in parts
            if part.seconds > 0
        )
        table.add_row(slot.name, band(parts, start, end), words)
    return table


def _commands_table(ledger: Sequence[Command]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("TIME", "MACHINE", "COMMAND", "SENT BY", "RESULT"):
        table.add_column(title, no_wrap=title != "SENT BY")
    for entry in ledger:
        table.add_row(f"{entry.time:%H:%M:%S}", entry.machine, entry.command, entry.sender, entry.result)
    return table
