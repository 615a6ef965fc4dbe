"""The pool at a glance, as a table for terminals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from homelab_autoscaler.cli.snapshot import slot_views

if TYPE_CHECKING:
    from homelab_autoscaler.cli.snapshot import Snapshot

PHASE_STYLES: Final = {
    "off": "dim",
    "pending": "yellow",
    "booting": "bright_yellow",
    "ready": "bold green",
    "draining": "magenta",
    "reclaimed": "bold blue",
}
_POWER: Final = {"on": Text("● on", style="green"), "off": Text("○ off", style="dim")}


def pool_table(snapshot: Snapshot, now: datetime | None = None) -> Table:
    """Slot, phase, power, claim, since, why.

    Args:
        snapshot: the objects.
        now: for the ages; the present if None.
    """
    now = now or datetime.now(UTC)
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    for title, options in (
        ("SLOT", {"min_width": 8, "no_wrap": True}),
        ("PHASE", {"min_width": 9, "no_wrap": True}),
        ("POWER", {"min_width": 5, "no_wrap": True}),
        ("CLAIM", {"min_width": 15, "no_wrap": True}),
        ("SINCE", {"min_width": 5, "justify": "right", "no_wrap": True}),
    ):
        table.add_column(title, **options)
    table.add_column("WHY", ratio=1)
    for view in slot_views(snapshot):
        table.add_row(
            view.slot,
            Text(view.phase or "-", style=PHASE_STYLES.get(view.phase, "")),
            _POWER.get(view.power, Text("-")),
            view.claim or Text("-", style="dim"),
            age((now - view.since).total_seconds()) if view.since else "-",
            view.why,
        )
    return table


def age(seconds: float) -> str:
    """`4s`, `3m12s`, `5h40m`, `2d3h`: two units at most, as kubectl does."""
    whole = max(0, int(seconds))
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}{rest}{small_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"
