"""A queue of keys for one worker: a key waits at most once, and comes back after it was worked on if asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.clock import SandboxClock

K = TypeVar("K", bound=Hashable)

_FIRST_RETRY: Final = 0.01
_LONGEST_RETRY: Final = 10.0


class WorkQueue(Generic[K]):
    """Deduplicating queue with delayed adds and growing retry pauses.

    Guarantee: a key added while it is being worked on is handed out again after `done`. For one event loop only.
    """

    def __init__(self, clock: SandboxClock) -> None:
        """An empty queue.

        Args:
            clock: Measures delays.
        """
        self._clock = clock
        self._waiting: dict[K, None] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, tuple[float, asyncio.Task[None]]] = {}
        self._filled = asyncio.Event()

    def add(self, key: K) -> None:
        """Hand the key out soon."""
        if key in self._working:
            self._again.add(key)
            return
        self._waiting[key] = None
        self._filled.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Hand the key out after a delay. Of several delays for one key the shortest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        known = self._timers.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        self._timers[key] = (due, asyncio.get_running_loop().create_task(self._later(key, seconds)))

    async def _later(self, key: K, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._timers[key]
        self.add(key)

    async def get(self) -> K:
        """The next key; it is being worked on until `done` or `retry`."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key succeeded."""
        self._failures.pop(key, None)
        self._finish(key)

    def retry(self, key: K) -> None:
        """The work on the key failed: hand it out again after a pause that doubles with each failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._finish(key)
        self.add_after(key, min(_FIRST_RETRY * 2 ** min(failures, 20), _LONGEST_RETRY))

    def _finish(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel all delays."""
        for _, task in self._timers.values():
            task.cancel()
        self._timers.clear()
