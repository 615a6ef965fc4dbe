"""Power debt: a claim may have switched its machine on, and nothing has proven that it went off again.

A silent node is not proof: a machine whose boot was committed may be on its way up. So a committed claim owes a
shutdown until a shutdown Job of its slot succeeded after the commitment, or until its machine was seen going off by
itself while the claim was ready. Source: model section 3, footnote 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.v2alpha1 import ClaimPhase, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.core import Job
    from homelab_api.v2alpha1 import NodeClaim


def job_type(job: Job) -> str:
    """`startup`, `shutdown` or `reclaim`; "" for a Job that is none of ours."""
    return job.metadata.labels.get(names.LABEL_JOB_TYPE, "")


def owned_by(job: Job, uid: str) -> bool:
    """Whether the object with this uid is the Job's controller owner."""
    owner = job.metadata.controller_owner()
    return owner is not None and owner.uid == uid


def settles(job: Job, claim: NodeClaim) -> bool:
    """Whether this Job is a shutdown that succeeded after the claim's machine was committed.

    A shutdown Job of the claim itself always comes after its commitment. One of another owner counts only if it was
    created in a later second than the commitment: Job times have whole seconds, and a shutdown just *before* a boot
    must not pay for it.
    """
    if job_type(job) != names.JOB_TYPE_SHUTDOWN or not job.succeeded:
        return False
    if owned_by(job, claim.uid):
        return True
    since = claim.status.started_at or claim.metadata.creation_timestamp
    created = job.metadata.creation_timestamp
    return since is not None and created is not None and created > since


def in_debt(claim: NodeClaim, jobs: Iterable[Job], *, gone_silent: bool) -> bool:
    """Whether the claim owes a shutdown.

    Args:
        claim: any claim of the slot.
        jobs: the slot's lifecycle Jobs.
        gone_silent: its node object is there, not Ready, and its kubelet is silent: for a machine that was ready,
            that is a machine seen going off.
    """
    if claim.phase is ClaimPhase.COMPLETED or not (claim.committed or claim.status.inherited_debt):
        return False  # A completed claim was confirmed off or given up, in the moment before its finalizer goes too.
    if any(settles(job, claim) for job in jobs):
        return False
    was_ready = claim.phase is ClaimPhase.READY or claim.status.reason is Reason.MACHINE_GONE
    return not (gone_silent and was_ready)
