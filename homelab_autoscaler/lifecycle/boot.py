"""The boot of a machine: the write order from a pending claim to a released startup Job, and what follows the Job.

Every step can be the last one of a process: names are deterministic, so a repeat finds what the first try wrote, and
`begin` run again from any point does the rest. The power-on is asked for once, by the release.
Source: model section 6 (Boot, Ready), section 3 (row 4).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.meta import format_duration
from homelab_api.v2alpha1 import Call, ClaimPhase, NodeClaim, PowerState, Reason
from homelab_autoscaler.claim.deadlines import in_boot_window
from homelab_autoscaler.claim.debt import job_type, owned_by
from homelab_autoscaler.lifecycle import events
from homelab_autoscaler.lifecycle.gate import GateStart
from homelab_autoscaler.lifecycle.job_spec import build_job, startup_job_name
from homelab_autoscaler.lifecycle.jobs import ForeignJobError
from homelab_autoscaler.lifecycle.lock import LockKind, LockRefusedError
from homelab_autoscaler.lifecycle.machine import Event, NodeMachine
from homelab_autoscaler.lifecycle.node_marks import is_control_plane
from homelab_autoscaler.lifecycle.pulse import Pulse
from homelab_autoscaler.lifecycle.scope import ended_at
from homelab_autoscaler.phase import MachineState, Operation, state
from homelab_autoscaler.runtime import MergePatch, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from homelab_api.core import Job
    from homelab_autoscaler.claim.recorder import ClaimRecorder
    from homelab_autoscaler.lifecycle.gate import ReadinessGate
    from homelab_autoscaler.lifecycle.job_spec import JobOptions
    from homelab_autoscaler.lifecycle.jobs import Jobs
    from homelab_autoscaler.lifecycle.lock import Locks
    from homelab_autoscaler.lifecycle.node_marks import NodeMarks
    from homelab_autoscaler.lifecycle.pulse import KubeletPulse
    from homelab_autoscaler.lifecycle.release import Releaser
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.runtime import Client, EventRecorder
    from homelab_autoscaler.settings import Settings


class Boot:
    """Starts machines, and follows their startup Jobs to the readiness gate."""

    def __init__(
        self,
        *,
        client: Client,
        claims: ClaimRecorder,
        locks: Locks,
        jobs: Jobs,
        releaser: Releaser,
        marks: NodeMarks,
        pulse: KubeletPulse,
        gate: ReadinessGate,
        recorder: EventRecorder,
        settings: Settings,
        options: JobOptions,
        pool_nodes: Callable[[], Sequence[str]],
    ) -> None:
        self._client = client
        self._claims = claims
        self._locks = locks
        self._jobs = jobs
        self._releaser = releaser
        self._marks = marks
        self._pulse = pulse
        self._gate = gate
        self._events = recorder
        self._settings = settings
        self._options = options
        self._pool_nodes = pool_nodes

    def begin(self, scope: SlotScope, claim: NodeClaim, adopting: Job | None = None) -> datetime | None:
        """Fire StartNode for the claim, or finish the StartNode that an earlier try began.

        Args:
            scope: of the pass.
            claim: the owner, pending; or booting with `adopting`.
            adopting: the suspended startup Job that an earlier try left.

        Returns:
            When to try again, None when the boot is under way or was withdrawn.

        Raises:
            LockRefusedError: another operation owns the slot; nothing was written.
            ConflictError: an object changed under a write; the next pass decides anew.
        """
        value = scope.law_input(releasing=adopting.uid if adopting else "")
        wait: datetime | None = None

        def work() -> None:
            nonlocal wait
            wait = self._commit(scope, claim)

        NodeMachine(state(value)).fire(Event.START_NODE, work)
        return wait

    def _commit(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        try:
            present = self._client.get(NodeClaim, claim.name, claim.namespace)
        except NotFoundError:
            return None
        if present.uid != claim.uid or not present.wants_machine or present.phase is ClaimPhase.READY:
            return None
        self._locks.acquire(scope.slot, LockKind.SCALE_UP)
        present = self._finalize(present)
        self._clear_stale_node(scope)
        name = startup_job_name(claim.name, claim.uid)
        body = build_job(
            name,
            names.JOB_TYPE_STARTUP,
            scope.slot,
            present,
            scope.slot.spec.startup_pod_spec,
            self._options,
            self._pool_nodes(),
        )
        try:
            job = self._jobs.ensure(body, claim.uid)
        except ForeignJobError as error:
            self._events.event(scope.slot, "Warning", events.JOB_NAME_TAKEN, str(error))
            self._locks.release(scope.slot)
            return scope.now + timedelta(seconds=self._settings.finalizer_poll)
        if present.phase is ClaimPhase.PENDING:
            present = self._claims.move(
                present,
                ClaimPhase.BOOTING,
                Reason.STARTUP_JOB_CREATED,
                jobName=name,
                nodeName=scope.slot.spec.kubernetes_node_name,
            )
        if job.suspended and not self._released(scope, job, claim.uid):
            return None
        self._claims.committed(present, _asked(name, scope.slot.name), power_requested=True)
        return None

    def _released(self, scope: SlotScope, job: Job, claim_uid: str) -> bool:
        verdict = self._releaser.release(scope, job, Operation.START_NODE, claim_uid)
        if not verdict.released:
            self._events.event(
                scope.slot, "Normal", events.SCALE_UP_DEFERRED, f"Job {job.name} was not released: {verdict.because}"
            )
            if verdict.withdrawn:
                self._locks.release(scope.slot)
        return verdict.released

    def _finalize(self, claim: NodeClaim) -> NodeClaim:
        """From here on a delete of the claim is a request to switch the machine off, not the end of the object."""
        if claim.committed:
            return claim
        finalizers = [*claim.metadata.finalizers, names.FINALIZER_MACHINE]
        metadata = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version, "finalizers": finalizers}
        return self._client.patch(NodeClaim, claim.name, claim.namespace, MergePatch({"metadata": metadata}))

    def _clear_stale_node(self, scope: SlotScope) -> None:
        """Delete the node object of an earlier boot: reused, it comes back old, tainted and cordoned.

        Only while the kubelet behind it is silent: one that lives would not register again.
        """
        node, group = scope.node, scope.group
        if node is None or group is None or not group.spec.delete_node_objects or is_control_plane(node):
            return
        if scope.power is PowerState.OFF and self._pulse.read(node) is Pulse.SILENT:
            self._marks.delete(node)
            self._events.event(
                scope.slot, "Normal", events.STALE_NODE_DELETED, f"node {node.name} of an earlier boot was deleted"
            )

    def follow(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """One step of the monitor: from the released Job to the gate's answer.

        Returns:
            When to look again at the latest; None when this boot needs no monitor any more.
        """
        group = scope.group
        if group is None:
            return scope.now + timedelta(seconds=self._settings.monitor_poll)
        job = next((job for job in scope.jobs if owned_by(job, claim.uid) and _is_startup(job)), None)
        if job is not None and not job.suspended and claim.status.power_requested_at is None:
            claim = self._claims.committed(claim, _asked(job.name, scope.slot.name), power_requested=True)
        if job is not None and not job.finished:
            return self._await_job(scope, claim, job)
        if job is not None and job.failed:
            failure = job.condition("Failed")
            timeout = failure is not None and failure.reason == "DeadlineExceeded"
            self._fail(scope, claim, job, failure.message if failure else "", timed_out=timeout)
            return None
        if claim.phase is ClaimPhase.PENDING:
            return self._take_up_running(scope, claim)
        start = ended_at(job) if job else claim.status.started_at
        return self._gate.step(scope, claim, group, GateStart(start or scope.now, job is not None))

    def _await_job(self, scope: SlotScope, claim: NodeClaim, job: Job) -> datetime | None:
        self._locks.renew(scope.slot, LockKind.SCALE_UP)
        target = job.condition("FailureTarget")
        if target is not None and target.last_transition_time is not None:
            judged = target.last_transition_time + timedelta(seconds=self._settings.job_failure_target_grace)
            if scope.now >= judged:
                self._jobs.delete(job)
                self._fail(scope, claim, job, target.message, timed_out=target.reason == "DeadlineExceeded")
                return None
            return judged
        since = (None if job.suspended else job.status.start_time) or job.metadata.creation_timestamp or scope.now
        limit = timedelta(seconds=self._settings.job_timeout_of(scope.slot.spec.startup_pod_spec.timeout_seconds))
        # The Job controller ends an overdue Job itself; the poll on top is for one that does not.
        until = since + limit + timedelta(seconds=self._settings.monitor_poll)
        if scope.now >= until:
            self._jobs.delete(job)
            self._fail(scope, claim, job, f"it did not finish within {format_duration(limit)}", timed_out=True)
            return None
        return until

    def _fail(self, scope: SlotScope, claim: NodeClaim, job: Job, why: str, *, timed_out: bool) -> None:
        reason = Reason.STARTUP_JOB_TIMEOUT if timed_out else Reason.STARTUP_JOB_FAILED

        def work() -> None:
            present = self._client.get(NodeClaim, claim.name, claim.namespace)
            if present.uid == claim.uid and in_boot_window(present):
                self._claims.fail(present, reason, f"Job {job.name}: {why}" if why else f"Job {job.name} failed")

        event = Event.JOB_TIMEOUT if timed_out else Event.JOB_FAILED
        NodeMachine(MachineState.STARTINGUP).fire(event, work)
        self._locks.release(scope.slot)

    def _take_up_running(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """Row 4: the machine is on before anybody asked for it. Commit to it, then let the gate judge it.

        A lock window has to pass first, since a power-off may be under way that nobody sees any more.
        """
        if scope.power is not PowerState.ON:
            return None
        if claim.committed and claim.status.started_at is not None:
            group = scope.group
            assert group is not None
            return self._gate.step(scope, claim, group, GateStart(claim.status.started_at, judge_registration=False))
        if scope.unfinished() or self._jobs.stop_strays(scope.slot):
            return scope.now + timedelta(seconds=self._settings.monitor_poll)
        if claim.spec.call is not Call.ADOPT:
            ends = [end for job in scope.jobs if (end := ended_at(job))]
            created = claim.metadata.creation_timestamp or scope.now
            until = max([created, *ends]) + timedelta(seconds=self._settings.lock_timeout)
            if scope.now < until:
                return until
        try:
            self._locks.acquire(scope.slot, LockKind.SCALE_UP)
        except LockRefusedError as refusal:
            self._events.event(scope.slot, "Normal", events.SCALE_UP_DEFERRED, str(refusal))
            raise
        present = self._client.get(NodeClaim, claim.name, claim.namespace)
        if present.uid == claim.uid and present.wants_machine:
            text = f"machine {scope.slot.name} was on already"
            self._claims.committed(self._finalize(present), text, power_requested=False)
        return scope.now


def _asked(job_name: str, slot_name: str) -> str:
    return f"Job {job_name} asked machine {slot_name} to start"


def _is_startup(job: Job) -> bool:
    return job_type(job) == names.JOB_TYPE_STARTUP
