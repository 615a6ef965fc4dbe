"""The shutdown of a machine that nobody wants: the write order from the lock to a released shutdown Job.

`step` is called by every pass over the slot while the law asks for a shutdown, and does what can be done now. What it
has done stands on objects (lock, sequence number, taint, counter, Job), so any pass of any process goes on from there.
A shutdown Job that succeeded is not a machine that is off: the observation decides that.
Source: model sections 4 (attempts) and 6 (Shutdown); state management, "A shutdown Job that succeeded …".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.conditions import condition
from homelab_api.meta import format_duration, format_time
from homelab_api.v2alpha1 import ClaimCondition, PowerState, SlotCondition
from homelab_autoscaler.claim.debt import job_type, owned_by
from homelab_autoscaler.lifecycle import annotated, events
from homelab_autoscaler.lifecycle.job_spec import build_job, shutdown_job_name
from homelab_autoscaler.lifecycle.jobs import ForeignJobError
from homelab_autoscaler.lifecycle.ledger import ShutdownLedger, next_attempt
from homelab_autoscaler.lifecycle.lock import LockKind, read_lock
from homelab_autoscaler.lifecycle.machine import Event, NodeMachine
from homelab_autoscaler.lifecycle.node_marks import drain_patch, drain_started_at, is_control_plane, undrain_patch
from homelab_autoscaler.phase import MachineState, Operation, state
from homelab_autoscaler.runtime import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from homelab_api.core import Job
    from homelab_api.meta import Condition
    from homelab_api.v2alpha1 import Drain, Node, NodeClaim
    from homelab_autoscaler.claim.recorder import ClaimRecorder
    from homelab_autoscaler.lifecycle.drain import Drainer, DrainProgress
    from homelab_autoscaler.lifecycle.job_spec import JobOptions
    from homelab_autoscaler.lifecycle.jobs import Jobs
    from homelab_autoscaler.lifecycle.lock import Locks
    from homelab_autoscaler.lifecycle.node_marks import NodeMarks
    from homelab_autoscaler.lifecycle.release import Releaser
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.runtime import EventRecorder
    from homelab_autoscaler.settings import Settings

_NAMED_PODS: Final = 3
"""How many pods a message names."""
_TERMINATING: Final = "NamespaceTerminating"
"""Kubernetes' word for why nothing can be created, and ours for why a delete is parked."""


@dataclass(frozen=True, slots=True)
class ShutdownStep:
    """What a step came to.

    Attributes:
        again_at: when the next step is due; None when only an event can bring the shutdown further.
        conditions: of the slot: why a shutdown that is asked for does not run.
    """

    again_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Shutdown:
    """Drains machines and switches them off."""

    def __init__(
        self,
        *,
        claims: ClaimRecorder,
        locks: Locks,
        jobs: Jobs,
        releaser: Releaser,
        marks: NodeMarks,
        drainer: Drainer,
        recorder: EventRecorder,
        settings: Settings,
        options: JobOptions,
        pool_nodes: Callable[[], Sequence[str]],
        own_node: str = "",
    ) -> None:
        self._claims = claims
        self._locks = locks
        self._jobs = jobs
        self._releaser = releaser
        self._marks = marks
        self._drainer = drainer
        self._events = recorder
        self._settings = settings
        self._options = options
        self._pool_nodes = pool_nodes
        self._own_node = own_node

    def step(self, scope: SlotScope) -> ShutdownStep:
        """Bring the shutdown that the law asks for as far as it goes now.

        Raises:
            LockRefusedError: another operation owns the slot; nothing was written.
            ConflictError: an object changed under a write; the next pass decides anew.
        """
        refused = self._refusal(scope)
        if refused is not None:
            return refused
        if self._jobs.stop_strays(scope.slot):
            return ShutdownStep(self._soon(scope))
        if self._begins_in_vain(scope):
            return ShutdownStep(self._soon(scope))
        sequence, attempt = self._take_lock(scope)
        waiting = self._drain(scope)
        if waiting is not None:
            return waiting
        outcome = ShutdownStep()

        def work() -> None:
            nonlocal outcome
            outcome = self._command(scope, sequence, attempt)

        NodeMachine(state(scope.law_input())).fire(Event.SHUTDOWN_NODE, work)
        return outcome

    def resume(self, scope: SlotScope, job: Job) -> ShutdownStep:
        """Finish the shutdown whose suspended Job an earlier try left: second read, then release or delete."""
        self._locks.acquire(scope.slot, LockKind.SCALE_DOWN)
        return self._release(scope, job)

    def abort(self, scope: SlotScope) -> None:
        """The machine is wanted again before its Job existed: take back cordon, taint and lock."""
        if scope.node is not None:
            self._marks.apply(scope.node, undrain_patch(scope.node))
        self._locks.release(scope.slot)
        self._events.event(scope.slot, "Normal", events.SHUTDOWN_ABORTED, f"machine {scope.slot.name} is wanted again")

    def follow(self, scope: SlotScope) -> datetime | None:
        """One step of the monitor: watch the slot's shutdown Job to its end and give the lock back.

        Returns:
            When to look again at the latest; None when there is no shutdown to follow.
        """
        jobs = [job for job in scope.jobs if job_type(job) == names.JOB_TYPE_SHUTDOWN and not job.suspended]
        if not jobs:
            return None
        job = max(jobs, key=lambda entry: (entry.metadata.creation_timestamp or scope.now, entry.name))
        if not job.finished:
            return self._await_job(scope, job)
        lock = read_lock(scope.slot)
        if lock is not None and lock.kind == LockKind.SCALE_DOWN and self._locks.ours_to_take(lock):
            self._ended(scope, job)
        return None

    # --- may it run? --------------------------------------------------------------------------------------------

    def _refusal(self, scope: SlotScope) -> ShutdownStep | None:
        protected = self._protected(scope)
        if protected:
            self._events.event(scope.slot, "Warning", events.NODE_PROTECTED, protected)
            if scope.owner is not None:
                self._claims.conditions(
                    scope.owner, condition(ClaimCondition.PROTECTED, True, "NodeProtected", protected)
                )
            return ShutdownStep(conditions=(condition(SlotCondition.PROTECTED, True, "NodeProtected", protected),))
        ledger = ShutdownLedger.read(scope.slot)
        if self._reusable(scope, ledger):
            return None
        until = ledger.flapping_until(scope.now, self._settings)
        if until is not None:
            window = format_duration(timedelta(seconds=self._settings.flapping_window))
            text = f"{len(ledger.releases)} shutdowns within {window}: pausing until {format_time(until)}"
            self._events.event(scope.slot, "Warning", events.POWER_FLAPPING, text)
            flapping = condition(SlotCondition.POWER_FLAPPING, True, events.POWER_FLAPPING, text)
            return ShutdownStep(until, (flapping,))
        attempt = self._next_attempt(scope, ledger)
        return self._spent(scope, attempt) if isinstance(attempt, datetime) else None

    def _protected(self, scope: SlotScope) -> str:
        node = scope.node
        if node is None or scope.slot.spec.allow_control_plane:
            return ""
        if is_control_plane(node):
            return f"node {node.name} has a control-plane role: set spec.allowControlPlane to switch it off"
        if self._own_node and node.name == self._own_node:
            return f"node {node.name} runs this manager: move the manager, or set spec.allowControlPlane"
        return ""

    def _spent(self, scope: SlotScope, until: datetime) -> ShutdownStep:
        owner = scope.owner
        text = (
            f"{self._settings.max_attempts} shutdown Jobs did not switch machine {scope.slot.name} off: "
            f"pausing until {format_time(until)}; check the shutdown script, or switch it off by hand"
        )
        self._events.event(owner or scope.slot, "Warning", events.SHUTDOWN_ATTEMPT_LIMIT_REACHED, text)
        if owner is not None:
            self._claims.conditions(
                owner, condition(ClaimCondition.NEEDS_HUMAN, True, events.SHUTDOWN_ATTEMPT_LIMIT_REACHED, text)
            )
        human = condition(SlotCondition.NEEDS_HUMAN, True, events.SHUTDOWN_ATTEMPT_LIMIT_REACHED, text)
        return ShutdownStep(until, (human,))

    def _stranded(self, scope: SlotScope, owner: NodeClaim | None) -> ShutdownStep:
        """No Job can be created any more, so nobody but a person can switch the machine off, or give it up."""
        text = (
            f"namespace {scope.slot.namespace} is being deleted, so no Job can switch machine {scope.slot.name} off: "
            f"do it by hand, or annotate slot and claim with {names.ANNOTATION_ABANDON} and their uid"
        )
        human = ClaimCondition.NEEDS_HUMAN
        if owner is not None:
            self._claims.conditions(owner, condition(human, True, _TERMINATING, text))
        again = scope.now + timedelta(seconds=self._settings.finalizer_poll)
        return ShutdownStep(again, (condition(SlotCondition.NEEDS_HUMAN, True, _TERMINATING, text),))

    def _next_attempt(self, scope: SlotScope, ledger: ShutdownLedger) -> int | datetime:
        owner = scope.owner
        attempts = owner.status.shutdown_attempts if owner else ledger.attempts
        last = owner.status.last_shutdown_attempt_at if owner else ledger.last_attempt_at
        return next_attempt(attempts, last, scope.now, self._settings)

    # --- the write order ----------------------------------------------------------------------------------------

    def _take_lock(self, scope: SlotScope) -> tuple[int, int | None]:
        """Take the lock with the next sequence number, or go on with the one that is open.

        Returns:
            The sequence number, and the attempt to count; None when it was counted already.
        """
        slot, owner = scope.slot, scope.owner
        ledger = ShutdownLedger.read(slot)
        current = _sequence(slot)
        following = self._next_attempt(scope, ledger)
        attempt = 1 if isinstance(following, datetime) else following
        if self._reusable(scope, ledger):
            self._locks.acquire(slot, LockKind.SCALE_DOWN)
            counted = owner is None or owner.status.shutdown_job_name == shutdown_job_name(slot, current)
            return current, None if counted else attempt
        name = shutdown_job_name(slot, current + 1)
        window = timedelta(seconds=self._settings.flapping_window)
        ledger = ledger.opened(scope.now, window, name, owner.uid if owner else "")
        if owner is None:
            ledger = ledger.attempted(scope.now, attempt)
        self._locks.acquire(
            slot,
            LockKind.SCALE_DOWN,
            {names.ANNOTATION_SHUTDOWN_SEQ: str(current + 1), names.ANNOTATION_SHUTDOWN_LEDGER: ledger.text()},
        )
        return current + 1, None if owner is None else attempt

    def _reusable(self, scope: SlotScope, ledger: ShutdownLedger) -> bool:
        """Whether the present sequence number is open: locked for a shutdown of this asker whose Job was never seen.

        A Job that was counted and is missing for longer than a lock window has come and gone: it is not made again.
        """
        owner = scope.owner
        lock = read_lock(scope.slot)
        current = _sequence(scope.slot)
        if lock is None or lock.kind != LockKind.SCALE_DOWN or not current:
            return False
        name = shutdown_job_name(scope.slot, current)
        if (ledger.job_name, ledger.asker) != (name, owner.uid if owner else ""):
            return False
        if any(job.name == name for job in scope.jobs):
            return False
        if owner is not None and owner.status.shutdown_job_name != name:
            return True
        last = owner.status.last_shutdown_attempt_at if owner else ledger.last_attempt_at
        return last is not None and scope.now < last + timedelta(seconds=self._settings.lock_timeout)

    def _begins_in_vain(self, scope: SlotScope) -> bool:
        """Whether a drain that is about to begin is asked for by an old view only; then nothing is written."""
        node, owner = scope.node, scope.owner
        if node is None or scope.power is PowerState.OFF or drain_started_at(node) is not None:
            return False
        because = self._releaser.objection(scope, Operation.SHUTDOWN_NODE, owner.uid if owner else "")
        if because:
            text = f"the drain of node {node.name} did not begin: {because}"
            self._events.event(scope.slot, "Normal", events.SCALE_DOWN_DEFERRED, text)
        return bool(because)

    def _drain(self, scope: SlotScope) -> ShutdownStep | None:
        """Cordon, taint and drain a machine that is on; None when it may be switched off."""
        node, group = scope.node, scope.group
        if node is None or group is None or scope.power is PowerState.OFF:
            return None
        node = self._marks.apply(node, drain_patch(node, scope.now))
        progress = self._drainer.step(node, drain_started_at(node) or scope.now, group.spec.drain)
        if progress.forced:
            named = "; ".join(progress.waiting[:_NAMED_PODS])
            self._events.event(scope.slot, "Warning", events.DRAIN_FORCED, f"node {node.name}: {named}")
        if progress.done:
            return None
        return ShutdownStep(self._soon(scope), _blocked(progress, drain_started_at(node), group.spec.drain))

    def _command(self, scope: SlotScope, sequence: int, attempt: int | None) -> ShutdownStep:
        slot, owner = scope.slot, scope.owner
        name = shutdown_job_name(slot, sequence)
        if owner is not None and attempt is not None:
            owner = self._claims.count_shutdown(owner, attempt, name)
        body = build_job(
            name,
            names.JOB_TYPE_SHUTDOWN,
            slot,
            owner,
            slot.spec.shutdown_pod_spec,
            self._options,
            self._pool_nodes(),
        )
        try:
            job = self._jobs.ensure(body, (owner or slot).uid)
        except ForeignJobError as error:
            self._events.event(slot, "Warning", events.JOB_NAME_TAKEN, str(error))
            return ShutdownStep(scope.now + timedelta(seconds=self._settings.finalizer_poll))
        except ForbiddenError as error:
            if not any(reason == _TERMINATING for reason, _, _ in error.causes()):
                raise
            return self._stranded(scope, owner)
        return self._release(scope, job) if job.suspended else ShutdownStep()

    def _release(self, scope: SlotScope, job: Job) -> ShutdownStep:
        owner = scope.owner
        asker = owner.uid if owner is not None and owned_by(job, owner.uid) else ""
        verdict = self._releaser.release(scope, job, Operation.SHUTDOWN_NODE, asker)
        if not verdict.released:
            self._events.event(
                scope.slot, "Normal", events.SCALE_DOWN_DEFERRED, f"Job {job.name} was not released: {verdict.because}"
            )
            if verdict.withdrawn:
                self.abort(scope)
            return ShutdownStep(self._soon(scope))
        self._events.event(scope.slot, "Normal", events.SHUTDOWN_STARTED, f"Job {job.name} asked the machine to stop")
        return ShutdownStep()

    # --- the monitor's part -------------------------------------------------------------------------------------

    def _await_job(self, scope: SlotScope, job: Job) -> datetime | None:
        self._locks.renew(scope.slot, LockKind.SCALE_DOWN)
        limit = timedelta(seconds=self._settings.job_timeout_of(scope.slot.spec.shutdown_pod_spec.timeout_seconds))
        since = job.status.start_time or job.metadata.creation_timestamp or scope.now
        until = since + limit + timedelta(seconds=self._settings.monitor_poll)
        target = job.condition("FailureTarget")
        if target is not None and target.last_transition_time is not None:
            until = target.last_transition_time + timedelta(seconds=self._settings.job_failure_target_grace)
        if scope.now < until:
            return until
        self._jobs.delete(job)
        self._finish(scope, Event.JOB_TIMEOUT, f"Job {job.name} did not finish within {format_duration(limit)}")
        return None

    def _ended(self, scope: SlotScope, job: Job) -> None:
        if job.succeeded:
            self._finish(scope, Event.JOB_COMPLETED, "")
            return
        failure = job.condition("Failed")
        timed_out = failure is not None and failure.reason == "DeadlineExceeded"
        text = f"Job {job.name}: {failure.message}" if failure and failure.message else f"Job {job.name} failed"
        self._finish(scope, Event.JOB_TIMEOUT if timed_out else Event.JOB_FAILED, text)

    def _finish(self, scope: SlotScope, event: Event, text: str) -> None:
        NodeMachine(MachineState.SHUTTINGDOWN).fire(event, lambda: self._locks.release(scope.slot))
        if event is Event.JOB_FAILED:
            self._events.event(scope.slot, "Warning", events.SHUTDOWN_JOB_FAILED, text)
        elif event is Event.JOB_TIMEOUT:
            self._events.event(scope.slot, "Warning", events.SHUTDOWN_JOB_TIMEOUT, text)

    def _soon(self, scope: SlotScope) -> datetime:
        return scope.now + timedelta(seconds=self._settings.drain_pass)


def _blocked(progress: DrainProgress, since: datetime | None, limits: Drain) -> tuple[Condition, ...]:
    """What keeps a drain from ending, and what ends it: nobody should have to guess at a machine that only drains."""
    if not progress.waiting:
        return ()
    named = "; ".join(progress.waiting[:_NAMED_PODS])
    more = len(progress.waiting) - _NAMED_PODS
    rest = f" and {more} more" if more > 0 else ""
    then = "they are deleted" if limits.force else "the machine is switched off with them"
    end = f"at {format_time(since + limits.timeout)} {then}" if since else "they are waited for"
    return (condition(SlotCondition.DRAIN_BLOCKED, True, "PodsNotEvicted", f"{named}{rest}: {end}"),)


def _sequence(slot: Node) -> int:
    return annotated.count(slot.metadata.annotations.get(names.ANNOTATION_SHUTDOWN_SEQ)) or 0
