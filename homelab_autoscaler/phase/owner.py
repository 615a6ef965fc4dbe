"""Which claim of a slot speaks for it.

One live claim per slot is the invariant of the model; admission and the names of our own creators keep it. This is
the rule for when it does not hold all the same (two creators racing, a hand, a webhook that was down): the newest
unmarked claim owns the slot, the other live ones are superseded and never come back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from homelab_api.v2alpha1 import Reason
from homelab_autoscaler.phase.input import ClaimFact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.v2alpha1 import NodeClaim

_NEVER_STORED: Final = datetime.min.replace(tzinfo=UTC)


def _seniority(claim: NodeClaim) -> tuple[datetime, bool, str]:
    """Newer, then committed, then greater uid: a total order, equal for every observer."""
    return (claim.metadata.creation_timestamp or _NEVER_STORED, claim.committed, claim.uid)


def owning_claim(claims: Iterable[NodeClaim]) -> NodeClaim | None:
    """The claim that owns the slot, out of all claims that name it.

    A claim that wants the machine comes before a marked one, a marked one before an ended one. Among ended claims one
    that still carries the finalizer comes first: its machine may be on because of it, whatever ended later. That is
    not said of one that ended because the machine went to its owner.
    """
    everything = list(claims)
    wanting = [claim for claim in everything if claim.wants_machine]
    marked = [claim for claim in everything if claim.live and claim.marked]
    committed = [
        claim
        for claim in everything
        if claim.phase.terminal and claim.committed and claim.status.reason is not Reason.EMERGENCY_RECLAIM
    ]
    return max(wanting or marked or committed or everything, key=_seniority, default=None)


def extra_claims(claims: Iterable[NodeClaim]) -> list[NodeClaim]:
    """The live claims of the slot that do not own it, oldest first: they fail as Superseded."""
    everything = list(claims)
    owner = owning_claim(everything)
    return sorted((claim for claim in everything if claim.live and claim is not owner), key=_seniority)


def contested(claims: Iterable[NodeClaim]) -> bool:
    """Whether more than one claim of the slot is live: then superseding is the only act."""
    return sum(claim.live for claim in claims) > 1


def claim_fact(claims: Iterable[NodeClaim]) -> ClaimFact | None:
    """The owning claim as the law's input."""
    owner = owning_claim(claims)
    return ClaimFact.of(owner) if owner else None
