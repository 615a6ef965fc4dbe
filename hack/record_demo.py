"""Record the pictures of the README: run the demo in a terminal of its own and keep what that showed.

Usage: record_demo.py     writes docs/demo.svg (while the machines work) and docs/demo-summary.svg (at the end)
"""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).resolve().parent.parent / "docs"
COLUMNS, LINES = 112, 44
DURING = "The machines are ready"


def main() -> int:
    """Run and write; returns the demo's exit code."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    demo = subprocess.Popen(
        [sys.executable, "-m", "homelab_autoscaler.cli", "demo"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    )
    os.close(slave)
    taken = False
    while True:
        if not select.select([master], [], [], 1.0)[0]:
            if demo.poll() is not None:
                break
            continue
        try:
            data = os.read(master, 65536)
        except OSError:  # the other end is closed: the demo is over
            break
        stream.feed(data)
        shown = "\n".join(screen.display)
        if not taken and DURING in shown and shown.count("● on") == 2:
            taken = True
            save(screen, "demo.svg", "homelab-autoscaler demo")
    code = demo.wait()
    save(screen, "demo-summary.svg", "homelab-autoscaler demo")
    return code


def save(screen: pyte.Screen, name: str, title: str) -> None:
    """Write what the screen shows."""
    lines = [line_of(screen, number) for number in range(LINES)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop")
    # Without the web font: a picture should not call home.
    layout = re.sub(r"@font-face \{\{.*?\n    \}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    (DOCS / name).write_text(console.export_svg(title=title, code_format=layout), encoding="utf-8")


def line_of(screen: pyte.Screen, number: int) -> Text:
    """One line with its colours, in as few pieces as it has."""
    cells = [(screen.buffer[number][column].data, style_of(screen.buffer[number][column])) for column in range(COLUMNS)]
    text = Text()
    for style, run in itertools.groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(data for data, _ in run), style=style or None)
    text.rstrip()
    return text


def style_of(cell: pyte.screens.Char) -> str:
    """A cell's style as rich writes it."""
    return " ".join(
        part for part in ("bold" if cell.bold else "", "" if cell.fg == "default" else colour(cell.fg)) if part
    )


def colour(name: str) -> str:
    """Names as rich has them, from names as the emulator has them."""
    named = {"brown": "yellow", "brightbrown": "bright_yellow"}
    if name in named:
        return named[name]
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bright", "bright_") if name.startswith("bright") else name


if __name__ == "__main__":
    sys.exit(main())
