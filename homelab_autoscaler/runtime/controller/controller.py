"""The contract of a controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.reconcile import Request
    from homelab_autoscaler.runtime.stop import StopSignal


class Controller(Protocol):
    """Wakes a reconciler for the right objects, one pass per object at a time, with back-off when it fails."""

    name: str

    def enqueue(self, request: Request, *, priority: int = 0) -> None:
        """Ask for a pass, from any thread: for timers, webhooks and other sources outside the API."""
        ...

    def enqueue_after(self, request: Request, seconds: float, *, priority: int = 0) -> None:
        """Ask for a pass after a time. It is dropped when another pass of the object is asked for before."""
        ...

    def run(self, stop: StopSignal) -> None:
        """Work until stopped. Called by the manager."""
        ...
