"""The mass-failure rule: many machines of a pool going off together are a power cut or a partition, not so many wishes.

While it holds, nothing is switched off and no ready claim ends for it; afterwards the held-up operations go one by one.
It is computed from claims alone, so a restart changes nothing. Boots and marked claims are never held up.
Source: model section 13.9. Reads MachineObservedOff's time, which the authority table allows to this rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import ClaimCondition, ClaimPhase
from homelab_autoscaler.lifecycle.scope import INDEX_SLOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from homelab_api.v2alpha1 import Node, NodeClaim
    from homelab_autoscaler.runtime import Lister
    from homelab_autoscaler.settings import Settings


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A pool of which too much went off at once.

    Attributes:
        off: how many of its ready machines are off.
        ready: how many ready, unmarked claims it has.
        since: when the last of them went off.
        until: from then on held-up operations go one by one.
    """

    off: int
    ready: int
    since: datetime
    until: datetime


def observed_off_since(claim: NodeClaim) -> datetime | None:
    """Since when a ready claim's machine is off; None while it is on."""
    entry = claim.condition(ClaimCondition.MACHINE_OBSERVED_OFF)
    return entry.last_transition_time if entry and entry.status == "True" else None


def pool_claims(slots: Iterable[Node], claims: Lister[NodeClaim]) -> list[NodeClaim]:
    """Every claim that names one of a pool's slots."""
    return [claim for slot in slots for claim in claims.by_index(INDEX_SLOT, f"{slot.namespace}/{slot.name}")]


def suspicion(claims: Sequence[NodeClaim], settings: Settings) -> Suspicion | None:
    """Whether the pool with these claims is suspect; None once half of its machines are back."""
    ready = [claim for claim in claims if claim.phase is ClaimPhase.READY and not claim.marked]
    times = sorted(since for claim in ready if (since := observed_off_since(claim)) is not None)
    needed = max(settings.mass_failure_min, int(len(ready) * settings.mass_failure_fraction) + 1)
    window = timedelta(seconds=settings.mass_failure_window)
    for index in range(needed - 1, len(times)):
        if times[index] - times[index - needed + 1] <= window:
            wait = max(settings.boot_window(claim.spec.max_node_provision_time) for claim in ready)
            return Suspicion(len(times), len(ready), times[-1], times[-1] + timedelta(seconds=wait))
    return None


def held_until(found: Suspicion | None, position: int, now: datetime, settings: Settings) -> datetime | None:
    """Until when an operation of a suspect pool waits; None if it may go.

    Args:
        found: the suspicion, if any.
        position: place of the operation among those that wait, from 0.
        now: the present.
        settings: for the pace.
    """
    if found is None:
        return None
    turn = found.until + timedelta(seconds=position * settings.mass_failure_pace)
    return turn if now < turn else None
