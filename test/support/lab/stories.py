"""The reference workloads: what can happen to one machine, told as a person would."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.pool import Pool


def boot_and_return(pool: Pool, machine: str) -> None:
    """A request boots the machine; its withdrawal turns it off."""
    claim = pool.claim(machine)
    pool.until("ready", lambda: pool.phase(claim) == "ready")
    pool.unclaim(claim)
    pool.until("gone", lambda: pool.phase(claim) == "gone")


def delete_while_booting(pool: Pool, machine: str) -> None:
    """The request is withdrawn after the power-on was sent, before the node registers."""
    claim = pool.claim(machine)
    pool.until("the power-on was sent", lambda: any(job.succeeded for job in pool.jobs()))
    pool.unclaim(claim, "DeletedByHand")
    pool.until("gone", lambda: pool.phase(claim) == "gone")


def superseded(pool: Pool, machine: str) -> None:
    """A second claim made by hand takes the slot while the first one boots; then it goes too."""
    first = pool.claim(machine)
    pool.until("the power-on was sent", lambda: any(job.succeeded for job in pool.jobs()))
    pool.until("a later second", lambda: pool.is_older_than_a_second(first))
    second = pool.claim_by_hand(machine, "by-hand")
    pool.until("superseded", lambda: pool.phase(first) in {"failed", "gone"})
    pool.until("ready", lambda: pool.phase(second) == "ready")
    pool.unclaim(second, "DeletedByHand")
    pool.until("gone", lambda: pool.phase(second) == "gone")


def slot_deleted_while_ready(pool: Pool, machine: str) -> None:
    """The slot leaves Git while its machine serves."""
    claim = pool.claim(machine)
    pool.until("ready", lambda: pool.phase(claim) == "ready")
    pool.delete_slot(machine)
    pool.until("the slot is gone", lambda: pool.slot_or_none(machine) is None)
