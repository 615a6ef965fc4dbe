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
    """The request is withdrawn after the power-on was asked for."""
    claim = pool.claim(machine)
    pool.until("booting", lambda: pool.phase(claim) == "booting")
    pool.until("asked", lambda: any(not job.suspended for job in pool.jobs()))
    pool.unclaim(claim, "DeletedByHand")
    pool.until("gone", lambda: pool.phase(claim) == "gone")
