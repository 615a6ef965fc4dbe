"""A time limit that travels with the running code, so that a reconcile that is over its time sends nothing more.

Python cannot interrupt a thread. What can be done is done: the client asks before every request, and shortens its
own timeouts to what is left. Code with long loops of its own should call `check` in them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from homelab_autoscaler.runtime.errors import DeadlineExceededError

if TYPE_CHECKING:
    from contextvars import Token

    from homelab_autoscaler.runtime.clock import Clock

_deadline: ContextVar[float | None] = ContextVar("reconcile_deadline", default=None)


class time_limit:  # noqa: N801 - reads as the statement that it makes; a generator would cost each pass twice as much
    """Limit what runs inside to `seconds`; an outer, earlier limit stays in force. None adds no limit."""

    __slots__ = ("_clock", "_seconds", "_token")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._token: Token[float | None] | None = None

    def __enter__(self) -> Self:
        if self._seconds is not None:
            outer = _deadline.get()
            own = self._clock.monotonic() + self._seconds
            self._token = _deadline.set(own if outer is None else min(own, outer))
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _deadline.reset(self._token)
            self._token = None


def remaining(clock: Clock) -> float | None:
    """Seconds left (never below 0), None without a limit."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - clock.monotonic())


def check(clock: Clock) -> float | None:
    """Give up here when the time is over; otherwise the seconds left, as `remaining`.

    Raises:
        DeadlineExceededError: the limit has passed.
    """
    left = remaining(clock)
    if left == 0.0:
        raise DeadlineExceededError("the time limit of this reconcile has passed")
    return left
