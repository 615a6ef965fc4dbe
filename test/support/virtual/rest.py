"""The end of a story: a slot whose machine is off, and that nothing of ours works on any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virtual.cluster import Cluster


def at_rest(cluster: Cluster, machine: str = "m", *, by_us: bool = True) -> bool:
    """Off, reported so, not locked; no claim and no Job of the slot is at work.

    Its node is forgotten, too, if the machine was switched off by us. Of one that a hand switched off the cluster only
    sees that it is silent, as it would of one that is cut off: its node stays until the next boot.
    """
    slot = cluster.slot(machine)
    return (
        cluster.power(machine) == "off"
        and slot.status.phase == "off"
        and (not by_us or cluster.node(machine) is None)
        and not [key for key in slot.metadata.annotations if "/lock" in key]
        and all(job.finished for job in cluster.jobs() if machine in job.name)
        and not [claim for claim in cluster.claims() if claim.slot_name == machine and (claim.live or claim.committed)]
    )


def commands_of_jobs(cluster: Cluster, machine: str = "m") -> list[str]:
    """Power commands of Jobs that reached the machine, in order; what a hand did is not among them."""
    return [entry.command for entry in cluster.plane.ledger.entries(machine) if entry.sender != "hand"]
