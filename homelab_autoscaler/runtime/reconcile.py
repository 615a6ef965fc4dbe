"""The contract of a reconciler: a request in, a result or an exception out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

LOW_PRIORITY = -100
"""For work that changed nothing: the first listing of a kind and resyncs. Real changes (0) overtake it."""


class Request(NamedTuple):
    """Which object to look at, never what happened to it. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Result:
    """What a pass asks for when it ended well.

    Attributes:
        requeue_after: seconds until the next pass that nothing else wakes; None or 0 for none. Ask for it every time it
            is still needed: any other wake-up in between cancels it.
        priority: of that requeue; None keeps the present one.
    """

    requeue_after: float | None = None
    priority: int | None = None


DONE = Result()


class TerminalError(Exception):
    """Raise it (`raise TerminalError(...) from error`) when a repeat cannot help: it is recorded, not retried.

    The object is looked at again when it, or something that maps to it, changes.
    """


class Reconciler(Protocol):
    """Brings one object a step closer to what it should be.

    It is called with at most one request per key at a time. It reads the present state, never relies on having been
    called for each change, and can be stopped after any instruction and called again. The object may be gone: that
    is a success. Any exception means "try again with back-off" (except TerminalError).
    """

    def reconcile(self, request: Request) -> Result:
        """Look at the object named by `request` and act."""
        ...
