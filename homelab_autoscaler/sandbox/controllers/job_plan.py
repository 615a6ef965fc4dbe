"""What a Job needs next, computed from the Job, its pods and the time: no client, no clock, no side effects.

The order of the real controller is kept, because people watch it and because the API server guards the status
(Complete needs SuccessCriteriaMet, Failed needs FailureTarget, no active pods): pods are made or deleted; what ended is
first noted in `uncountedTerminatedPods` together with the interim condition; then the tracking finalizers leave;
then the counters move and, once no pod terminates any more, the final condition is set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
CONTROLLER_NAME: Final = "kubernetes.io/job-controller"
_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 600.0
_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event that the step is worth."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One step for a Job.

    Attributes:
        create: How many pods to make.
        withdraw: Pods to delete that do not count as failures (suspension, too many): their finalizer goes first.
        delete: Pods to delete because the Job has failed; they count.
        release: Pods whose tracking finalizer goes once `noted` is stored.
        noted: The status that is stored before finalizers leave, None if it is stored already.
        settled: The status after counting, None if it is stored already.
        requeue: Seconds after which to look again without an event.
        notices: Events to record.
    """

    create: int = 0
    withdraw: tuple[JsonObject, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    release: tuple[JsonObject, ...] = ()
    noted: JsonObject | None = None
    settled: JsonObject | None = None
    requeue: float | None = None
    notices: tuple[Notice, ...] = ()


def is_finished(job: JsonObject) -> bool:
    """Complete or Failed: final, whatever happens to the pods."""
    return objects.condition_is(job, "Complete") or objects.condition_is(job, "Failed")


def is_ours(job: JsonObject) -> bool:
    """False when `spec.managedBy` gives the Job to another controller."""
    return objects.spec(job).get("managedBy") in (None, "", CONTROLLER_NAME)


def finished_at(job: JsonObject) -> datetime | None:
    """When the Job became Complete or Failed."""
    for kind in ("Complete", "Failed"):
        found = objects.condition(job, kind)
        if found and found.get("status") == "True":
            return objects.parse_time(found.get("lastTransitionTime"))
    return None


@dataclass
class _Tally:
    """The pods of a Job by what they mean for it."""

    active: list[JsonObject] = field(default_factory=list)
    terminating: list[JsonObject] = field(default_factory=list)
    tracked: list[JsonObject] = field(default_factory=list)

    @property
    def ready(self) -> int:
        return sum(objects.condition_is(pod, "Ready") for pod in self.active)


def plan(job: JsonObject, pods: list[JsonObject], now: datetime) -> Plan:
    """The next step of an unfinished Job of ours; see the module for the order.

    Args:
        job: The Job as last seen.
        pods: The pods that it controls (by owner uid).
        now: The present, for start, deadline and retry times.
    """
    tally = _sort(pods)
    if is_finished(job):
        return Plan(release=tuple(tally.tracked))
    return _Step(job, tally, pods, now).plan()


def _sort(pods: list[JsonObject]) -> _Tally:
    tally = _Tally()
    for pod in sorted(pods, key=objects.key):
        if TRACKING_FINALIZER in objects.finalizers(pod):
            tally.tracked.append(pod)
        if objects.is_finished_pod(pod):
            continue
        (tally.terminating if objects.is_deleting(pod) else tally.active).append(pod)
    return tally


class _Step:
    """Working state of one `plan` call."""

    def __init__(self, job: JsonObject, tally: _Tally, pods: list[JsonObject], now: datetime) -> None:
        self.job = job
        self.spec = objects.spec(job)
        self.old = objects.status(job)
        self.tally = tally
        self.pods = pods
        self.now = now
        self.stamp = objects.stamp(now)
        self.conditions: list[JsonObject] = list(self.old.get("conditions") or [])
        self.notices: list[Notice] = []
        self.requeue: float | None = None
        self.start: str | None = self.old.get("startTime")
        self.suspended = bool(self.spec.get("suspend"))
        uncounted = self.old.get("uncountedTerminatedPods") or {}
        self.succeeded_uids: list[str] = list(uncounted.get("succeeded") or [])
        self.failed_uids: list[str] = list(uncounted.get("failed") or [])

    def plan(self) -> Plan:
        self._suspension()
        if self.start is None and not self.suspended:
            self.start = self.stamp
        self._count_ended()
        verdict = self._verdict()
        create, withdraw, delete = 0, (), ()  # type: int, tuple[JsonObject, ...], tuple[JsonObject, ...]
        if verdict is not None and verdict["type"] == "FailureTarget":
            delete = tuple(self.tally.active)
            self._count_as_failed(delete)
        elif verdict is not None or objects.is_deleting(self.job):
            pass
        elif self.suspended:
            withdraw = tuple(self.tally.active)
        else:
            create, withdraw = self._pods_to_change()
        gone = {objects.uid(pod) for pod in (*withdraw, *delete)}
        active = [pod for pod in self.tally.active if objects.uid(pod) not in gone]
        terminating = len(self.tally.terminating) + len(gone)
        counted = {*self.succeeded_uids, *self.failed_uids}
        release = tuple(
            pod for pod in self.tally.tracked if objects.uid(pod) in counted or objects.is_deleting(self.job)
        )
        noted = self._status(active, terminating, create)
        settled = self._settled(noted, verdict)
        return Plan(
            create=create,
            withdraw=withdraw,
            delete=delete,
            release=release,
            noted=None if _same(noted, self.old) else noted,
            settled=None if _same(settled, noted) else settled,
            requeue=self.requeue,
            notices=tuple(self.notices),
        )

    def _suspension(self) -> None:
        """Condition Suspended follows spec.suspend; a Job that never was suspended carries none (as upstream)."""
        shown = objects.condition_is(self.job, "Suspended")
        if self.suspended:
            # The deadline does not run while suspended, and a resumed Job starts its clock anew.
            self.start = None
            if not shown:
                self._set("Suspended", "True", "JobSuspended", "Job suspended")
                self.notices.append(Notice("Normal", "Suspended", "Job suspended"))
        elif shown:
            self._set("Suspended", "False", "JobResumed", "Job resumed")
            self.notices.append(Notice("Normal", "Resumed", "Job resumed"))
            self.start = self.stamp

    def _set(self, kind: str, value: str, reason: str, message: str) -> None:
        entry = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastProbeTime": self.stamp,
            "lastTransitionTime": self.stamp,
        }
        self.conditions = objects.with_condition(self.conditions, entry)

    def _count_ended(self) -> None:
        """Pods that ended since the last look; a deleted one has failed, unless only failed ones are replaced."""
        replace_only_failed = self.spec.get("podReplacementPolicy") == "Failed"
        known = {*self.succeeded_uids, *self.failed_uids}
        for pod in self.tally.tracked:
            uid = objects.uid(pod)
            if uid in known:
                continue
            if objects.phase(pod) == "Succeeded":
                self.succeeded_uids.append(uid)
            elif objects.phase(pod) == "Failed" or (objects.is_deleting(pod) and not replace_only_failed):
                self.failed_uids.append(uid)

    def _count_as_failed(self, pods: tuple[JsonObject, ...]) -> None:
        known = {*self.succeeded_uids, *self.failed_uids}
        tracked = {objects.uid(pod) for pod in self.tally.tracked}
        self.failed_uids += [
            objects.uid(pod)
            for pod in (*pods, *self.tally.terminating)
            if objects.uid(pod) in tracked and objects.uid(pod) not in known
        ]

    @property
    def _succeeded(self) -> int:
        return int(self.old.get("succeeded") or 0) + len(self.succeeded_uids)

    @property
    def _failed(self) -> int:
        return int(self.old.get("failed") or 0) + len(self.failed_uids)

    def _verdict(self) -> JsonObject | None:
        """The interim condition, set earlier or now: SuccessCriteriaMet or FailureTarget."""
        for kind in ("FailureTarget", "SuccessCriteriaMet"):
            found = next((c for c in self.conditions if c["type"] == kind and c["status"] == "True"), None)
            if found:
                return found
        if objects.is_deleting(self.job):
            return None
        if self._too_many_failures():
            reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            self._set("FailureTarget", "True", reason, message)
            self.notices.append(Notice("Warning", reason, message))
        elif self._past_deadline():
            reason, message = "DeadlineExceeded", "Job was active longer than specified deadline"
            self._set("FailureTarget", "True", reason, message)
            self.notices.append(Notice("Warning", reason, message))
        elif self._is_complete():
            self._set("SuccessCriteriaMet", "True", *_REACHED)
        else:
            return None
        return self.conditions[-1]

    def _too_many_failures(self) -> bool:
        limit = int(self.spec.get("backoffLimit", 6))
        if self._failed > limit:
            return True
        if (self.spec.get("template") or {}).get("spec", {}).get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(
            int(container.get("restartCount") or 0)
            for pod in self.tally.active
            for container in objects.status(pod).get("containerStatuses") or []
        )
        return restarts > 0 if limit == 0 else restarts >= limit

    def _past_deadline(self) -> bool:
        seconds = self.spec.get("activeDeadlineSeconds")
        start = objects.parse_time(self.start)
        if seconds is None or start is None or self.suspended:
            return False
        left = float(seconds) - (self.now - start).total_seconds()
        if left > 0:
            self._requeue(left)
        return left <= 0

    def _is_complete(self) -> bool:
        completions = self.spec.get("completions")
        if completions is None:
            return self._succeeded > 0 and not self.tally.active
        return self._succeeded >= int(completions) and (not self.suspended or int(completions) > 0)

    def _pods_to_change(self) -> tuple[int, tuple[JsonObject, ...]]:
        """How many pods are missing, and which are too many."""
        parallelism = int(self.spec.get("parallelism", 1))
        completions = self.spec.get("completions")
        active = len(self.tally.active)
        if completions is None:
            wanted = active if self._succeeded > 0 else parallelism
        else:
            wanted = min(max(int(completions) - self._succeeded, 0), parallelism)
        if active > wanted:
            return 0, tuple(self.tally.active[wanted:])
        present = active
        if self.spec.get("podReplacementPolicy") == "Failed":
            present += len(self.tally.terminating)
        missing = max(wanted - present, 0)
        wait = self._retry_wait()
        if missing and wait > 0:
            self._requeue(wait)
            return 0, ()
        return missing, ()

    def _retry_wait(self) -> float:
        """Seconds until a failed pod may be replaced: 10 s doubled per failure since the last success, up to 10 min."""
        ends: list[tuple[datetime, bool]] = []
        for pod in self.pods:
            if objects.is_finished_pod(pod):
                ends.append((pod_finished_at(pod) or self.now, objects.phase(pod) == "Failed"))
            elif objects.is_deleting(pod):
                ends.append((objects.parse_time(objects.metadata(pod)["deletionTimestamp"]) or self.now, True))
        ends.sort(key=lambda end: end[0])
        failures = 0
        while failures < len(ends) and ends[-1 - failures][1]:
            failures += 1
        if failures == 0:
            return 0.0
        delay = min(_FIRST_BACKOFF * 2 ** (failures - 1), _LONGEST_BACKOFF)
        return (ends[-1][0] + timedelta(seconds=delay) - self.now).total_seconds()

    def _requeue(self, seconds: float) -> None:
        self.requeue = seconds if self.requeue is None else min(self.requeue, seconds)

    def _status(self, active: list[JsonObject], terminating: int, create: int) -> JsonObject:
        uncounted: JsonObject = {}
        if self.succeeded_uids:
            uncounted["succeeded"] = list(self.succeeded_uids)
        if self.failed_uids:
            uncounted["failed"] = list(self.failed_uids)
        body: JsonObject = {key: self.old[key] for key in ("succeeded", "failed") if self.old.get(key)}
        body |= {
            "ready": sum(objects.condition_is(pod, "Ready") for pod in active),
            "terminating": terminating,
            "uncountedTerminatedPods": uncounted,
        }
        if len(active) + create:
            body["active"] = len(active) + create
        if self.start is not None:
            body["startTime"] = self.start
        if self.conditions:
            body["conditions"] = self.conditions
        return body

    def _settled(self, noted: JsonObject, verdict: JsonObject | None) -> JsonObject:
        """The status once the finalizers are gone: counters moved and, when nothing terminates, the final condition."""
        body = dict(noted) | {"uncountedTerminatedPods": {}}
        for name, uids in (("succeeded", self.succeeded_uids), ("failed", self.failed_uids)):
            total = int(self.old.get(name) or 0) + len(uids)
            if total:
                body[name] = total
        if verdict is None or body.get("active") or body["terminating"]:
            return body
        if verdict["type"] == "FailureTarget":
            self._set("Failed", "True", verdict["reason"], verdict["message"])
        else:
            self._set("Complete", "True", verdict["reason"], verdict["message"])
            body["completionTime"] = self.stamp
            self.notices.append(Notice("Normal", "Completed", "Job completed"))
        body["conditions"] = self.conditions
        return body


def pod_finished_at(pod: JsonObject) -> datetime | None:
    """When the last container of a pod ended."""
    ends = [
        objects.parse_time(((entry.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for entry in objects.status(pod).get("containerStatuses") or []
    ]
    return max((end for end in ends if end is not None), default=None)


def _same(one: JsonObject, other: JsonObject) -> bool:
    return _without_zero(one) == _without_zero(other)


def _without_zero(body: JsonObject) -> JsonObject:
    """Counters of zero and absent ones mean the same; `ready: 0` is written by some versions and not by others."""
    return {name: value for name, value in body.items() if value != 0 and value is not None}
