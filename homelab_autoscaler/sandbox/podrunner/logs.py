"""Output of containers: one file per run, read the way `kubectl logs` asks."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from homelab_api.meta import format_micro_time
from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from pathlib import Path

_LARGEST: Final = 10 * 1024 * 1024
_LONGEST_LINE: Final = 16 * 1024
_SEPARATOR: Final = b" "


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What `kubectl logs` asks for.

    Attributes:
        follow: Go on until the container ends.
        tail_lines: Only the last lines of what is there.
        since: Only lines at or after this instant.
        timestamps: Each line with its time in front.
        limit_bytes: Stop after so many bytes.
        previous: The run before the present one.
    """

    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    previous: bool = False


class LogWriter:
    """Takes the bytes of a process and stores whole lines with their time.

    Lines longer than 16 KiB are split, as container runtimes do. After 10 MiB the rest is dropped, and says so.
    """

    def __init__(self, path: Path, now: Callable[[], datetime], changed: Callable[[], None]) -> None:
        """Write to a new file.

        Args:
            path: The file.
            now: Dates lines.
            changed: Called after lines were written, and at the end.
        """
        self._file: BinaryIO = path.open("wb")
        self._now = now
        self._changed = changed
        self._rest = b""
        self._written = 0

    def feed(self, data: bytes) -> None:
        """More output."""
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._write(line)
        while len(self._rest) > _LONGEST_LINE:
            self._write(self._rest[:_LONGEST_LINE])
            self._rest = self._rest[_LONGEST_LINE:]
        if lines:
            self._file.flush()
            self._changed()

    def _write(self, line: bytes) -> None:
        for start in range(0, max(len(line), 1), _LONGEST_LINE):
            self._write_part(line[start : start + _LONGEST_LINE])

    def _write_part(self, line: bytes) -> None:
        if self._written > _LARGEST:
            return
        stamped = format_micro_time(self._now()).encode() + _SEPARATOR + line + b"\n"
        self._written += len(stamped)
        self._file.write(stamped)
        if self._written > _LARGEST:
            self._file.write(format_micro_time(self._now()).encode() + b" [output past 10 MiB is dropped]\n")

    def close(self) -> None:
        """The container has ended; an unfinished last line is kept."""
        if self._rest:
            self._write(self._rest)
            self._rest = b""
        self._file.close()
        self._changed()


class LogStore:
    """Where the logs of a node's pods are: `<root>/<pod uid>/<container>/<attempt>.log`."""

    def __init__(self, root: Path, now: Callable[[], datetime]) -> None:
        """Keep logs below a directory.

        Args:
            root: Made if it is not there.
            now: Dates lines.
        """
        self._root = root
        self._now = now
        self._open: set[Path] = set()
        self._waiters: dict[Path, asyncio.Event] = {}

    def writer(self, uid: str, container: str, attempt: int) -> LogWriter:
        """A writer for one run of a container."""
        path = self._path(uid, container, attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open.add(path)
        return LogWriter(path, self._now, lambda: self._wake(path))

    def ended(self, uid: str, container: str, attempt: int) -> None:
        """The run will not write any more."""
        path = self._path(uid, container, attempt)
        self._open.discard(path)
        self._wake(path)

    def forget(self, uid: str) -> None:
        """Remove the logs of a pod."""
        shutil.rmtree(self._root / uid, ignore_errors=True)

    def _path(self, uid: str, container: str, attempt: int) -> Path:
        return self._root / uid / container / f"{attempt}.log"

    def _wake(self, path: Path) -> None:
        waiter = self._waiters.pop(path, None)
        if waiter is not None:
            waiter.set()

    def attempts(self, uid: str, container: str) -> list[int]:
        """The runs of a container that have a log, oldest first."""
        return sorted(int(path.stem) for path in (self._root / uid / container).glob("*.log"))

    async def read(self, uid: str, container: str, query: LogQuery) -> AsyncIterator[bytes]:
        """The lines of a container's newest run (or the one before).

        Nothing is yielded for a container that has not run.
        """
        runs = self.attempts(uid, container)
        if query.previous:
            runs = runs[:-1]
        if not runs:
            return
        left = query.limit_bytes
        async for line in self._lines(self._path(uid, container, runs[-1]), query):
            text = line if query.timestamps else line.partition(_SEPARATOR)[2]
            if left is not None:
                text = text[:left]
                left -= len(text)
            yield text
            if left == 0:
                return

    async def _lines(self, path: Path, query: LogQuery) -> AsyncIterator[bytes]:
        """Stored lines; with `follow` also those to come, until the run has ended and all were read."""
        with path.open("rb") as file:
            for line in self._chosen(file.read(), query):
                yield line
            while query.follow:
                is_open = path in self._open
                more = file.read()
                for line in more.splitlines(keepends=True):
                    yield line
                if not more:
                    if not is_open:
                        return
                    await self._waiters.setdefault(path, asyncio.Event()).wait()

    @staticmethod
    def _chosen(data: bytes, query: LogQuery) -> list[bytes]:
        lines = data.splitlines(keepends=True)
        if query.since is not None:
            lines = [line for line in lines if _at_or_after(line, query.since)]
        if query.tail_lines is not None:
            lines = lines[-query.tail_lines :] if query.tail_lines > 0 else []
        return lines


def _at_or_after(line: bytes, since: datetime) -> bool:
    when = objects.parse_time(line.partition(_SEPARATOR)[0].decode())
    return when is None or when >= since
