"""Setting a single condition of a slot from outside its own pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.conditions import merge_conditions

if TYPE_CHECKING:
    from homelab_api.meta import Condition
    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.runtime import Client, Clock


class SlotConditions:
    """Merges conditions into a slot's status, bound to the slot as it was read."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def set(self, slot: Node, change: Condition) -> None:
        """Merge one condition.

        Raises:
            ConflictError: the slot changed since it was read.
        """
        merged = merge_conditions(slot.status.conditions, [change], self._clock.now())
        if merged != slot.status.conditions:
            self._client.patch_status(
                slot,
                {"conditions": [entry.to_json() for entry in merged]},
                resource_version=slot.metadata.resource_version,
            )
