"""The disruption controller: fills the status of PodDisruptionBudgets from the readiness of the pods they select."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH, ApiClient
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.controllers.discovery import Discovery
from homelab_autoscaler.sandbox.objects import Key
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

_EVICTION_TIMEOUT: Final = timedelta(minutes=2)
"""How long an evicted pod may take to be deleted before it counts as healthy again."""


class DisruptionController(Controller[Key]):
    """Works on budgets.

    The expected number of pods is the number selected for a whole-number minAvailable; otherwise the sum of
    `spec.replicas` of their controllers. Pods without a controller count there for nothing, as upstream.
    """

    component = "controllermanager"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._discovery = Discovery(client)
        self._budgets = self.informer(resources.BUDGETS)
        self._pods = self.informer(resources.PODS)
        self._budgets.on_change(lambda _, new: self.queue.add(objects.key(new)) if new is not None else None)
        self._pods.on_change(self._pod_changed)

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        for budget in self._budgets.items():
            if any(pod is not None and _selects(budget, pod) for pod in (old, new)):
                self.queue.add(objects.key(budget))

    async def sync(self, key: Key) -> float | None:
        """Write the status that the pods make true."""
        budget = self._budgets.get(key)
        if budget is None:
            return None
        pods = self._pods.where(lambda pod: _selects(budget, pod))
        scale = await self._scale(budget, pods) if _needs_scale(budget) else None
        status, again = budget_status(budget, pods, scale, self.clock.now())
        before = objects.status(budget)
        if all(before.get(field) == value for field, value in status.items() if field != "disruptedPods") and (
            (before.get("disruptedPods") or {}) == status["disruptedPods"]
        ):
            return again
        # The map is replaced entry by entry in a merge patch: name what has to go.
        disrupted = dict.fromkeys(before.get("disruptedPods") or {}) | status["disruptedPods"]
        version = objects.metadata(budget)["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": {**status, "disruptedPods": disrupted or None}}
        target = resources.path(resources.BUDGETS, *key, sub="status")
        self._budgets.observe(await self.client.patch(target, patch, MERGE_PATCH))
        return again

    async def _scale(self, budget: JsonObject, pods: list[JsonObject]) -> int:
        """The sum of the replicas that the pods' controllers want."""
        total = 0
        seen: set[str] = set()
        for pod in pods:
            owner = objects.controller_of(pod)
            if owner is None or owner["uid"] in seen:
                continue
            seen.add(str(owner["uid"]))
            try:
                info = await self._discovery.resource(str(owner["apiVersion"]), str(owner["kind"]))
                found = await self.client.get(resources.path(info, objects.namespace(pod), str(owner["name"])))
            except (LookupError, ApiStatusError) as error:
                if isinstance(error, ApiStatusError) and error.code != 404:
                    raise
                message = f"found no controllers for pod {objects.name(pod)}"
                await self.events.record(budget, "Warning", "CalculateExpectedPodCountFailed", message)
                continue
            total += int(objects.spec(found).get("replicas") or 0)
        return total


def _selects(budget: JsonObject, pod: JsonObject) -> bool:
    selector = objects.spec(budget).get("selector")
    return objects.namespace(budget) == objects.namespace(pod) and objects.selects(selector, objects.labels(pod))


def _needs_scale(budget: JsonObject) -> bool:
    spec = objects.spec(budget)
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def _portion(value: int | str, total: int) -> int:
    """A number, or a percentage of the total rounded up."""
    if isinstance(value, str):
        return math.ceil(int(value.rstrip("%")) * total / 100)
    return value


def budget_status(
    budget: JsonObject, pods: list[JsonObject], scale: int | None, now: datetime
) -> tuple[JsonObject, float | None]:
    """A budget's status, and the seconds after which it changes by itself.

    Args:
        budget: The PodDisruptionBudget.
        pods: The pods that it selects.
        scale: Replicas wanted by the pods' controllers; None where the budget does not ask.
        now: For the age of evictions.
    """
    spec = objects.spec(budget)
    live = [pod for pod in pods if not objects.is_finished_pod(pod)]
    expected = len(pods) if scale is None else scale
    if (unavailable := spec.get("maxUnavailable")) is not None:
        desired = max(expected - _portion(unavailable, expected), 0)
    else:
        desired = _portion(spec.get("minAvailable") or 0, expected)
    waiting: dict[str, str] = {}
    again: float | None = None
    names = {objects.name(pod) for pod in live if not objects.is_deleting(pod)}
    for name, evicted in (objects.status(budget).get("disruptedPods") or {}).items():
        left = ((objects.parse_time(evicted) or now) + _EVICTION_TIMEOUT - now).total_seconds()
        if name in names and left > 0:
            waiting[name] = evicted
            again = left if again is None else min(again, left)
    healthy = sum(
        objects.condition_is(pod, "Ready")
        for pod in live
        if not objects.is_deleting(pod) and objects.name(pod) not in waiting
    )
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    enough = ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
    entry = {
        "type": "DisruptionAllowed",
        "status": enough[0],
        "reason": enough[1],
        "message": "",
        "observedGeneration": objects.metadata(budget).get("generation"),
        "lastTransitionTime": objects.stamp(now),
    }
    status = {
        "observedGeneration": objects.metadata(budget).get("generation"),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": waiting,
        "conditions": objects.with_condition(list(objects.status(budget).get("conditions") or []), entry),
    }
    return cast("JsonObject", status), again
