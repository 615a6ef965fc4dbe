"""The TTL-after-finished controller: deletes finished Jobs whose time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.controllers import job_plan
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.objects import Key

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet


class TtlController(Controller[Key]):
    """Deletes a Job, its pods first (Foreground), `ttlSecondsAfterFinished` after it became Complete or Failed."""

    component = "ttl-after-finished-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._jobs = self.informer(resources.JOBS)
        self._jobs.on_change(lambda _, new: self.queue.add(objects.key(new)) if new is not None else None)

    async def sync(self, key: Key) -> float | None:
        """Delete the Job if its time is over, else say when to look again."""
        job = self._jobs.get(key)
        if job is None or (left := self._left(job)) is None:
            return None
        if left > 0:
            return left
        target = resources.path(resources.JOBS, *key)
        # The time to live may have been raised since: ask before the delete that cannot be taken back.
        live = await self.client.get(target)
        left = self._left(live)
        if objects.uid(live) != objects.uid(job) or left is None or left > 0:
            return left
        preconditions = {"uid": objects.uid(live), "resourceVersion": objects.metadata(live)["resourceVersion"]}
        await self.client.delete(target, {"propagationPolicy": "Foreground", "preconditions": preconditions})
        return None

    def _left(self, job: JsonObject) -> float | None:
        """Seconds until the Job goes; None when it does not."""
        ttl = objects.spec(job).get("ttlSecondsAfterFinished")
        ended = job_plan.finished_at(job)
        if ttl is None or ended is None or objects.is_deleting(job):
            return None
        return float(ttl) - (self.clock.now() - ended).total_seconds()
