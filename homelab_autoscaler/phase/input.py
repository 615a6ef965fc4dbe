"""The input of every decision about a slot: the veto, the owning claim, observed power, usability, and three footnotes.

All of it is read from objects of the present pass. No report is among it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from homelab_api.v2alpha1 import ClaimPhase, NodeClaim, PowerState


class ClaimKind(StrEnum):
    """What the owning claim asks for; one column of the law."""

    NONE = "none"
    PENDING = "pending"
    BOOTING = "booting"
    READY = "ready"
    MARKED = "marked"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class ClaimFact:
    """The slot's owning claim as the law sees it.

    Attributes:
        phase: the claim's phase; an empty one has been read as pending.
        marked: the claim has a deletionTimestamp.
        uid: identity of the claim; a decision holds for this uid only.
        name: for people and for the history.
    """

    phase: ClaimPhase
    marked: bool = False
    uid: str = ""
    name: str = ""

    @classmethod
    def of(cls, claim: NodeClaim) -> ClaimFact:
        """The fact that a claim object states."""
        return cls(phase=claim.phase, marked=claim.marked, uid=claim.uid, name=claim.name)

    @property
    def kind(self) -> ClaimKind:
        """Terminal wins over marked: an ended claim that is being deleted asks for nothing."""
        if self.phase.terminal:
            return ClaimKind.TERMINAL
        return ClaimKind.MARKED if self.marked else ClaimKind(self.phase.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Everything that the law may look at.

    Attributes:
        held: a NodeReclaim names the slot; comes before everything else.
        claim: the owning claim (`phase.owner`), None without one.
        power: observed power of the node (`phase.usable.power`).
        usable: the node can take the pool's work (`phase.usable.usable`).
        off_confirmed: observed off *and* the kubelet is silent (model section 7). Means nothing while power is on.
        debt: the owning claim may have switched the machine on and nothing has proven that it went off again.
        kubelet_alive: the node's Lease was renewed between two of our own reads, whatever Ready says.
        shutdown_in_flight: a shutdown Job of the slot is unfinished, or one ended less than `off_settle` ago and the
            machine is still on. The second half never holds for a machine that is off.
        contested: more than one claim of the slot is live; then superseding is the only act and nothing fires.
        other_job_unfinished: a lifecycle Job of the slot that is not part of the operation being asked for is
            unfinished; no second operation starts beside it.
    """

    held: bool = False
    claim: ClaimFact | None = None
    power: PowerState = PowerState.OFF
    usable: bool = False
    off_confirmed: bool = False
    debt: bool = False
    kubelet_alive: bool = False
    shutdown_in_flight: bool = False
    contested: bool = False
    other_job_unfinished: bool = False

    @property
    def claim_kind(self) -> ClaimKind:
        """The owning claim's column."""
        return self.claim.kind if self.claim else ClaimKind.NONE

    @property
    def counts_as_on(self) -> bool:
        """Footnote 3: must be treated as on where nobody wants the machine.

        True for a machine that is observed on, for one whose kubelet still renews its Lease, and for one on which
        a marked or terminal claim left a debt. It is *not* the observed power: rows with a wanting claim look at that.
        """
        if self.power is PowerState.ON or self.kubelet_alive:
            return True
        return self.debt and self.claim_kind in (ClaimKind.MARKED, ClaimKind.TERMINAL)
