"""Creating, releasing and ending lifecycle Jobs, each with the precondition that makes it safe to repeat."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.core import Job, Pod
from homelab_autoscaler.claim.debt import owned_by
from homelab_autoscaler.claim.names import label_value
from homelab_autoscaler.runtime import AlreadyExistsError, ConflictError, InvalidError, JsonPatch, NotFoundError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.runtime import Client, Clock
    from homelab_autoscaler.settings import Settings


class ForeignJobError(Exception):
    """A Job of the wanted name exists and is not this operation's; nothing is done until it is gone."""


class Jobs:
    """Writes lifecycle Jobs. Every delete carries the uid and takes the pod along."""

    def __init__(self, client: Client, clock: Clock, settings: Settings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings

    def ensure(self, body: JsonObject, owner_uid: str) -> Job:
        """Create the (suspended) Job, or find the one that an earlier try created.

        Raises:
            ForeignJobError: a Job of this name belongs to another owner. A finished one is deleted first.
        """
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            return self._client.create_json(Job, body, namespace)
        except AlreadyExistsError:
            found = self._client.get(Job, name, namespace)
        if owned_by(found, owner_uid) and not found.marked:
            return found
        if found.finished and not found.marked:
            self.delete(found)
        raise ForeignJobError(f"Job {namespace}/{name} exists and belongs to another owner: waiting until it is gone")

    def release(self, job: Job) -> bool:
        """Let a suspended Job run. False when it is not there as it was read: then it was not released by us.

        Without a resourceVersion, since the Job controller writes a condition right after the create; the tests in
        the patch pin what matters: the same object, not being deleted, still suspended.
        """
        patch = JsonPatch(
            [
                {"op": "test", "path": "/metadata/uid", "value": job.uid},
                {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
                {"op": "test", "path": "/spec/suspend", "value": True},
                {"op": "replace", "path": "/spec/suspend", "value": False},
            ]
        )
        try:
            self._client.patch(Job, job.name, job.namespace, patch)
        except (InvalidError, NotFoundError):
            return False
        return True

    def delete(self, job: Job) -> None:
        """Delete the Job and its pod. Gone, or replaced by another object, is fine."""
        try:
            self._client.delete(Job, job.name, job.namespace, uid=job.uid, propagation="Background")
        except (NotFoundError, ConflictError):
            return

    def stop_strays(self, slot: Node) -> bool:
        """See off what is left of ended lifecycle Jobs: pods whose script may still be running.

        A pod of a Job that is unfinished at the API server is nobody's stray, whatever a cache says.

        Returns:
            True while there are any; then no other operation of the slot may start.
        """
        of_slot = f"{names.LABEL_NODE}={label_value(slot.name, slot.uid)}"
        kinds = f"{names.JOB_TYPE_STARTUP},{names.JOB_TYPE_SHUTDOWN},{names.JOB_TYPE_RECLAIM}"
        selector = f"{of_slot},{names.LABEL_JOB_TYPE} in ({kinds})"
        pods = self._client.list(Pod, slot.namespace, label_selector=selector).items
        running = [pod for pod in pods if pod.status.phase not in {"Succeeded", "Failed"}]
        if not running:
            return False
        jobs = self._client.list(Job, slot.namespace, label_selector=of_slot).items
        at_work = {job.uid for job in jobs if not job.finished and not job.marked}
        strays = [pod for pod in running if not any(_made_by(pod, uid) for uid in at_work)]
        for pod in strays:
            self._stop(pod)
        return bool(strays)

    def _stop(self, pod: Pod) -> None:
        since = pod.metadata.deletion_timestamp
        forced = since is not None and self._clock.now() >= since + timedelta(seconds=self._settings.job_pod_force)
        if since is not None and not forced:
            return
        try:
            self._client.delete(Pod, pod.name, pod.namespace, uid=pod.uid, grace_period=0 if forced else 1)
        except (NotFoundError, ConflictError):
            return


def _made_by(pod: Pod, uid: str) -> bool:
    """Whether the Job with this uid made the pod."""
    owner = pod.metadata.controller_owner()
    return owner is not None and owner.uid == uid
