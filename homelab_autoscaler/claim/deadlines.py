"""When a claim's boot window ends, and how long one boot window of a claim is.

Source: state management, "Deadlines and attempts"; model section 5.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import ClaimPhase

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import Node, NodeClaim
    from homelab_autoscaler.settings import Settings

_BOOT_WINDOW = frozenset({ClaimPhase.PENDING, ClaimPhase.BOOTING})


def in_boot_window(claim: NodeClaim) -> bool:
    """Whether deadline and attempts apply: pending or booting, and not marked (a marked boot is being reversed)."""
    return claim.phase in _BOOT_WINDOW and not claim.marked


def boot_window(claim: NodeClaim, slot: Node | None, settings: Settings) -> timedelta:
    """One boot window of this claim: also the grace of a ready claim whose machine is gone."""
    return timedelta(
        seconds=settings.boot_window(
            claim.spec.max_node_provision_time, slot.spec.startup_pod_spec.timeout_seconds if slot else None
        )
    )


def overdue(claim: NodeClaim, now: datetime) -> bool:
    """Whether the boot took too long. A claim without a deadline never expires; a ready one neither."""
    deadline = claim.spec.deadline_at
    return in_boot_window(claim) and deadline is not None and now >= deadline


def stuck_after(claim: NodeClaim, slot: Node | None, settings: Settings) -> timedelta:
    """How long an operation of this claim may take before a force cleanup ends it."""
    return timedelta(
        seconds=settings.stuck_threshold(
            claim.spec.max_node_provision_time, slot.spec.startup_pod_spec.timeout_seconds if slot else None
        )
    )
