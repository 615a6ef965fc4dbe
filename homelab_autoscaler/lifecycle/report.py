"""The report of a slot: phase, history and conditions, written as a compare-and-set on the observation.

Two writers call it: the observation (which also writes powerState) and every pass over the slot. A pass that was built
from another observation than the slot records writes no phase: the observation has been there, and wrote the report of
what it saw. The readiness gate has read the node itself, so its answer outranks the record (`live`).
Source: state management, "The report has two writers"; model section 8. Nothing reads what is written here to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.conditions import merge_conditions, without
from homelab_autoscaler.phase import derive, expire, record
from homelab_autoscaler.runtime import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from homelab_api.meta import Condition, JsonObject
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.runtime import Client
    from homelab_autoscaler.settings import Settings


class Reporter:
    """Writes Node.status of slots, except lastClaim."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    def pass_over(self, scope: SlotScope, changes: Iterable[Condition] = (), drop: Sequence[str] = ()) -> bool:
        """Record the report of a pass.

        Args:
            scope: what the pass was built from.
            changes: conditions to merge.
            drop: types of conditions that do not apply any more.

        Returns:
            False when the write was refused, most often because the slot had moved on: the caller reports again.
        """
        recorded = scope.slot.status.power_state
        fields = self._phase(scope) if recorded in (None, scope.power) else {}
        return self._write(scope, fields, changes, drop)

    def observation(self, scope: SlotScope, changes: Iterable[Condition]) -> bool:
        """Record the observed power and the report that follows from it, in one write. Returns as `pass_over` does."""
        fields = self._phase(scope)
        if scope.slot.status.power_state is not scope.power:
            fields["powerState"] = scope.power.value
        return self._write(scope, fields, changes, ())

    def live(self, scope: SlotScope) -> bool:
        """Record the gate's answer: built from its own read of the node, so no record is compared."""
        return self._write(scope, self._phase(scope), (), ())

    def _phase(self, scope: SlotScope) -> JsonObject:
        value = scope.law_input()
        owner = scope.owner
        reason = owner.status.reason.value if owner and owner.status.reason else ""
        status = scope.slot.status
        fields = record(status, derive(value), scope.now, value.claim, reason, self._settings)
        return fields or expire(status, scope.now, self._settings)

    def _write(self, scope: SlotScope, fields: JsonObject, changes: Iterable[Condition], drop: Sequence[str]) -> bool:
        slot = scope.slot
        kept = without(slot.status.conditions, *drop)
        merged = merge_conditions(kept, changes, scope.now)
        status = dict(fields)
        if merged != slot.status.conditions:
            status["conditions"] = [entry.to_json() for entry in merged]
        if slot.status.observed_generation != slot.metadata.generation:
            status["observedGeneration"] = slot.metadata.generation
        if not status:
            return True
        try:
            self._client.patch_status(slot, status, resource_version=slot.metadata.resource_version)
        except ConflictError:
            return False
        return True
