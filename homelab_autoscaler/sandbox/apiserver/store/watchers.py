"""One consumer of a collection's changes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.apiserver.store.objects import Change


class Watcher:
    """A queue of changes that a watch request drains at its own pace.

    A consumer that falls `limit` changes behind is cut off, as a real server does: it is told to end and its client
    comes back with its last revision. Bounding the queue keeps a stuck client from holding memory without end.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._queue: deque[Change] = deque()
        self._limit = limit
        self._wake = asyncio.Event()
        self.overflowed = False
        self.closed = False

    @property
    def pending(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._queue)

    def push(self, change: Change) -> None:
        """Hand over a change. Called by the store, on the loop."""
        if len(self._queue) >= self._limit:
            self.overflowed = True
        else:
            self._queue.append(change)
        self._wake.set()

    def close(self) -> None:
        """End the watch: whoever waits is woken."""
        self.closed = True
        self._wake.set()

    def take(self) -> list[Change]:
        """Everything that is waiting, without waiting."""
        changes = list(self._queue)
        self._queue.clear()
        self._wake.clear()
        return changes

    async def wait(self, seconds: float) -> bool:
        """Wait for something to take, or for the end; False when the time is over first."""
        if self._queue or self.overflowed or self.closed:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True
