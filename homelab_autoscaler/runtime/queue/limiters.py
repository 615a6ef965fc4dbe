"""Rate limiters: how long a key waits before it is tried again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from homelab_autoscaler.runtime.client.ratelimit import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Hashable

    from homelab_autoscaler.runtime.clock import Clock

K = TypeVar("K", bound="Hashable")
K_contra = TypeVar("K_contra", bound="Hashable", contravariant=True)


class RateLimiter(Protocol[K_contra]):
    """Decides the wait of a key that is added once more."""

    def when(self, key: K_contra) -> float:
        """Seconds this key should wait; counts as one more failure of it."""
        ...

    def forget(self, key: K_contra) -> None:
        """The key did well: its failures are forgotten."""
        ...

    def retries(self, key: K_contra) -> int:
        """How many failures are counted."""
        ...


class ExponentialLimiter(Generic[K]):
    """base, 2 x base, 4 x base … up to a cap, counted per key: one bad key does not slow the others."""

    def __init__(self, base: float = 0.005, cap: float = 1000.0) -> None:
        if base <= 0 or cap < base:
            raise ValueError(f"an exponential limiter needs 0 < base <= cap, got base={base} cap={cap}")
        self._base = base
        self._cap = cap
        self._lock = threading.Lock()
        self._failures: dict[K, int] = {}

    def when(self, key: K) -> float:
        """See RateLimiter."""
        with self._lock:
            count = self._failures.get(key, 0)
            self._failures[key] = count + 1
        # 2.0 ** 1024 overflows a float; the cap is reached long before.
        return min(self._cap, self._base * 2.0 ** min(count, 1000))

    def forget(self, key: K) -> None:
        """See RateLimiter."""
        with self._lock:
            self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        """See RateLimiter."""
        with self._lock:
            return self._failures.get(key, 0)


class BucketLimiter(Generic[K]):
    """One token bucket for all keys: 10 per second, 100 in a burst. The 101st waits 0.1 s, the next 0.2 s."""

    def __init__(self, clock: Clock, rate: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(rate, burst, clock)

    def when(self, key: K) -> float:
        """See RateLimiter."""
        del key
        return self._bucket.reserve()

    def forget(self, key: K) -> None:
        """See RateLimiter: nothing is kept per key."""

    def retries(self, key: K) -> int:
        """See RateLimiter: nothing is kept per key."""
        del key
        return 0


class FastSlowLimiter(Generic[K]):
    """A number of quick tries, then slow ones."""

    def __init__(self, fast: float, slow: float, fast_tries: int) -> None:
        self._fast = fast
        self._slow = slow
        self._fast_tries = fast_tries
        self._lock = threading.Lock()
        self._failures: dict[K, int] = {}

    def when(self, key: K) -> float:
        """See RateLimiter."""
        with self._lock:
            count = self._failures[key] = self._failures.get(key, 0) + 1
        return self._fast if count <= self._fast_tries else self._slow

    def forget(self, key: K) -> None:
        """See RateLimiter."""
        with self._lock:
            self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        """See RateLimiter."""
        with self._lock:
            return self._failures.get(key, 0)


class MaxLimiter(Generic[K]):
    """The longest wait of several limiters."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ValueError("a MaxLimiter needs at least one limiter")
        self._limiters = limiters

    def when(self, key: K) -> float:
        """See RateLimiter."""
        return max([limiter.when(key) for limiter in self._limiters])

    def forget(self, key: K) -> None:
        """See RateLimiter."""
        for limiter in self._limiters:
            limiter.forget(key)

    def retries(self, key: K) -> int:
        """See RateLimiter."""
        return max(limiter.retries(key) for limiter in self._limiters)


class MaxWaitLimiter(Generic[K]):
    """Another limiter whose waits are cut to a longest one."""

    def __init__(self, limiter: RateLimiter[K], longest: float) -> None:
        self._limiter = limiter
        self._longest = longest

    def when(self, key: K) -> float:
        """See RateLimiter."""
        return min(self._longest, self._limiter.when(key))

    def forget(self, key: K) -> None:
        """See RateLimiter."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """See RateLimiter."""
        return self._limiter.retries(key)


def default_limiter(clock: Clock) -> MaxLimiter[K]:
    """The classic default of a rate-limiting queue: per key 5 ms to 1000 s, over all 10 per second with burst 100."""
    return MaxLimiter(ExponentialLimiter[K](), BucketLimiter[K](clock))
