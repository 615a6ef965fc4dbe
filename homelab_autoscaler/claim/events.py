"""Events of a claim: one per move, published on the claim after the status write landed.

Source: state management, "Claim phases, and who writes each move". Nothing is published for a refused or unchanged
write; the recorder of the runtime merges repeats.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from homelab_api.meta import format_duration, format_time
from homelab_api.v2alpha1 import ClaimPhase, Reason

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import NodeClaim
    from homelab_autoscaler.runtime import EventRecorder

CLAIM_CREATED: Final = "ClaimCreated"
CLAIM_BOOTING: Final = "ClaimBooting"
CLAIM_READY: Final = "ClaimReady"
CLAIM_FAILED: Final = "ClaimFailed"
CLAIM_CANCELLED: Final = "ClaimCancelled"
CLAIM_COMPLETED: Final = "ClaimCompleted"
CLAIM_SUPERSEDED: Final = "ClaimSuperseded"


def publish_created(recorder: EventRecorder, claim: NodeClaim) -> None:
    """Say that the claim got its attempt number: the first thing that is true about it."""
    deadline = format_time(claim.spec.deadline_at) if claim.spec.deadline_at else "none"
    recorder.event(
        claim,
        "Normal",
        CLAIM_CREATED,
        f"slot {claim.slot_name} is claimed by {claim.spec.call}: attempt {claim.status.attempt}, deadline {deadline}",
    )


def publish_move(recorder: EventRecorder, claim: NodeClaim) -> None:
    """Say which move landed, with the attempt's numbers."""
    reason, type_ = _move_event(claim)
    recorder.event(claim, type_, reason, _message(claim))


def _move_event(claim: NodeClaim) -> tuple[str, Literal["Normal", "Warning"]]:
    match claim.phase:
        case ClaimPhase.BOOTING:
            return CLAIM_BOOTING, "Normal"
        case ClaimPhase.READY:
            return CLAIM_READY, "Normal"
        case ClaimPhase.FAILED:
            return (CLAIM_SUPERSEDED if claim.status.reason is Reason.SUPERSEDED else CLAIM_FAILED), "Warning"
        case _:
            cancelled = claim.status.reason is Reason.CANCELLED_BY_DECREASE
            return (CLAIM_CANCELLED if cancelled else CLAIM_COMPLETED), "Normal"


def _message(claim: NodeClaim) -> str:
    status = claim.status
    parts = [f"{claim.phase} ({status.reason})", f"attempt {status.attempt}"]
    if status.job_name:
        parts.append(f"Job {status.job_name}")
    if claim.phase is ClaimPhase.BOOTING and claim.spec.deadline_at:
        parts.append(f"deadline {format_time(claim.spec.deadline_at)}")
    until = status.finished_at or status.ready_at
    since = claim.spec.requested_at or claim.metadata.creation_timestamp
    if until and since and until >= since:
        parts.append(f"after {format_duration(timedelta(seconds=round((until - since).total_seconds(), 1)))}")
    return ", ".join(parts) + (f": {status.message}" if status.message else "")
