"""The Job controller: makes pods, counts them, ends Jobs. What to do next is computed in `job_plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH, STRATEGIC_PATCH, ApiClient
from homelab_autoscaler.sandbox.controllers import job_plan
from homelab_autoscaler.sandbox.controllers.controller import Controller
from homelab_autoscaler.sandbox.controllers.job_plan import TRACKING_FINALIZER
from homelab_autoscaler.sandbox.objects import Key
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.informer import InformerSet

_LOOK_AGAIN: Final = 0.05
_STATUS_FIELDS: Final = (
    "active",
    "completionTime",
    "conditions",
    "failed",
    "ready",
    "startTime",
    "succeeded",
    "terminating",
    "uncountedTerminatedPods",
)


class JobController(Controller[Key]):
    """Jobs with completion mode NonIndexed; an Indexed one is left alone with an Event that says so.

    Not simulated: pod failure policies, success policies, adoption of pods that match a manual selector.
    """

    component = "job-controller"

    def __init__(self, client: ApiClient, clock: SandboxClock, informers: InformerSet) -> None:
        """See Controller."""
        super().__init__(client, clock, informers)
        self._jobs = self.informer(resources.JOBS)
        self._pods = self.informer(resources.PODS)
        self._jobs.on_change(self._job_changed)
        self._pods.on_change(self._pod_changed)

    def _job_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self.queue.add(objects.key(cast("JsonObject", new or old)))
        if new is None and old is not None:
            # Whatever still carries our finalizer has nobody else who would take it away.
            uid = objects.uid(old)
            for pod in self._pods.where(lambda pod: _owner_uid(pod) == uid):
                self.queue.add(_pod_key(pod))

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        pod = cast("JsonObject", new or old)
        owner = objects.controller_of(pod)
        if owner is not None and owner.get("kind") == "Job":
            self.queue.add((objects.namespace(pod), str(owner.get("name"))))
        if new is not None and TRACKING_FINALIZER in objects.finalizers(new):
            self.queue.add(_pod_key(new))

    async def sync(self, key: Key) -> float | None:
        """One step of one Job, or of one pod that may have lost its Job."""
        namespace, name = key
        if name.startswith(_POD_PREFIX):
            await self._release_orphan((namespace, name.removeprefix(_POD_PREFIX)))
            return None
        job = self._jobs.get(key)
        if job is None or not job_plan.is_ours(job):
            return None
        if objects.spec(job).get("completionMode") == "Indexed":
            await self.events.record(
                job, "Warning", "UnsupportedCompletionMode", "the sandbox runs Jobs of completion mode NonIndexed only"
            )
            return None
        uid = objects.uid(job)
        pods = self._pods.where(lambda pod: _owner_uid(pod) == uid)
        plan = job_plan.plan(job, pods, self.clock.now())
        if plan.create and not await self.is_current(self._jobs, job):
            return _LOOK_AGAIN
        await self._carry_out(job, plan)
        return plan.requeue

    async def _carry_out(self, job: JsonObject, plan: job_plan.Plan) -> None:
        for _ in range(plan.create):
            await self._create_pod(job)
        for pod in plan.withdraw:
            await self._release(pod)
            await self._delete_pod(job, pod)
        for pod in plan.delete:
            await self._delete_pod(job, pod)
        if plan.noted is not None:
            job = await self._store(job, plan.noted)
        for pod in plan.release:
            await self._release(pod)
        if plan.settled is not None:
            job = await self._store(job, plan.settled)
        for notice in plan.notices:
            kind = cast("Literal['Normal', 'Warning']", notice.type)
            await self.events.record(job, kind, notice.reason, notice.message)

    async def _store(self, job: JsonObject, status: JsonObject) -> JsonObject:
        """Replace the fields of the status that are ours; a stale resourceVersion is refused and computed anew."""
        namespace, name = objects.key(job)
        body = {field: status.get(field) for field in _STATUS_FIELDS}
        uncounted = body["uncountedTerminatedPods"] or {}
        body["uncountedTerminatedPods"] = {field: uncounted.get(field) for field in ("succeeded", "failed")}
        patch = {"metadata": {"resourceVersion": objects.metadata(job)["resourceVersion"]}, "status": body}
        stored = await self.client.patch(resources.path(resources.JOBS, namespace, name, "status"), patch, MERGE_PATCH)
        self._jobs.observe(stored)
        return stored

    async def _create_pod(self, job: JsonObject) -> None:
        namespace, name = objects.key(job)
        template = objects.spec(job)["template"]
        source = objects.metadata(template)
        meta: JsonObject = {
            "generateName": f"{name}-",
            "namespace": namespace,
            "labels": source.get("labels") or {},
            "annotations": source.get("annotations") or {},
            "finalizers": [*(source.get("finalizers") or []), TRACKING_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "uid": objects.uid(job),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
        body: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        try:
            pod = await self.client.create(resources.path(resources.PODS, namespace), body)
        except ApiStatusError as error:
            await self.events.record(job, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self._pods.observe(pod)
        await self.events.record(job, "Normal", "SuccessfulCreate", f"Created pod: {objects.name(pod)}")

    async def _delete_pod(self, job: JsonObject, pod: JsonObject) -> None:
        namespace, name = objects.key(pod)
        options = {"preconditions": {"uid": objects.uid(pod)}}
        answer = await self._gone(self.client.delete(resources.path(resources.PODS, namespace, name), options))
        if answer is not None:
            if answer.get("kind") == "Pod" and objects.finalizers(answer):
                self._pods.observe(answer)
            await self.events.record(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")

    async def _release(self, pod: JsonObject) -> None:
        """Take our finalizer away; the uid guards against a pod of the same name made meanwhile."""
        namespace, name = objects.key(pod)
        patch = {
            "metadata": {"uid": objects.uid(pod), "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]},
        }
        stored = await self._gone(
            self.client.patch(resources.path(resources.PODS, namespace, name), patch, STRATEGIC_PATCH)
        )
        if stored is not None:
            self._pods.observe(stored)

    async def _release_orphan(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is None or TRACKING_FINALIZER not in objects.finalizers(pod):
            return
        owner = objects.controller_of(pod)
        if owner is not None:
            job = self._jobs.get((objects.namespace(pod), str(owner.get("name"))))
            if job is not None and objects.uid(job) == owner.get("uid"):
                return
            # The copy may lag behind the pod: only the server's word counts for "there is no such Job".
            live = await self._gone(
                self.client.get(resources.path(resources.JOBS, objects.namespace(pod), str(owner.get("name"))))
            )
            if live is not None and objects.uid(live) == owner.get("uid"):
                return
        await self._release(pod)

    async def _gone(self, call: Awaitable[JsonObject]) -> JsonObject | None:
        """The answer, or None if the object is not there any more."""
        try:
            return await call
        except ApiStatusError as error:
            if error.code == 404:
                return None
            raise


_POD_PREFIX: Final = "/pod/"


def _pod_key(pod: JsonObject) -> Key:
    """Key of a pod in the queue of Jobs: no Job name begins with a slash."""
    return objects.namespace(pod), _POD_PREFIX + objects.name(pod)


def _owner_uid(pod: JsonObject) -> str:
    owner = objects.controller_of(pod)
    return str(owner["uid"]) if owner is not None and owner.get("kind") == "Job" else ""
