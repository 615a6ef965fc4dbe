"""The clock of the sandbox: one source of time for everything that runs on its asyncio loop.

`SystemSandboxClock` is the machine's own time. `ManualSandboxClock` stands still until it is advanced, so that an
hour of a cluster's life fits into a test. Only waits that the *cluster* makes (grace periods, TTLs, lease renewals)
go through this clock; a client's own limits, such as the `timeoutSeconds` of its watch, are real time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class SandboxClock(Protocol):
    """Time as the sandbox sees it."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait until that much sandbox time has passed; zero or less only yields to other tasks."""
        ...


class SystemSandboxClock:
    """Real time."""

    def now(self) -> datetime:
        """The machine's present time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The machine's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the loop."""
        await asyncio.sleep(max(0.0, seconds))


class ManualSandboxClock:
    """Time that moves only when told.

    Sleepers wake in the order of their deadlines, each at exactly its own instant: a task that sleeps ten times one
    second inside one `advance(10)` is woken ten times. Use from the loop's own thread.
    """

    # How many turns of the loop tasks get to react before time moves on. Enough for chains of in-process calls.
    _SETTLE_TURNS = 20

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._sequence = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The instant that the clock shows."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that the clock was advanced since it was made."""
        return self._elapsed

    @property
    def sleepers(self) -> int:
        """How many tasks wait for this clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait for the clock to be advanced that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._sequence), future))
        await future

    def set(self, instant: datetime) -> None:
        """Jump to an instant without waking anybody: a wall clock that was put right. Monotonic time stays."""
        self._now = instant

    async def advance(self, seconds: float) -> None:
        """Let sandbox time pass, waking every sleeper at its instant and letting it run before time goes on."""
        end = self._elapsed + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._move_to(deadline)
            if not future.done():
                future.set_result(None)
                await self._settle()
        self._move_to(end)
        await self._settle()

    def _move_to(self, elapsed: float) -> None:
        if elapsed > self._elapsed:
            self._now += timedelta(seconds=elapsed - self._elapsed)
            self._elapsed = elapsed

    async def _settle(self) -> None:
        for _ in range(self._SETTLE_TURNS):
            await asyncio.sleep(0)
