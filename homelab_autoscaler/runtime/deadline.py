"""A time limit that travels with the running code, so that a reconcile that is over its time sends nothing more.

Python cannot interrupt a thread. What can be done is done: the client asks before every request, and shortens its
own timeouts to what is left. Code with long loops of its own should call `check` in them.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.errors import DeadlineExceededError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_autoscaler.runtime.clock import Clock

_deadline: ContextVar[float | None] = ContextVar("reconcile_deadline", default=None)


@contextmanager
def time_limit(clock: Clock, seconds: float | None) -> Iterator[None]:
    """Limit what runs inside to `seconds`; an outer, earlier limit stays in force. None adds no limit."""
    if seconds is None:
        yield
        return
    outer = _deadline.get()
    own = clock.monotonic() + seconds
    token = _deadline.set(own if outer is None else min(own, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining(clock: Clock) -> float | None:
    """Seconds left (never below 0), None without a limit."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - clock.monotonic())


def check(clock: Clock) -> None:
    """Give up here when the time is over.

    Raises:
        DeadlineExceededError: the limit has passed.
    """
    if remaining(clock) == 0.0:
        raise DeadlineExceededError("the time limit of this reconcile has passed")
