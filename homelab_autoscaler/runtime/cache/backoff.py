"""Waits between failed attempts: 0.8 s, doubling to 30 s, stretched by up to 100 %, reset after two quiet minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """Numbers of a back-off, in seconds; `jitter` 1.0 stretches each wait by a random 0 to 100 %."""

    base: float = 0.8
    cap: float = 30.0
    jitter: float = 1.0
    reset_after: float = 120.0


class Backoff:
    """One sequence of waits, used by one thread."""

    def __init__(self, clock: Clock, rng: random.Random, options: BackoffOptions | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._options = options or BackoffOptions()
        self._next = self._options.base
        self._last: float | None = None

    def delay(self) -> float:
        """The next wait in seconds; counts as a failure now."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > self._options.reset_after:
            self._next = self._options.base
        self._last = now
        plain = self._next
        self._next = min(self._options.cap, plain * 2)
        return plain * (1 + self._options.jitter * self._rng.random())

    def wait(self, stop: StopSignal) -> None:
        """Wait for the next delay, or until stopped."""
        seconds = self.delay()
        self._clock.sleep(seconds, stop)
