"""The group controller: a pool at a glance. Everything that it writes is a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.conditions import condition, merge_conditions
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import ClaimPhase, Group, GroupCondition, GroupHealth, Node, NodeClaim, PowerState
from homelab_autoscaler.lifecycle.pool import pool_claims, suspicion
from homelab_autoscaler.lifecycle.scope import INDEX_GROUP
from homelab_autoscaler.phase import power
from homelab_autoscaler.runtime import MergePatch, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.core import CoreNode
    from homelab_api.meta import Condition, JsonObject
    from homelab_autoscaler.runtime import Client, Clock, EventRecorder, Lister, Request
    from homelab_autoscaler.settings import Settings


class GroupReconciler:
    """Reconciles `Group`."""

    def __init__(
        self,
        *,
        client: Client,
        clock: Clock,
        settings: Settings,
        recorder: EventRecorder,
        groups: Lister[Group],
        slots: Lister[Node],
        claims: Lister[NodeClaim],
        nodes: Lister[CoreNode],
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._events = recorder
        self._groups = groups
        self._slots = slots
        self._claims = claims
        self._nodes = nodes

    def reconcile(self, request: Request) -> Result:
        """Count, judge, record."""
        group = self._groups.get(request.name, request.namespace)
        if group is None:
            return Result()
        slots = self._slots.by_index(INDEX_GROUP, f"{group.namespace}/{group.name}")
        claims = pool_claims(slots, self._claims)
        if group.marked:
            self._leave(group, claims)
            return Result()
        if names.FINALIZER_GROUP not in group.metadata.finalizers:
            self._patch_finalizers(group, [*group.metadata.finalizers, names.FINALIZER_GROUP])
            return Result()
        self._record(group, slots, claims)
        return Result(requeue_after=self._settings.idle_resync)

    def _record(self, group: Group, slots: Sequence[Node], claims: Sequence[NodeClaim]) -> None:
        on = sum(power(self._nodes.get(slot.spec.kubernetes_node_name)) is PowerState.ON for slot in slots)
        target = len({claim.slot_name for claim in claims if claim.wants_machine})
        status: JsonObject = {
            "slots": len(slots),
            "on": on,
            "off": len(slots) - on,
            "target": target,
            "health": _health(slots, claims).value,
        }
        before = group.status.target
        if before is not None and before != target:
            status["lastScaleAt"] = format_time(self._clock.now())
            status["lastScaleAction"] = f"{'up' if target > before else 'down'}: {before} → {target}"
        changes = self._conditions(group, slots, claims)
        merged = merge_conditions(group.status.conditions, changes, self._clock.now())
        if merged != group.status.conditions:
            status["conditions"] = [entry.to_json() for entry in merged]
        if group.status.observed_generation != group.metadata.generation:
            status["observedGeneration"] = group.metadata.generation
        self._client.patch_status(group, status, resource_version=group.metadata.resource_version)

    def _conditions(self, group: Group, slots: Sequence[Node], claims: Sequence[NodeClaim]) -> list[Condition]:
        empty = f'no slot carries the label {names.LABEL_GROUP}="{group.name}"'
        changes = [
            condition(GroupCondition.READY, bool(slots), "SlotsFound" if slots else "NoSlots", "" if slots else empty)
        ]
        found = suspicion(claims, self._settings)
        known = next((c for c in group.status.conditions if c.type == GroupCondition.POOL_SUSPECT), None)
        if found is not None:
            text = f"{found.off} of {found.ready} ready machines went off together: nothing is switched off for now"
            changes.append(condition(GroupCondition.POOL_SUSPECT, True, "MassFailure", text))
            if known is None or known.status != "True":
                self._events.event(group, "Warning", GroupCondition.POOL_SUSPECT, text)
        elif known is not None:
            changes.append(condition(GroupCondition.POOL_SUSPECT, False, "Recovered", ""))
        return changes

    def _leave(self, group: Group, claims: Sequence[NodeClaim]) -> None:
        """A deleted group stays readable until no machine of it needs its rules any more."""
        if names.FINALIZER_GROUP not in group.metadata.finalizers:
            return
        if any(claim.live or claim.committed for claim in claims):
            return
        kept = [entry for entry in group.metadata.finalizers if entry != names.FINALIZER_GROUP]
        self._patch_finalizers(group, kept)

    def _patch_finalizers(self, group: Group, finalizers: list[str]) -> None:
        metadata = {"resourceVersion": group.metadata.resource_version, "finalizers": finalizers or None}
        self._client.patch(Group, group.name, group.namespace, MergePatch({"metadata": metadata}))


def _health(slots: Sequence[Node], claims: Sequence[NodeClaim]) -> GroupHealth:
    """Healthy: every wanted machine is ready or on its way; degraded: some failed; offline: none of them is ready."""
    if not slots:
        return GroupHealth.UNKNOWN
    wanted = [claim for claim in claims if claim.wants_machine]
    failed = [claim for claim in claims if claim.phase is ClaimPhase.FAILED and claim.committed]
    if not wanted and not failed:
        return GroupHealth.HEALTHY
    if failed and not any(claim.phase is ClaimPhase.READY for claim in wanted):
        return GroupHealth.OFFLINE
    return GroupHealth.DEGRADED if failed else GroupHealth.HEALTHY
