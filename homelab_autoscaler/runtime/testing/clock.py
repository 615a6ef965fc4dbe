"""FakeClock: time that moves only when a test says so."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.clock import Clock

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.stop import StopSignal

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock(Clock):
    """Virtual time for code that takes a Clock; `step` wakes whoever waits for the moment that has come.

    Threads under test are real, so a test first makes sure that they wait (`wait_for_waiters`), then steps.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._lock = threading.Condition()
        self._now = start
        self._monotonic = 1000.0
        self._waiters: dict[int, tuple[float, threading.Condition]] = {}
        self._next = 0

    def now(self) -> datetime:
        """See Clock."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """See Clock."""
        with self._lock:
            return self._monotonic

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """See Clock."""
        if timeout is None:
            return condition.wait()
        if timeout <= 0:
            return False
        with self._lock:
            key = self._next
            self._next += 1
            deadline = self._monotonic + timeout
            self._waiters[key] = (deadline, condition)
            self._lock.notify_all()
        try:
            condition.wait()
            return self.monotonic() < deadline
        finally:
            with self._lock:
                self._waiters.pop(key, None)
                self._lock.notify_all()

    def sleep(self, seconds: float, stop: StopSignal | None = None) -> bool:
        """See Clock."""
        if stop is not None:
            return stop.wait(seconds, self)
        condition = threading.Condition()
        deadline = self.monotonic() + seconds
        with condition:
            while (remaining := deadline - self.monotonic()) > 0:
                self.wait(condition, remaining)
        return False

    def step(self, amount: float | timedelta) -> None:
        """Move both clocks forward and wake whose time has come."""
        seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds
            due = [key for key, (deadline, _) in self._waiters.items() if deadline <= self._monotonic]
            conditions = [self._waiters.pop(key)[1] for key in due]
        for condition in conditions:
            with condition:
                condition.notify_all()

    def set(self, instant: datetime) -> None:
        """Set the wall clock alone, forward or back, as NTP does; waits are not touched."""
        with self._lock:
            self._now = instant

    @property
    def waiters(self) -> int:
        """How many threads wait for a time."""
        with self._lock:
            return len(self._waiters)

    def next_deadline(self) -> float | None:
        """Seconds until the first waiting thread is due, None if none waits for a time."""
        with self._lock:
            times = [deadline for deadline, _ in self._waiters.values()]
            return None if not times else min(times) - self._monotonic

    def wait_for_waiters(self, count: int = 1, real_timeout: float = 10.0) -> None:
        """Wait in real time until that many threads wait for a virtual time.

        Raises:
            TimeoutError: they did not come.
        """
        end = time.monotonic() + real_timeout
        with self._lock:
            while len(self._waiters) < count:
                remaining = end - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError(f"{len(self._waiters)} of {count} threads wait for a virtual time")
                self._lock.wait(remaining)


def eventually(condition: object, real_timeout: float = 10.0, *, what: str = "the condition") -> None:
    """Wait in real time until a callable returns something true.

    Raises:
        TimeoutError: it did not; `what` names it.
    """
    assert callable(condition)
    end = time.monotonic() + real_timeout
    waiter = threading.Event()
    while not condition():
        if time.monotonic() >= end:
            raise TimeoutError(f"{what} did not come true within {real_timeout:g} s")
        waiter.wait(0.002)
