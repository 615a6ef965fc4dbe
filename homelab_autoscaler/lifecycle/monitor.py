"""The monitor of an operation: one re-entrant step, repeated until the operation needs it no more.

It owns no state: a new process takes the same step from what the objects say. Source: state management, "Async
operations"; model section 3, footnote 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import ClaimPhase
from homelab_autoscaler.phase import contested

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_autoscaler.lifecycle.boot import Boot
    from homelab_autoscaler.lifecycle.scope import Scopes, SlotScope
    from homelab_autoscaler.lifecycle.shutdown import Shutdown


class OperationMonitor:
    """One step of whatever operation the slot has under way."""

    def __init__(self, scopes: Scopes, boot: Boot, shutdown: Shutdown) -> None:
        self._scopes = scopes
        self._boot = boot
        self._shutdown = shutdown

    def step(self, namespace: str, name: str) -> datetime | None:
        """Look at the slot and bring its operation a step further; None when there is nothing to follow."""
        scope = self._scopes.read(namespace, name)
        if scope is None or scope.reclaim is not None:
            return None
        follow_shutdown = self._shutdown.follow(scope)
        if follow_shutdown is not None:
            return follow_shutdown
        owner = scope.owner
        if owner is None or not owner.wants_machine or owner.phase is ClaimPhase.READY or contested(scope.claims):
            return None
        return self._boot.follow(scope, owner)


def needed(scope: SlotScope) -> bool:
    """Whether the slot has an operation that a monitor must follow."""
    if scope.reclaim is not None or contested(scope.claims):
        return False
    if any(not job.suspended for job in scope.unfinished()):
        return True
    owner = scope.owner
    if owner is None or not owner.wants_machine:
        return False
    return owner.phase is ClaimPhase.BOOTING or (owner.phase is ClaimPhase.PENDING and scope.power.value == "on")
