"""The observation controller: what the cluster sees of a machine.

Woken by the node, it records powerState and the report that follows from it in one write. It decides nothing.
Source: state management, "The report has two writers"; model section 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.conditions import condition
from homelab_api.v2alpha1 import PowerState, SlotCondition
from homelab_autoscaler.controllers import slot_checks
from homelab_autoscaler.runtime import Result

if TYPE_CHECKING:
    from homelab_api.meta import Condition
    from homelab_autoscaler.lifecycle.pulse import KubeletPulse
    from homelab_autoscaler.lifecycle.report import Reporter
    from homelab_autoscaler.lifecycle.scope import CachedScopes, SlotScope
    from homelab_autoscaler.runtime import Request


class ObservationReconciler:
    """Reconciles a slot's node into the slot's status."""

    def __init__(self, scopes: CachedScopes, reporter: Reporter, pulse: KubeletPulse, again: float) -> None:
        self._scopes = scopes
        self._reporter = reporter
        self._pulse = pulse
        self._again = again

    def reconcile(self, request: Request) -> Result:
        """Record what the node says now; a report that was refused is made again."""
        scope = self._scopes.read(request.namespace, request.name)
        if scope is None:
            return Result()
        if scope.power is PowerState.ON or scope.node is None:
            self._pulse.forget(scope.node_name)
        if self._reporter.observation(scope, self._conditions(scope)):
            return Result()
        # Most often an event is on its way that says why. Not to rely on it: no resync would bring this report.
        return Result(requeue_after=self._again)

    def _conditions(self, scope: SlotScope) -> list[Condition]:
        changes = [*slot_checks.observation(scope), slot_checks.autoscaler_marker(scope)]
        if slot_checks.in_doubt(scope.slot) and scope.power is PowerState.ON:
            changes.append(condition(SlotCondition.POWER_UNKNOWN, False, "ObservedOn", "the machine was seen on"))
        return changes
