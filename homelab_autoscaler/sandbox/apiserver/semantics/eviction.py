"""The eviction subresource: a deletion that disruption budgets may refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.types import DELETE_OPTIONS
from homelab_autoscaler.sandbox.apiserver.presentation.answers import answer
from homelab_autoscaler.sandbox.apiserver.semantics import body as bodies
from homelab_autoscaler.sandbox.apiserver.semantics.decode import DecodeError, decode
from homelab_autoscaler.sandbox.apiserver.semantics.options import (
    DeleteOptions,
    checked_delete_options,
    write_options,
)
from homelab_autoscaler.sandbox.apiserver.semantics.selectors import from_object
from homelab_autoscaler.sandbox.apiserver.store import Key, Stored
from homelab_autoscaler.sandbox.status import ApiStatusError, bad_request, failure, not_found, success

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.request import ApiResponse
    from homelab_autoscaler.sandbox.apiserver.semantics.deleting import Deleter
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane

_BUDGETS = "policy/poddisruptionbudgets"
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_SECONDS = 10


class Evictor:
    """Handles POST pods/NAME/eviction."""

    def __init__(self, plane: Plane, deleter: Deleter) -> None:
        self._plane = plane
        self._deleter = deleter

    async def evict(self, call: Call) -> ApiResponse:
        """Delete a Pod unless a budget speaks against it.

        Raises:
            ApiStatusError: 429 when a budget refuses, 500 when two of them guard the Pod, 404, 409 for preconditions.
        """
        request_options = write_options(call.request, "CreateOptions")
        body = bodies.parse_object(call.request.body, call.request.headers.get("content-type", ""), "Eviction")
        if body.get("kind", "Eviction") != "Eviction":
            raise bad_request(f"the body is a {body.get('kind')}, not an Eviction")
        metadata = body.get("metadata") or {}
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        if name != call.target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = self._options(body, dry_run=request_options.dry_run)
        stored = self._plane.collection(call.resource).get(call.key)
        if stored is None:
            raise not_found("pods", "", call.target.name)
        if self._guarded(stored):
            self._take_disruption(stored, options)
        await self._deleter.remove(call, call.key, options, name=call.target.name)
        return answer(success(201), 201)

    @staticmethod
    def _options(body: JsonObject, *, dry_run: bool) -> DeleteOptions:
        raw = body.get("deleteOptions") or {}
        try:
            raw = decode(raw, DELETE_OPTIONS, "deleteOptions", [], "Eviction.deleteOptions")
        except DecodeError as error:
            raise bad_request(f'Eviction in version "v1" cannot be handled as a Eviction: {error}') from None
        for key in ("kind", "apiVersion"):
            raw.pop(key, None)
        if dry_run:
            raw["dryRun"] = ["All"]
        return checked_delete_options(raw)

    @staticmethod
    def _guarded(stored: Stored) -> bool:
        """Budgets only speak for Pods that run; others, and those on their way out, can go."""
        pod = stored.load()
        phase = (pod.get("status") or {}).get("phase")
        return phase not in {"Pending", "Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]

    def _take_disruption(self, stored: Stored, options: DeleteOptions) -> None:
        """Count the eviction in the one budget that guards the Pod."""
        budgets = []
        for item in self._plane.store.collection(_BUDGETS).items(stored.key.namespace):
            selector = from_object(item.load().get("spec", {}).get("selector"))
            if selector is not None and selector.matches(stored.labels):
                budgets.append(item)
        if not budgets:
            return
        if len(budgets) > 1:
            raise failure(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        budget = budgets[0].load()
        status = budget.get("status") or {}
        pod = stored.load()
        ready = any(
            item.get("type") == "Ready" and item.get("status") == "True"
            for item in (pod.get("status") or {}).get("conditions") or []
        )
        if not ready and self._unready_may_go(budget):
            return
        name = budget["metadata"]["name"]
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            raise _try_later(f"The disruption budget {name} is still being processed by the server.")
        allowed = status.get("disruptionsAllowed", 0)
        if allowed <= 0:
            text = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
            raise _refused(text)
        if options.dry_run:
            return
        status["disruptionsAllowed"] = allowed - 1
        status.setdefault("disruptedPods", {})[stored.key.name] = self._plane.now()
        self._plane.store.put(_BUDGETS, Key(stored.key.namespace, name), budget)

    @staticmethod
    def _unready_may_go(budget: JsonObject) -> bool:
        """Pods that are not ready are only guarded while the budget is met, or never with AlwaysAllow."""
        status = budget.get("status") or {}
        policy = budget["spec"].get("unhealthyPodEvictionPolicy") or "IfHealthyBudget"
        if policy == "AlwaysAllow":
            return True
        return bool(
            status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) and status.get("desiredHealthy", 0) > 0
        )


def _refused(text: str) -> ApiStatusError:
    return failure(429, "TooManyRequests", _BLOCKED, {"causes": [{"reason": "DisruptionBudget", "message": text}]})


def _try_later(text: str) -> ApiStatusError:
    details = {"retryAfterSeconds": _RETRY_SECONDS, "causes": [{"reason": "DisruptionBudget", "message": text}]}
    return failure(429, "TooManyRequests", _BLOCKED, details)
