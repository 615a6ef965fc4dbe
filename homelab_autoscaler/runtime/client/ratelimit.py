"""A token bucket shared by all users of one client."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.clock import Clock


class TokenBucket:
    """`rate` tokens per second, at most `burst` saved. `reserve` never blocks: it says how long to wait.

    A reservation is final: the wait of the next caller already counts this one, so callers form a fair line.
    """

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a token bucket needs rate > 0 and burst >= 1, got rate={rate} burst={burst}")
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._last = clock.monotonic()

    def reserve(self) -> float:
        """Take one token and return the seconds until it is really there (0 if it is)."""
        with self._lock:
            self._refill()
            self._tokens -= 1.0
            return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Take one token if there is one."""
        with self._lock:
            self._refill()
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._last) * self._rate)
        self._last = now
