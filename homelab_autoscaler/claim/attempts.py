"""Boot attempts: a number on the claim, seeded once from the digest of the claim before it.

A streak lasts while boots of the slot fail by themselves; it ends when one gets ready. Past the bound the slot is
exhausted: not offered, until somebody claims it by hand or the rest after the last failure is over.
Source: nodeclaim model, "Attempts"; model sections 4 and 13.10.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import STREAK_REASONS, Call, ClaimPhase, LastClaim

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import NodeClaim
    from homelab_autoscaler.settings import Settings


def exhausted(last: LastClaim | None, now: datetime, settings: Settings) -> bool:
    """Whether the slot's streak is spent, so that nobody but a person is offered it."""
    if last is None or last.streak_at is None or last.attempt < settings.max_attempts:
        return False
    rest = settings.exhausted_after
    if rest <= 0:
        return True
    # An end that lies ahead was stamped by a clock that was wrong: a rest counted from it could last for years.
    return last.streak_at <= now < last.streak_at + timedelta(seconds=rest)


def exhausted_until(last: LastClaim | None, settings: Settings) -> datetime | None:
    """When an exhausted slot is offered again; None if only a claim by hand ends it."""
    if last is None or last.streak_at is None or settings.exhausted_after <= 0:
        return None
    return last.streak_at + timedelta(seconds=settings.exhausted_after)


def seed_attempt(last: LastClaim | None, call: Call, now: datetime, settings: Settings) -> int:
    """The attempt number of a claim on its first pass: +1 while a streak lasts, 1 otherwise.

    A spent streak restarts at 1 with a claim by hand, and for everybody once its rest is over.
    """
    if last is None or last.streak_at is None:
        return 1
    if last.attempt >= settings.max_attempts and (call is Call.MANUAL or not exhausted(last, now, settings)):
        return 1
    return last.attempt + 1


def digest(claim: NodeClaim, before: LastClaim | None) -> LastClaim:
    """What is kept of an ended claim on its slot, with the streak as it stands after this end.

    Reaching `ready` ends the streak; a boot that failed by itself extends it; every other end leaves it as it was.
    """
    status = claim.status
    if status.ready_at is not None:
        attempt, streak_at = status.attempt, None
    elif claim.phase is ClaimPhase.FAILED and status.reason in STREAK_REASONS:
        attempt, streak_at = status.attempt, status.finished_at
    else:
        attempt, streak_at = (before.attempt, before.streak_at) if before else (0, None)
    return LastClaim(
        name=claim.name,
        uid=claim.uid,
        phase=claim.phase,
        attempt=attempt,
        call=claim.spec.call,
        group=claim.spec.group,
        reason=status.reason,
        requested_at=claim.spec.requested_at,
        deadline_at=claim.spec.deadline_at,
        finished_at=status.finished_at,
        reached_ready=status.ready_at is not None,
        streak_at=streak_at,
    )
