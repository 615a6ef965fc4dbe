"""What the demo shows while it runs: a live table on a terminal, one line per change everywhere else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from homelab_autoscaler.cli.snapshot import slot_views
from homelab_autoscaler.cli.table import pool_table

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

    from homelab_autoscaler.cli.snapshot import SlotView, Snapshot

_FEED = 14
"""Lines of the story that stay on the live screen."""


class Screen(Protocol):
    """Where the demo tells its story. A context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, text: str) -> None:
        """A new chapter."""
        ...

    def say(self, text: str) -> None:
        """Something that a person should know or may use."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """The pool as it is now."""
        ...


class Changes:
    """Turns snapshots into sentences: one for each slot whose phase, power or claim changed."""

    def __init__(self) -> None:
        self._last: dict[str, SlotView] = {}

    def update(self, snapshot: Snapshot) -> list[str]:
        """What is new since the last call."""
        lines = []
        for view in slot_views(snapshot):
            before = self._last.get(view.slot)
            self._last[view.slot] = view
            if before is None or (before.phase, before.power) != (view.phase, view.power):
                was = f"{before.phase or '-'}/{before.power or '-'} -> " if before else ""
                claim = f"  {view.claim}" if view.claim else ""
                lines.append(f"{view.slot}: {was}{view.phase or '-'}/{view.power or '-'}{claim}  ({view.why})")
        return lines


class PlainScreen:
    """One line per event, with the seconds since the start: for logs, pipes and tests."""

    def __init__(self, console: Console, started: float) -> None:
        """Write to a console.

        Args:
            console: the place.
            started: `time.monotonic()` at the beginning.
        """
        self._console = console
        self._started = started
        self._changes = Changes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, text: str) -> None:
        """A new chapter."""
        self._line(f"== {text}")

    def say(self, text: str) -> None:
        """Something that a person should know or may use."""
        self._line(f"   {text}")

    def show(self, snapshot: Snapshot) -> None:
        """Lines for what changed."""
        for line in self._changes.update(snapshot):
            self._line(f"   {line}")

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        self._console.print(f"{elapsed:6.1f}s {text}", markup=False, highlight=False, soft_wrap=True)


class LiveScreen:
    """A table that stays in place, with the story above it."""

    def __init__(self, console: Console, started: float, title: str) -> None:
        """Draw on a console.

        Args:
            console: a terminal.
            started: `time.monotonic()` at the beginning.
            title: heading, with the time factor.
        """
        self._started = started
        self._title = title
        self._story: list[str] = []
        self._snapshot: Snapshot | None = None
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._render)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def step(self, text: str) -> None:
        """A new chapter."""
        self._add(f"[bold]{text}[/bold]")

    def say(self, text: str) -> None:
        """Something that a person should know or may use."""
        self._add(f"[dim]{text}[/dim]")

    def show(self, snapshot: Snapshot) -> None:
        """The table with these objects."""
        self._snapshot = snapshot

    def _add(self, line: str) -> None:
        elapsed = time.monotonic() - self._started
        self._story = [*self._story, f"[cyan]{elapsed:5.1f}s[/cyan]  {line}"][-_FEED:]

    def _render(self) -> RenderableType:

        story = Text("\n").join(Text.from_markup(line) for line in self._story)
        parts: list[RenderableType] = [
            Text.from_markup(f"[bold cyan]{self._title}[/bold cyan]"),
            Padding(story, (1, 0)),
        ]
        if self._snapshot is not None and self._snapshot.slots:
            parts.append(pool_table(self._snapshot))
        return Group(*parts)
