"""Persistence: a snapshot and a journal of changes in one directory.

Every commit is one line at the end of the journal, written before its answer is sent, so that killing the process loses
nothing that was answered. Not guaranteed: that a power cut of the machine loses nothing, since the operating system is
not asked to flush. A start reads the snapshot and the journal and writes a new snapshot; a half-written last line, as a
kill can leave it, is cut off.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, BinaryIO

import orjson

from homelab_autoscaler.sandbox.apiserver.store.objects import Change, Key, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.store.store import Store

_FORMAT = 1


class JournalError(OSError):
    """The directory is in use, or holds something that this version cannot read."""


class Journal:
    """The files of one server. Only one process may use a directory at a time.

    Args:
        directory: made if it is not there.
        limit: bytes of the journal from which on it is replaced by a new snapshot, provided that it has grown to
            several times the last one: renewed leases would fill the disk otherwise.

    Raises:
        JournalError: another process uses the directory.
    """

    def __init__(self, directory: Path, limit: int = 64 * 1024 * 1024) -> None:
        self._snapshot = directory / "snapshot.jsonl"
        self._path = directory / "journal.jsonl"
        self._limit = limit
        self._size = 0
        self._store: Store | None = None
        self._file: BinaryIO | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = (directory / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise JournalError(
                f"data directory {directory} is in use by another process: give this one its own"
            ) from None

    def load(self, store: Store) -> None:
        """Bring a new store to the state of the files, and start a new journal from there.

        Raises:
            JournalError: naming the file and line that cannot be read.
        """
        for line in _lines(self._snapshot, tolerant=False):
            if "format" in line:
                if line["format"] != _FORMAT:
                    raise JournalError(
                        f"{self._snapshot}: format {line['format']} is not known, this version reads {_FORMAT}"
                    )
                store.revision = line["revision"]
                continue
            store.collection(line["c"]).place(_stored(line))
        for line in _lines(self._path, tolerant=True):
            if line["r"] <= store.revision:
                continue
            previous = store.collection(line["c"]).get(Key(*line["k"]))
            kind = "DELETED" if line["t"] == "D" else "MODIFIED" if previous else "ADDED"
            store.replay(Change(line["r"], kind, line["c"], _stored(line), previous))  # type: ignore[arg-type]
        # Watches may go on from any revision that the journal still told of; nothing is known from before it.
        first = next(
            (change.revision - 1 for change in sorted(_log(store), key=lambda item: item.revision)), store.revision
        )
        store.oldest = max(store.oldest, first)
        self._store = store
        self._compact(store)

    def _compact(self, store: Store) -> None:
        """Write everything into a new snapshot, then empty the journal. Safe to be killed in between."""
        fresh = self._snapshot.with_suffix(".new")
        with fresh.open("wb") as out:
            out.write(orjson.dumps({"format": _FORMAT, "revision": store.revision}) + b"\n")
            for name, stored in store.everything():
                out.write(_line("S", name, stored))
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._snapshot)
        self._limit = max(self._limit, 4 * self._snapshot.stat().st_size)
        self._size = 0
        if self._file is not None:
            self._file.close()
        # Unbuffered: a line is with the operating system before its answer goes out.
        self._file = self._path.open("wb", buffering=0)

    def append(self, change: Change) -> None:
        """Write one commit down."""
        if self._file is None:
            return
        line = _line("D" if change.type == "DELETED" else "P", change.collection, change.stored)
        self._file.write(line)
        self._size += len(line)
        if self._size > self._limit and self._store is not None:
            self._compact(self._store)

    def close(self) -> None:
        """Close the files and let others use the directory."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()


def _log(store: Store) -> Iterator[Change]:
    for collection in store.collections():
        yield from collection.log


def _line(kind: str, collection: str, stored: Stored) -> bytes:
    head = orjson.dumps({"t": kind, "r": stored.revision, "c": collection, "k": list(stored.key)})
    return head[:-1] + b',"o":' + stored.raw + b"}\n"


def _stored(line: JsonObject) -> Stored:
    return Stored.of(Key(*line["k"]), line["r"], line["o"])


def _lines(path: Path, *, tolerant: bool) -> Iterator[JsonObject]:
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            try:
                line: JsonObject = orjson.loads(raw)
            except orjson.JSONDecodeError as error:
                if tolerant and not raw.endswith(b"\n"):
                    return
                raise JournalError(f"{path}, line {number} cannot be read: {error}") from None
            yield line
