"""The slot controller: asks the law what a slot's machine needs, and starts it.

One pass: read the scope → settle what an earlier process left suspended → ask the law → fire the operation, or make
sure that a running one is followed → record the report. It never waits: whatever takes time is a requeue, or a step of
the operation controller. Source: state management, "The node state machine"; model sections 3 and 6.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api import names
from homelab_api.v2alpha1 import Call, ClaimPhase, Node, NodeClaim, NodeReclaim, PowerState, Reason, SlotCondition
from homelab_autoscaler.claim.create import Request as ClaimRequest
from homelab_autoscaler.claim.create import SlotUnavailableError
from homelab_autoscaler.claim.deadlines import overdue, stuck_after
from homelab_autoscaler.claim.debt import job_type, owned_by
from homelab_autoscaler.controllers import slot_checks
from homelab_autoscaler.lifecycle import events
from homelab_autoscaler.lifecycle.ledger import ShutdownLedger
from homelab_autoscaler.lifecycle.lock import LockKind, LockRefusedError, read_lock
from homelab_autoscaler.lifecycle.machine import Event, NodeMachine
from homelab_autoscaler.lifecycle.monitor import needed
from homelab_autoscaler.lifecycle.node_marks import undrain_patch
from homelab_autoscaler.lifecycle.pool import held_until, pool_claims, suspicion
from homelab_autoscaler.lifecycle.pulse import Pulse
from homelab_autoscaler.lifecycle.scope import INDEX_GROUP, INDEX_NODE_NAME
from homelab_autoscaler.phase import MachineState, Operation, fires, next_expiry, row
from homelab_autoscaler.runtime import ConflictError, MergePatch, NotFoundError, Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import Condition
    from homelab_autoscaler.claim.create import ClaimFactory
    from homelab_autoscaler.claim.recorder import ClaimRecorder
    from homelab_autoscaler.controllers.operation import OperationReconciler
    from homelab_autoscaler.lifecycle.boot import Boot
    from homelab_autoscaler.lifecycle.jobs import Jobs
    from homelab_autoscaler.lifecycle.lock import Locks
    from homelab_autoscaler.lifecycle.node_marks import NodeMarks
    from homelab_autoscaler.lifecycle.report import Reporter
    from homelab_autoscaler.lifecycle.scope import CachedScopes, SlotScope
    from homelab_autoscaler.lifecycle.shutdown import Shutdown
    from homelab_autoscaler.pod_policy import PodPolicy
    from homelab_autoscaler.runtime import Client, Clock, EventRecorder, Lister, Request
    from homelab_autoscaler.settings import Settings

log = structlog.get_logger(__name__)

_OWN_CONDITIONS: Final = (
    SlotCondition.UNKNOWN_GROUP,
    SlotCondition.INVALID_SLOT,
    SlotCondition.EXHAUSTED,
    SlotCondition.POWER_FLAPPING,
    SlotCondition.NEEDS_HUMAN,
    SlotCondition.PROTECTED,
    SlotCondition.KUBELET_ALIVE,
    SlotCondition.DRAIN_BLOCKED,
)
"""Conditions that this controller sets while they hold and drops when they do not."""


class _Pass:
    """What one pass has to say and to wait for."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.conditions: list[Condition] = []
        self.wake_at: list[datetime] = []

    def again(self, at: datetime | None) -> None:
        """Ask for a pass at an instant."""
        if at is not None:
            self.wake_at.append(at)

    def result(self, idle: float) -> Result:
        """The soonest wish, or the idle resync."""
        waits = [(at - self.now).total_seconds() for at in self.wake_at]
        return Result(requeue_after=max(0.01, min([idle, *waits])))


class SlotReconciler:
    """Reconciles `Node` (slots)."""

    def __init__(
        self,
        *,
        client: Client,
        clock: Clock,
        settings: Settings,
        recorder: EventRecorder,
        scopes: CachedScopes,
        slots: Lister[Node],
        claims: Lister[NodeClaim],
        claim_recorder: ClaimRecorder,
        factory: ClaimFactory,
        locks: Locks,
        jobs: Jobs,
        marks: NodeMarks,
        policy: PodPolicy,
        boot: Boot,
        shutdown: Shutdown,
        operations: OperationReconciler,
        reporter: Reporter,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._events = recorder
        self._scopes = scopes
        self._slots = slots
        self._claims = claims
        self._claim_recorder = claim_recorder
        self._factory = factory
        self._locks = locks
        self._jobs = jobs
        self._marks = marks
        self._policy = policy
        self._boot = boot
        self._shutdown = shutdown
        self._operations = operations
        self._reporter = reporter
        self._started_at = clock.now()

    def reconcile(self, request: Request) -> Result:
        """One pass over a slot; see the module."""
        read_at = self._clock.monotonic()
        scope = self._scopes.read(request.namespace, request.name)
        if scope is None:
            return Result()
        if names.FINALIZER_SLOT not in scope.slot.metadata.finalizers and not scope.slot.marked:
            self._finalize(scope.slot)
            return Result()
        namesakes = self._slots.by_index(INDEX_NODE_NAME, scope.slot.spec.kubernetes_node_name)
        if scope.slot.marked and self._leave(scope, namesakes):
            return Result()
        this = _Pass(scope.now)
        fault = slot_checks.problem(scope, namesakes, self._policy)
        if fault is not None:
            self._say_fault(scope, fault)
            this.conditions.append(fault)
        elif scope.reclaim is None and not scope.extra_claims:
            self._operate(scope, this, read_at)
        self._report(scope, this)
        self._consume_abandon(scope)
        return this.result(self._settings.idle_resync)

    # --- the law ------------------------------------------------------------------------------------------------

    def _operate(self, scope: SlotScope, this: _Pass, read_at: float) -> None:
        try:
            if self._settle_suspended(scope, this) or self._end_reversed_boots(scope, this):
                return
            match fires(scope.law_input()):
                case Operation.START_NODE:
                    self._start(scope, this)
                case Operation.SHUTDOWN_NODE:
                    self._stop(scope, this, read_at)
                case None:
                    self._tend(scope, this)
        except LockRefusedError as refusal:
            wants = scope.owner is not None and scope.owner.wants_machine
            reason = events.SCALE_UP_DEFERRED if wants else events.SCALE_DOWN_DEFERRED
            self._events.event(scope.slot, "Normal", reason, str(refusal))
            this.again(refusal.until)
            if needed(scope):
                self._operations.ensure(*scope.key)

    def _settle_suspended(self, scope: SlotScope, this: _Pass) -> bool:
        """Take up the suspended Jobs that an earlier try left: release or delete each after the second read."""
        suspended = [
            job
            for job in scope.unfinished(names.JOB_TYPE_STARTUP, names.JOB_TYPE_SHUTDOWN)
            if job.suspended and not job.marked
        ]
        owner = scope.owner
        for job in suspended:
            ours = owner is not None and owned_by(job, owner.uid)
            asked = fires(scope.law_input(releasing=job.uid))
            if job_type(job) == names.JOB_TYPE_STARTUP:
                if owner is not None and ours and asked is Operation.START_NODE:
                    this.again(self._boot.begin(scope, owner, job))
                    continue
            elif asked is Operation.SHUTDOWN_NODE and (ours or (owner is None and owned_by(job, scope.slot.uid))):
                this.again(self._shutdown.resume(scope, job).again_at)
                continue
            log.info("suspended Job withdrawn", slot=scope.slot.name, job=job.name)
            self._jobs.delete(job)
        if suspended:
            this.again(scope.now + timedelta(seconds=self._settings.drain_pass))
        return bool(suspended)

    def _end_reversed_boots(self, scope: SlotScope, this: _Pass) -> bool:
        """A released startup Job whose claim wants the machine no more is ended before anything else happens."""
        owner = scope.owner
        wanting = owner.uid if owner is not None and owner.wants_machine else ""
        reversed_boots = [job for job in scope.unfinished(names.JOB_TYPE_STARTUP) if not owned_by(job, wanting)]
        for job in reversed_boots:
            log.info("reversed boot: startup Job ended", slot=scope.slot.name, job=job.name)
            self._jobs.delete(job)
        if reversed_boots:
            this.again(scope.now + timedelta(seconds=self._settings.drain_pass))
        return bool(reversed_boots)

    def _start(self, scope: SlotScope, this: _Pass) -> None:
        owner = scope.owner
        assert owner is not None
        # Before its number is seeded, and past bound or deadline, the claim's controller has the next word.
        seeded = 0 < owner.status.attempt <= self._settings.max_attempts
        if not seeded or overdue(owner, scope.now):
            return
        if self._jobs.stop_strays(scope.slot):
            this.again(scope.now + timedelta(seconds=self._settings.drain_pass))
            return
        this.again(self._boot.begin(scope, owner))
        self._operations.ensure(*scope.key)

    def _stop(self, scope: SlotScope, this: _Pass, read_at: float) -> None:
        if scope.owner is None and self._wait_before_first_stop(scope, this, read_at):
            return
        held = self._mass_failure(scope) or scope.returned_until
        if held is not None:
            this.again(held)
            return
        step = self._shutdown.step(scope)
        this.again(step.again_at)
        this.conditions.extend(step.conditions)
        if step.again_at is None:
            self._operations.ensure(*scope.key)

    def _tend(self, scope: SlotScope, this: _Pass) -> None:
        """Nothing fires: call off what is not wanted any more, keep running operations company, clean up after them."""
        lock = read_lock(scope.slot)
        ours = lock is not None and self._locks.ours_to_take(lock)
        if ours and lock is not None and lock.kind == LockKind.SCALE_DOWN and self._drains_in_vain(scope):
            self._shutdown.abort(scope)
            self._locks.clear_stale(scope.slot)
            lock = None
        if needed(scope):
            self._force_cleanup(scope, this)
            self._operations.ensure(*scope.key)
            return
        this.again(scope.settle_until())
        if lock is not None and scope.settle_until() is None and not self._locks.clear_stale(scope.slot):
            this.again(lock.expires_at)
        self._rest(scope, this)

    def _drains_in_vain(self, scope: SlotScope) -> bool:
        """Whether a claim wants the machine that a shutdown without a Job holds cordoned.

        With a Job, or shortly after one, the machine may be going off: then its claim waits for that.
        """
        wanted = scope.owner is not None and scope.owner.wants_machine
        return wanted and scope.settle_until() is None and not scope.unfinished(names.JOB_TYPE_SHUTDOWN)

    def _rest(self, scope: SlotScope, this: _Pass) -> None:
        """A machine that is off and unwanted: its node object goes, and row 2's attempts start anew.

        The node object of a machine that merely fell silent stays until its next boot. A kubelet that was cut off, or
        hung, would not register a second time: its machine would run on, and nobody would ever see it again.
        """
        value = scope.law_input()
        if scope.power is PowerState.ON or row(value).number not in {1, 12}:
            return
        if scope.pulse in {Pulse.UNKNOWN, Pulse.ALIVE} and scope.node is not None:
            this.again(scope.now + timedelta(seconds=self._settings.lease_silence))
        if value.off_confirmed and scope.owner is None and scope.proven_off:
            self._marks.forget(scope.node, scope.group)
        ledger = ShutdownLedger.read(scope.slot)
        if ledger.attempts:
            annotations = {names.ANNOTATION_SHUTDOWN_LEDGER: ledger.rested().text()}
            self._patch_metadata(scope.slot, {"annotations": annotations})

    # --- waits --------------------------------------------------------------------------------------------------

    def _wait_before_first_stop(self, scope: SlotScope, this: _Pass, read_at: float) -> bool:
        """A machine that is on and whose slot was never used: adopt it, or give its people a minute."""
        slot, group = scope.slot, scope.group
        if slot.status.last_claim is not None or slot.status.activations_total or scope.claims or slot.marked:
            return False
        assert group is not None
        if group.spec.adopt_running_machines:
            try:
                claim = self._factory.create(slot, ClaimRequest(call=Call.ADOPT), read_at=read_at)
                log.info("running machine adopted", slot=slot.name, claim=claim.name)
            except SlotUnavailableError as refusal:
                log.info("running machine not adopted", slot=slot.name, because=str(refusal))
            this.again(scope.now + timedelta(seconds=self._settings.drain_pass))
            return True
        born = [self._started_at, slot.metadata.creation_timestamp, group.metadata.creation_timestamp]
        until = max(at for at in born if at) + timedelta(seconds=self._settings.never_used_wait)
        if scope.now >= until:
            return False
        this.again(until)
        return True

    def _mass_failure(self, scope: SlotScope) -> datetime | None:
        """Rows 2 and 11 wait while much of the pool went off at once; a marked claim is a wish and does not wait."""
        if scope.owner is not None and scope.owner.live:
            return None
        slots = self._slots.by_index(INDEX_GROUP, f"{scope.slot.namespace}/{scope.slot.group}")
        claims = pool_claims(slots, self._claims)
        return held_until(suspicion(claims, self._settings), 0, scope.now, self._settings)

    def _force_cleanup(self, scope: SlotScope, this: _Pass) -> None:
        """An operation without a deadline of its own must not last for ever."""
        owner = scope.owner
        if owner is None or owner.phase is not ClaimPhase.BOOTING or owner.status.started_at is None or owner.marked:
            return
        until = owner.status.started_at + stuck_after(owner, scope.slot, self._settings)
        if scope.now < until:
            this.again(until)
            return

        def work() -> None:
            self._claim_recorder.fail(owner, Reason.STUCK_TRANSITION, "the boot came to no end")

        NodeMachine(MachineState.STARTINGUP).fire(Event.FORCE_CLEANUP, work)
        self._locks.clear_stale(scope.slot)

    # --- the slot object ----------------------------------------------------------------------------------------

    def _finalize(self, slot: Node) -> None:
        self._patch_metadata(slot, {"finalizers": [*slot.metadata.finalizers, names.FINALIZER_SLOT]})

    def _leave(self, scope: SlotScope, namesakes: Iterable[Node]) -> bool:
        """Let a deleted slot go once nothing of ours depends on it; True if it went.

        A machine that belongs to another slot is that one's to switch off, and holds nobody here.
        """
        slot = scope.slot
        if names.FINALIZER_SLOT not in slot.metadata.finalizers:
            return True
        if slot_checks.abandoned(slot):
            self._let_go(slot)
            return True
        if scope.reclaim is not None:
            return self._leave_to_owner(scope)
        value = scope.law_input()
        if any(claim.live or claim.committed for claim in scope.claims) or scope.unfinished():
            return False
        runs = value.counts_as_on or (scope.node is not None and not value.off_confirmed)
        if runs and slot_checks.rightful(slot, namesakes) is None:
            return False
        self._let_go(slot)
        return True

    def _let_go(self, slot: Node) -> None:
        kept = [entry for entry in slot.metadata.finalizers if entry != names.FINALIZER_SLOT]
        self._patch_metadata(slot, {"finalizers": kept})

    def _leave_to_owner(self, scope: SlotScope) -> bool:
        """The owner keeps the machine: no Job, our marks go, the slot goes, and with it the veto.

        The veto is the last to go: without it, a slot that is still there would be asked by row 2 to switch its
        owner's machine off. A crash before the last write leaves a NodeReclaim without a slot, which holds nothing.
        """
        for job in scope.unfinished():
            self._jobs.delete(job)
        if scope.node is not None:
            self._marks.apply(scope.node, undrain_patch(scope.node))
        if scope.unfinished() or any(claim.live or claim.committed for claim in scope.claims):
            return False
        try:
            reclaim = self._client.get(NodeReclaim, scope.slot.name, scope.slot.namespace)
        except NotFoundError:
            return False  # Given back meanwhile: the next pass sees that.
        self._let_go(scope.slot)
        if not reclaim.marked:
            try:
                self._client.delete(NodeReclaim, reclaim.name, reclaim.namespace, uid=reclaim.uid)
            except (NotFoundError, ConflictError):
                return True
        return True

    def _consume_abandon(self, scope: SlotScope) -> None:
        """A slot that was given up is so once: what its owner said must not end the next claim's machine, too.

        The annotation goes when nothing waits for it any more: no claim that is being reversed, no doubt about power.
        """
        slot = scope.slot
        if slot.marked or not slot_checks.abandoned(slot) or slot_checks.in_doubt(slot):
            return
        if any((claim.live and claim.marked) or (not claim.live and claim.committed) for claim in scope.claims):
            return
        self._patch_metadata(slot, {"annotations": {names.ANNOTATION_ABANDON: None}})

    def _patch_metadata(self, slot: Node, metadata: dict[str, object]) -> None:
        body = {"metadata": {**metadata, "resourceVersion": slot.metadata.resource_version}}
        self._client.patch(Node, slot.name, slot.namespace, MergePatch(body))

    # --- the report ---------------------------------------------------------------------------------------------

    def _say_fault(self, scope: SlotScope, fault: Condition) -> None:
        known = next((entry for entry in scope.slot.status.conditions if entry.type == fault.type), None)
        if known is None or known.message != fault.message:
            self._events.event(scope.slot, "Warning", fault.type, fault.message)

    def _report(self, scope: SlotScope, this: _Pass) -> None:
        changes = [*this.conditions, slot_checks.autoscaler_marker(scope)]
        spent = slot_checks.exhaustion(scope, self._settings)
        if spent is not None:
            changes.append(spent)
        alive = slot_checks.kubelet_alive(scope)
        if alive is not None:
            changes.append(alive)
        known = slot_checks.power_known(scope)
        if known is not None:
            changes.append(known)
        said = {entry.type for entry in changes}
        soon = scope.now + timedelta(seconds=self._settings.drain_pass)
        if not self._reporter.pass_over(scope, changes, [kind for kind in _OWN_CONDITIONS if kind not in said]):
            this.again(soon)
        expiry = next_expiry(scope.slot.status, self._settings)
        if expiry is not None:
            this.again(max(expiry, soon))
