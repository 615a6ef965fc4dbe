"""Time as a dependency: nothing in the runtime reads a clock or sleeps except through a Clock.

Two kinds of time are kept apart. `now` is wall time, only for instants that are stored on objects; it may jump.
`monotonic` is for every wait and every age inside the process; it never goes back.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading

    from homelab_autoscaler.runtime.stop import StopSignal


class Clock(Protocol):
    """What the runtime needs of time. `testing.FakeClock` is the virtual one."""

    def now(self) -> datetime:
        """The wall clock: an aware instant in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a held condition like `Condition.wait`: False when `timeout` seconds passed without a notify.

        Wake-ups may be spurious: callers re-check what they wait for.
        """
        ...

    def sleep(self, seconds: float, stop: StopSignal | None = None) -> bool:
        """Sleep, or until `stop` is set. True when it was stopped early."""
        ...


class SystemClock(Clock):
    """The machine's own clocks."""

    def now(self) -> datetime:
        """See Clock."""
        return datetime.now(UTC)

    # The function itself: it is asked some twenty times per pass, and a frame around it costs more than it does.
    monotonic = staticmethod(time.monotonic)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """See Clock."""
        if timeout is not None and timeout <= 0:
            return False
        return condition.wait(timeout)

    def sleep(self, seconds: float, stop: StopSignal | None = None) -> bool:
        """See Clock."""
        if stop is not None:
            return stop.wait(seconds, self)
        if seconds > 0:
            time.sleep(seconds)
        return False
