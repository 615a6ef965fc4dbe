"""The second read: the last question before a power command, asked of the API server and not of a cache.

Guarantee: a Job is released only if, at a moment after its creation, the law asked for exactly this operation for
exactly this claim and the slot carried this process's lock; and if its reason goes in the instant between that read
and the release, it is deleted again.
Non-guarantee: a command that has left its pod cannot be called back.
Source: model section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from homelab_autoscaler.lifecycle.lock import LockKind
from homelab_autoscaler.phase import Operation, contested, fires

if TYPE_CHECKING:
    from homelab_api.core import Job
    from homelab_autoscaler.lifecycle.jobs import Jobs
    from homelab_autoscaler.lifecycle.lock import Locks
    from homelab_autoscaler.lifecycle.scope import Scopes, SlotScope

log = structlog.get_logger(__name__)

_LOCKS: Final = {Operation.START_NODE: LockKind.SCALE_UP, Operation.SHUTDOWN_NODE: LockKind.SCALE_DOWN}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an attempt to release.

    Attributes:
        released: the Job runs, and the reason for it still stood after it was released.
        withdrawn: the law does not ask for the operation any more, and the Job was deleted. Neither this nor
            `released`: the Job is not as it was read; the next pass looks again.
        because: for people: why not.
    """

    released: bool
    withdrawn: bool = False
    because: str = ""


def still_asked(scope: SlotScope | None, operation: Operation, claim_uid: str, job_uid: str) -> str:
    """Why the operation is not asked for any more; "" if it is. Pure: this predicate is the whole second read."""
    if scope is None:
        return "the slot is gone"
    owner = scope.owner
    value = scope.law_input(releasing=job_uid)
    starts = operation is Operation.START_NODE
    asked = owner is not None and owner.status.power_requested_at is not None
    objections = (
        (value.held, "the machine is in its owner's hands"),
        ((owner.uid if owner else "") != claim_uid, "another claim owns the slot"),
        (starts and asked, "the machine was asked to start already: one power-on per claim"),
        (not starts and scope.returned_until is not None, "its owner gave the machine back a moment ago"),
        (fires(value) is not operation, f"the law does not ask for {operation} any more"),
    )
    return next((why for stands, why in objections if stands), "")


class Releaser:
    """Releases suspended Jobs after the second read."""

    def __init__(self, live: Scopes, jobs: Jobs, locks: Locks) -> None:
        self._live = live
        self._jobs = jobs
        self._locks = locks

    def objection(self, scope: SlotScope, operation: Operation, claim_uid: str) -> str:
        """Why the operation must not begin, asked of the API server; "" if it may.

        For what is done to a machine before its Job exists: a drain that an old view asks for would take the pods of
        a machine that somebody wants by now.
        """
        return still_asked(self._live.read(*scope.key), operation, claim_uid, "")

    def release(self, scope: SlotScope, job: Job, operation: Operation, claim_uid: str) -> Verdict:
        """Ask again, release, and look once more. A Job whose reason is gone is deleted."""
        namespace, name = scope.key
        before = self._live.read(namespace, name)
        present = next((entry for entry in before.jobs if entry.uid == job.uid), None) if before else None
        if before is not None and present is not None and not present.suspended:
            return self._released_before(before, present, operation, claim_uid)
        because = still_asked(before, operation, claim_uid, job.uid)
        if because:
            self._jobs.delete(job)
            log.info("operation withdrawn", slot=name, job=job.name, operation=operation, because=because)
            return Verdict(released=False, withdrawn=True, because=because)
        if before is not None and not self._locks.holds(before.slot, _LOCKS[operation]):
            # A leader that was paused since it took the lock: whoever has it now finds the Job and decides.
            return Verdict(released=False, because="another manager has taken the slot's lock over")
        if present is None or not self._jobs.release(job):
            return Verdict(released=False, because="the Job changed while it was being released")
        after = self._live.read(namespace, name)
        because = _gone_since(after, operation, claim_uid)
        if because:
            self._jobs.delete(job)
            log.warning("operation called back", slot=name, job=job.name, operation=operation, because=because)
            return Verdict(released=False, withdrawn=True, because=because)
        log.info("power command released", slot=name, job=job.name, operation=operation, claim=claim_uid)
        return Verdict(released=True)

    def _released_before(self, scope: SlotScope, job: Job, operation: Operation, claim_uid: str) -> Verdict:
        """The Job was released by whoever leads by now, or by a try whose reply was lost.

        It is called back if its reason is gone while it runs. One that has ended stays: it is the evidence of what
        the machine was told, and without it the command would be sent again.
        """
        because = "" if job.finished else _gone_since(scope, operation, claim_uid)
        if not because:
            return Verdict(released=True)
        self._jobs.delete(job)
        log.warning("operation called back", slot=scope.slot.name, job=job.name, operation=operation, because=because)
        return Verdict(released=False, withdrawn=True, because=because)


def _gone_since(scope: SlotScope | None, operation: Operation, claim_uid: str) -> str:
    """Whether reclaim or claim took the reason away while the Job was being released."""
    if scope is None:
        return "" if operation is Operation.SHUTDOWN_NODE else "the slot is gone"
    if scope.reclaim is not None:
        return "the machine is in its owner's hands"
    if contested(scope.claims):
        return "more than one claim of the slot is live"
    wanted = any(claim.wants_machine for claim in scope.claims)
    if operation is Operation.START_NODE and not any(
        claim.uid == claim_uid and claim.wants_machine for claim in scope.claims
    ):
        return "its claim wants the machine no more"
    if operation is Operation.SHUTDOWN_NODE and wanted:
        return "a claim wants the machine"
    return ""
