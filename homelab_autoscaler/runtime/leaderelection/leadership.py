"""Leadership: whether this process leads, for everyone who must know."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.clock import Clock


class LeadershipLost(Exception):  # noqa: N818 - named for what happened
    """The lease could not be kept. The process must end at once: someone else may lead already."""


class Leadership:
    """The state of an election in this process.

    `is_leader` is a matter of the local monotonic clock: it turns False by itself when the last renewal is too old,
    even if the whole process was frozen meanwhile and no thread has noticed yet.

    This does not fence: between a check and the server's receipt of a write another process may have begun to lead.
    What must not happen twice needs a fence of its own: deterministic names, preconditions, or a lock that carries
    `identity` and `transitions`, which grows with every change of the leader.
    """

    def __init__(self, clock: Clock, identity: str, renew_deadline: float | None) -> None:
        self.identity = identity
        self._clock = clock
        self._renew_deadline = renew_deadline
        self._lock = threading.Lock()
        self._renewed: float | None = None
        self._transitions = 0
        self._resigned = False

    @property
    def transitions(self) -> int:
        """leaseTransitions of the lease when it was acquired; 0 before, and without an election."""
        return self._transitions

    def is_leader(self) -> bool:
        """Whether this process leads now."""
        with self._lock:
            return self._renewed is not None and not self._resigned and not self._too_old()

    def check(self) -> None:
        """Refuse to go on for a process that led and does not any more; one that never led may go on.

        Raises:
            LeadershipLost: the lead was lost.
        """
        with self._lock:
            if self._renewed is not None and (self._resigned or self._too_old()):
                raise LeadershipLost("this process led and has lost the lease: it writes nothing more")

    def since_renewal(self) -> float | None:
        """Seconds since the last successful renewal, None if this process never led."""
        with self._lock:
            return None if self._renewed is None else self._clock.monotonic() - self._renewed

    def renewed(self, at: float, transitions: int) -> None:
        """The lease was acquired or renewed by a request that began at this monotonic time."""
        with self._lock:
            self._renewed = at
            self._transitions = transitions

    def resign(self) -> None:
        """The lead has ended: released or lost."""
        with self._lock:
            self._resigned = True

    def _too_old(self) -> bool:
        if self._renew_deadline is None or self._renewed is None:
            return False
        return self._clock.monotonic() - self._renewed >= self._renew_deadline


def always_leading(clock: Clock, identity: str) -> Leadership:
    """The leadership of a process without an election."""
    leadership = Leadership(clock, identity, None)
    leadership.renewed(clock.monotonic(), 0)
    return leadership
