"""Pure functions: from what was read of a slot to what it reports, which state its machine is in, and what fires.

Nothing here reads a clock, a cache or a file, and nothing here acts. `input` is what the law may look at, `law` the
table, `usable` what a node says, `owner` which claim speaks for a slot, `history` the report's own record.
"""

from homelab_autoscaler.phase.history import HistoryLimits, expire, next_expiry, record
from homelab_autoscaler.phase.input import ClaimFact, ClaimKind, Input
from homelab_autoscaler.phase.law import (
    LAW,
    MachineState,
    Operation,
    Row,
    derive,
    fires,
    free,
    may_release,
    row,
    state,
)
from homelab_autoscaler.phase.owner import claim_fact, contested, extra_claims, owning_claim
from homelab_autoscaler.phase.usable import cordon_is_ours, power, unusable, usable

__all__ = [
    "LAW",
    "ClaimFact",
    "ClaimKind",
    "HistoryLimits",
    "Input",
    "MachineState",
    "Operation",
    "Row",
    "claim_fact",
    "contested",
    "cordon_is_ours",
    "derive",
    "expire",
    "extra_claims",
    "fires",
    "free",
    "may_release",
    "next_expiry",
    "owning_claim",
    "power",
    "record",
    "row",
    "state",
    "unusable",
    "usable",
]
