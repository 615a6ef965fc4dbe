"""ServerClock: the API server's time, kept by this machine's monotonic clock.

Instants on objects are written by the API server and by controllers beside it (creation and deletion times, the start
and end of Jobs), and an age is only as right as the two clocks that it is taken from. A manager may run on a board
that boots with last year's date, or on a machine whose clock is set under it: by its own clock every Job would be
overdue as soon as it starts. So the time that is compared with instants on objects, and written next to them, is the
server's, which every reply states in its Date header (RFC 9110, 6.6.1; whole seconds).
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import structlog

from homelab_autoscaler.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.stop import StopSignal

_log = structlog.get_logger("homelab_autoscaler.runtime.clock")
TOLERANCE: Final = 2.0
"""Seconds by which the two clocks may differ before ours is corrected: a Date has whole seconds and takes its way."""


class ServerClock(Clock):
    """Wall time as the API server has it; waits and ages inside the process as the machine has them.

    Guarantee: once a reply was heard, `now` is within TOLERANCE and a second of the server's clock, whatever happens
    to this machine's wall clock. Until then it is this machine's. Between replies it runs on monotonic time, so it
    steps only when the server's clock did, or when this machine slept.
    Non-guarantee: servers whose clocks differ from each other make it step between them.

    Args:
        base: the machine's clocks.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base = base or SystemClock()
        self._lock = threading.Lock()
        self._anchor = self._base.now(), self._base.monotonic()
        self._last = ""

    def now(self) -> datetime:
        """See Clock."""
        wall, monotonic = self._anchor
        return wall + timedelta(seconds=self._base.monotonic() - monotonic)

    def monotonic(self) -> float:
        """See Clock."""
        return self._base.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """See Clock."""
        return self._base.wait(condition, timeout)

    def sleep(self, seconds: float, stop: StopSignal | None = None) -> bool:
        """See Clock."""
        return self._base.sleep(seconds, stop)

    def heard(self, date: str | None, sent_at: float) -> None:
        """Take a reply's Date header in.

        Args:
            date: the header; None or an unreadable one says nothing.
            sent_at: monotonic time at which the request was sent. A reply that took long says little: its Date may be
                as old as the request.
        """
        if not date or date == self._last:
            return
        self._last = date
        try:
            said = parsedate_to_datetime(date)
        except ValueError:
            return
        with self._lock:
            received_at = self._base.monotonic()
            if said.tzinfo is None or received_at - sent_at > TOLERANCE:
                return
            server = said + timedelta(seconds=0.5)
            off = (server - self.now()).total_seconds()
            if abs(off) > TOLERANCE:
                self._anchor = server, received_at
                _log.warning("the API server's clock differs from the one in use: going by the server's", seconds=off)
