"""When a request is sent again.

| answer | GET, PUT, DELETE, merge and apply patches | POST, JSON patch |
|---|---|---|
| 429 | yes, after Retry-After or back-off | same |
| 503 with Retry-After | yes, after it | same |
| 500, 502, 503, 504 | yes, with back-off | no: the write may be committed |
| no answer | yes, with back-off | only if no connection was made |

Attempts are bounded by number and by total time. A disruption budget's 429 is an answer, not load: never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.errors import (
    ApiError,
    InternalServerError,
    ServerTimeoutError,
    TooManyRequestsError,
    TransportError,
    UnavailableError,
)

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repetition.

    Attributes:
        attempts: how often a request is sent at most.
        total: seconds after which no further attempt begins.
        base: seconds before the second attempt when the server names no time; doubles each time.
        cap: longest such wait.
    """

    attempts: int = 5
    total: float = 30.0
    base: float = 0.2
    cap: float = 5.0

    def delay(self, error: ApiError, attempt: int, *, repeatable: bool, rng: random.Random) -> float | None:
        """Seconds to wait before the next attempt, or None to give up with `error`.

        Args:
            error: what the last attempt got.
            attempt: how many attempts were made, from 1.
            repeatable: sending it twice has the effect of sending it once.
            rng: source of jitter.
        """
        if attempt >= self.attempts or not _may_repeat(error, repeatable=repeatable):
            return None
        if error.retry_after is not None:
            return error.retry_after
        backoff = min(self.cap, self.base * 2.0 ** (attempt - 1))
        return backoff * (1 + 0.5 * rng.random())


NO_RETRY = RetryPolicy(attempts=1)


def _may_repeat(error: ApiError, *, repeatable: bool) -> bool:
    if isinstance(error, TooManyRequestsError):
        return not error.disruption_budget
    if isinstance(error, UnavailableError) and error.retry_after is not None:
        return True
    if isinstance(error, TransportError):
        return repeatable or not error.sent
    if isinstance(error, InternalServerError | UnavailableError | ServerTimeoutError):
        return repeatable
    return False
