"""The namespace controller: empties a deleted namespace, then lets it go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH, ApiClient
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.controllers.discovery import Discovery
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

_KUBERNETES: Final = "kubernetes"


class NamespaceController(Controller[str]):
    """Works on names of namespaces with a deletionTimestamp.

    The namespace goes (finalizer `kubernetes` in spec, by the subresource finalize) once nothing is left in it.
    Until then conditions say how much is left and which finalizers hold it.
    """

    component = "namespace-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet, *, retry: float = 0.5) -> None:
        """See Controller.

        Args:
            client: See Controller.
            clock: See Controller.
            informers: See Controller.
            retry: Seconds between looks at a namespace that still holds something.
        """
        super().__init__(client, clock, informers)
        self._discovery = Discovery(client)
        self._retry = retry
        self._namespaces = self.informer(resources.NAMESPACES)
        self._namespaces.on_change(self._changed)

    def _changed(self, _old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and objects.is_deleting(new):
            self.queue.add(objects.name(new))

    async def sync(self, key: str) -> float | None:
        """Delete what is in the namespace; if nothing is left, release it."""
        known = self._namespaces.get(("", key))
        if known is None or not objects.is_deleting(known):
            return None
        if _KUBERNETES not in (objects.spec(known).get("finalizers") or []):
            return None
        remaining: dict[str, int] = {}
        holding: dict[str, int] = {}
        for info in sorted(await self._discovery.deletable(), key=lambda info: info.group_resource):
            if not info.namespaced:
                continue
            for obj in await self._empty(resources.path(info, key)):
                remaining[info.group_resource] = remaining.get(info.group_resource, 0) + 1
                for finalizer in objects.finalizers(obj):
                    holding[finalizer] = holding.get(finalizer, 0) + 1
        live = await self.client.get(resources.path(resources.NAMESPACES, name=key))
        if objects.uid(live) != objects.uid(known):
            return None
        if remaining:
            await self._report(live, remaining, holding)
            return self._retry
        await self._finalize(live)
        return None

    async def _empty(self, collection: str) -> list[JsonObject]:
        """Delete a kind's objects in the namespace; what is left after that."""
        try:
            if not (await self.client.list(collection)).get("items"):
                return []
            await self.client.delete(collection, {"propagationPolicy": "Background"})
            left: list[JsonObject] = (await self.client.list(collection)).get("items") or []
        except ApiStatusError as error:
            if error.code in (404, 405):
                return []  # The kind went away, or has no delete of collections.
            raise
        return left

    async def _finalize(self, live: JsonObject) -> None:
        left = [item for item in objects.spec(live).get("finalizers") or [] if item != _KUBERNETES]
        body = {**live, "spec": {**objects.spec(live), "finalizers": left}}
        target = resources.path(resources.NAMESPACES, name=objects.name(live), sub="finalize")
        answer = await self.client.request("PUT", target, body=body)
        if answer.status == 409:
            self.queue.add(objects.name(live))

    async def _report(self, live: JsonObject, remaining: dict[str, int], holding: dict[str, int]) -> None:
        now = objects.stamp(self.clock.now())
        content = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(remaining.items()))
        texts = {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionContentFailure": ("False", "ContentDeleted", "All content successfully deleted"),
            "NamespaceContentRemaining": ("True", "SomeResourcesRemain", f"Some resources are remaining: {content}"),
        }
        if holding:
            counted = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(holding.items()))
            message = f"Some content in the namespace has finalizers remaining: {counted}"
            texts["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", message)
        before: list[JsonObject] = objects.status(live).get("conditions") or []
        conditions = before
        for kind, (value, reason, message) in texts.items():
            entry = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now}
            conditions = objects.with_condition(conditions, entry)
        if conditions == before:
            return
        target = resources.path(resources.NAMESPACES, name=objects.name(live), sub="status")
        await self.client.patch(target, {"status": {"conditions": conditions}}, MERGE_PATCH)
