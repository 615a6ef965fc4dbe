"""How a refusal reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.webhook import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from homelab_autoscaler.runtime.webhook import FieldCause


def refuse(causes: Iterable[FieldCause], warnings: Sequence[str] = ()) -> Decision:
    """Refuse a write for what its fields say.

    The message is the fields' complaints and nothing before them. No reason is given beside the code: kubectl would
    show an `Invalid` in words of its own and drop the webhook's name. Source: the seed's NodeClaim model, "One live
    claim per slot", which shows the refusal.
    """
    return Decision(allowed=False, causes=tuple(causes), warnings=warnings, code=403, reason="")
