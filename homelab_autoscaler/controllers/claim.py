"""The claim controller: how a request ends, and what is kept of it.

One pass over a claim is a list of small steps, each of which decides from the present objects and either moves the
claim or lets the next step look. Power commands are not its business: a claim that ended is what makes the slot
controller switch the machine off. Source: state management, "Claim phases", "Deadlines and attempts", "A ready claim
whose machine is gone", "Collection"; model sections 4 and 6 (Claim end).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api import names
from homelab_api.conditions import condition
from homelab_api.meta import format_duration
from homelab_api.v2alpha1 import (
    ClaimCondition,
    ClaimPhase,
    Node,
    NodeClaim,
    NodeClaimSpec,
    PowerState,
    Reason,
    ReclaimPhase,
    SlotCondition,
)
from homelab_autoscaler.claim.attempts import digest, seed_attempt
from homelab_autoscaler.claim.deadlines import boot_window, in_boot_window, overdue
from homelab_autoscaler.claim.debt import owned_by
from homelab_autoscaler.claim.recorder import holds
from homelab_autoscaler.controllers import slot_checks
from homelab_autoscaler.lifecycle.pool import held_until, observed_off_since, pool_claims, suspicion
from homelab_autoscaler.lifecycle.pulse import Pulse
from homelab_autoscaler.lifecycle.scope import INDEX_GROUP, INDEX_NODE_NAME
from homelab_autoscaler.phase import may_release
from homelab_autoscaler.runtime import ConflictError, MergePatch, NotFoundError, Result

if TYPE_CHECKING:
    from homelab_autoscaler.claim.recorder import ClaimRecorder
    from homelab_autoscaler.controllers.slot_conditions import SlotConditions
    from homelab_autoscaler.lifecycle.node_marks import NodeMarks
    from homelab_autoscaler.lifecycle.scope import CachedScopes, SlotScope
    from homelab_autoscaler.pod_policy import PodPolicy
    from homelab_autoscaler.runtime import Client, Clock, Lister, Request
    from homelab_autoscaler.settings import Settings

log = structlog.get_logger(__name__)


class ClaimReconciler:
    """Reconciles `NodeClaim`."""

    def __init__(
        self,
        *,
        client: Client,
        clock: Clock,
        settings: Settings,
        scopes: CachedScopes,
        claims: Lister[NodeClaim],
        slots: Lister[Node],
        claim_recorder: ClaimRecorder,
        slot_conditions: SlotConditions,
        marks: NodeMarks,
        policy: PodPolicy,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._scopes = scopes
        self._claims = claims
        self._slots = slots
        self._recorder = claim_recorder
        self._slot_conditions = slot_conditions
        self._marks = marks
        self._policy = policy

    def reconcile(self, request: Request) -> Result:
        """One pass over a claim; see the module."""
        claim = self._claims.get(request.name, request.namespace)
        if claim is None:
            return Result()
        scope = self._scopes.read(claim.namespace, claim.slot_name)
        now = self._clock.now()
        if scope is None:
            again = self._without_slot(claim, now)
        elif claim.live:
            again = self._live(scope, claim)
        else:
            again = self._ended(scope, claim)
        if again is None:
            return Result(requeue_after=self._settings.idle_resync)
        return Result(requeue_after=max(0.01, (again - now).total_seconds()))

    # --- live ---------------------------------------------------------------------------------------------------

    def _live(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """Steps for a live claim, in their order of precedence. Returns when the next look is due."""
        ended = self._overruled(scope, claim)
        if ended is not None:
            self._recorder.fail(claim, *ended)
            return None
        if claim.marked:
            return self._reverse(scope, claim)
        if claim.status.attempt == 0:
            claim = self._seed(scope, claim)
        claim = self._recorder.observe(claim)
        if claim.phase is ClaimPhase.READY:
            if holds(claim, ClaimCondition.NO_DEADLINE):
                claim = self._recorder.conditions(claim, _BOOT_OVER)
            return self._watch_machine(scope, self._recorder.clear_deadline(claim))
        if not self._end_boot(scope, claim):
            if claim.spec.deadline_at is None:
                self._recorder.conditions(claim, _NO_DEADLINE)
            elif holds(claim, ClaimCondition.NO_DEADLINE):
                self._recorder.conditions(claim, _DEADLINE_SET)
        return claim.spec.deadline_at

    def _overruled(self, scope: SlotScope, claim: NodeClaim) -> tuple[Reason, str] | None:
        """What ends a live claim whatever it is doing: a newer claim, the machine's owner, the slot's deletion."""
        owner = scope.owner
        if owner is not None and owner.uid != claim.uid:
            return Reason.SUPERSEDED, f"claim {owner.name} is newer and owns slot {claim.slot_name}"
        if scope.reclaim is not None and scope.reclaim.status.phase is not ReclaimPhase.RETURNING:
            why = scope.reclaim.spec.reason or "no reason given"
            return Reason.EMERGENCY_RECLAIM, f"the machine went back to its owner: {why}"
        if scope.slot.marked and not claim.marked:
            return Reason.SLOT_DELETED, f"slot {claim.slot_name} is being deleted"
        if claim.phase is ClaimPhase.PENDING and not claim.committed:
            namesakes = self._slots.by_index(INDEX_NODE_NAME, scope.slot.spec.kubernetes_node_name)
            fault = slot_checks.problem(scope, namesakes, self._policy)
            if fault is not None and fault.type == SlotCondition.INVALID_SLOT:
                return Reason.INVALID_SLOT, fault.message
        return None

    def _seed(self, scope: SlotScope, claim: NodeClaim) -> NodeClaim:
        """Stamp the attempt, after every ended claim of the slot was digested: the number counts from their streak."""
        slot = scope.slot
        for ended in sorted(_undigested(scope), key=lambda entry: entry.status.finished_at or scope.now):
            slot = self._digest(slot, ended)
        last = slot.status.last_claim
        return self._recorder.seed(claim, seed_attempt(last, claim.spec.call, scope.now, self._settings))

    def _end_boot(self, scope: SlotScope, claim: NodeClaim) -> bool:
        if claim.phase is ClaimPhase.PENDING and claim.status.attempt > self._settings.max_attempts:
            text = f"{self._settings.max_attempts} boots failed in a row: slot {claim.slot_name} rests"
            self._recorder.fail(claim, Reason.ATTEMPT_LIMIT_EXCEEDED, text)
            return True
        if overdue(claim, scope.now):
            since = claim.spec.requested_at or claim.metadata.creation_timestamp or scope.now
            text = f"not ready {format_duration(scope.now - since)} after it was requested"
            self._recorder.fail(claim, Reason.DEADLINE_EXCEEDED, text)
            return True
        return False

    def _watch_machine(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """A ready claim whose machine is off: the condition's time is the clock, so no restart resets it."""
        off = scope.power is PowerState.OFF
        since = observed_off_since(claim)
        if not off:
            if since is not None:
                self._recorder.conditions(
                    claim, condition(ClaimCondition.MACHINE_OBSERVED_OFF, False, "MachineOn", "the node is Ready again")
                )
            return None
        if since is None:
            text = f"node {scope.node_name} is not Ready"
            claim = self._recorder.conditions(
                claim, condition(ClaimCondition.MACHINE_OBSERVED_OFF, True, "MachineOff", text)
            )
            since = observed_off_since(claim) or scope.now
        until = since + boot_window(claim, scope.slot, self._settings)
        if scope.now < until:
            return until
        held = self._mass_failure(scope, claim)
        if held is not None:
            return held
        text = f"the machine was off for {format_duration(scope.now - since)}"
        self._recorder.fail(claim, Reason.MACHINE_GONE, text)
        return None

    def _mass_failure(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        slots = self._slots.by_index(INDEX_GROUP, f"{scope.slot.namespace}/{scope.slot.group}")
        pool = pool_claims(slots, self._claims)
        waiting = sorted(entry.uid for entry in pool if entry.phase is ClaimPhase.READY and observed_off_since(entry))
        position = waiting.index(claim.uid) if claim.uid in waiting else 0
        found = suspicion(pool, self._settings)
        if found is not None:
            # Its own grace begins when the pool's wait ends: both are one boot window, and side by side they would
            # hold up nothing but the pace.
            found = replace(found, until=found.until + boot_window(claim, scope.slot, self._settings))
        return held_until(found, position, scope.now, self._settings)

    # --- marked -------------------------------------------------------------------------------------------------

    def _reverse(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """A deleted claim with a machine: it ends when the machine is confirmed off, or when a person says so."""
        if self._abandoned(scope, claim):
            self._end(claim, Reason.ABANDONED, "given up by hand: the machine may still be on")
            return None
        running = any(owned_by(job, claim.uid) for job in scope.unfinished())
        if not running and may_release(scope.law_input()):
            self._end(claim, _end_reason(claim), "")
            return None
        if not running and self._power_unknown(scope, claim):
            self._unknown_power(scope, _UNPROVEN)
            self._end(claim, _end_reason(claim), _UNPROVEN, unknown=True)
            return None
        self._say_pulse(scope, claim)
        return scope.now + timedelta(seconds=self._settings.finalizer_poll)

    def _end(self, claim: NodeClaim, reason: Reason, doubt: str, *, unknown: bool = False) -> None:
        """The claim ends; `doubt` says why its machine may still be on, "" if it is confirmed off."""
        told = "ConfirmedOff" if not doubt else (reason if reason is Reason.ABANDONED else "ShutdownUnproven")
        said = [condition(ClaimCondition.MACHINE_OBSERVED_OFF, None if doubt else True, told, doubt)]
        if unknown:
            said.append(condition(ClaimCondition.POWER_UNKNOWN, True, "ShutdownUnproven", doubt))
        self._recorder.move(claim, ClaimPhase.COMPLETED, reason, doubt, conditions=said)

    def _abandoned(self, scope: SlotScope, claim: NodeClaim) -> bool:
        said = (
            claim.metadata.annotations.get(names.ANNOTATION_ABANDON),
            scope.slot.metadata.annotations.get(names.ANNOTATION_ABANDON),
        )
        return claim.uid in said or scope.slot.uid in said

    def _power_unknown(self, scope: SlotScope, claim: NodeClaim) -> bool:
        """Debt that cannot be paid: observed off, no living kubelet, and the shutdown attempts are spent."""
        if scope.power is PowerState.ON or scope.pulse not in {Pulse.SILENT, Pulse.MISSING} or not scope.owes(claim):
            return False
        spent = claim.status.shutdown_attempts >= self._settings.max_attempts
        settling = scope.shutdown_ended_at()
        quiet = settling is None or scope.now >= settling + timedelta(seconds=self._settings.off_settle)
        return spent and quiet

    def _say_pulse(self, scope: SlotScope, claim: NodeClaim) -> None:
        alive = scope.law_input().kubelet_alive
        if alive or holds(claim, ClaimCondition.KUBELET_ALIVE):
            reason = "LeaseRenewed" if alive else "LeaseSilent"
            self._recorder.conditions(
                claim, condition(ClaimCondition.KUBELET_ALIVE, alive, reason, f"kubelet of node {scope.node_name}")
            )

    # --- ended --------------------------------------------------------------------------------------------------

    def _ended(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        digested = self._keep(scope, claim)
        if claim.committed:
            return self._let_go(scope, claim)
        if not digested or claim.marked:
            return None
        return self._collect(scope, claim)

    def _keep(self, scope: SlotScope, claim: NodeClaim) -> bool:
        """Digest the claim unless a newer end, or a live claim, makes its story obsolete. True when nothing is left."""
        if claim not in _undigested(scope):
            return True
        self._digest(scope.slot, claim)
        return True

    def _digest(self, slot: Node, claim: NodeClaim) -> Node:
        kept = digest(claim, slot.status.last_claim)
        if slot.status.last_claim == kept:
            return slot
        log.info("claim digested", slot=slot.name, claim=claim.name, reason=claim.status.reason)
        return self._client.patch_status(
            slot, {"lastClaim": kept.to_replacement()}, resource_version=slot.metadata.resource_version
        )

    def _let_go(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """Take the finalizer off when the machine of this ended claim needs nobody any more."""
        again = scope.now + timedelta(seconds=self._settings.finalizer_poll)
        if any(owned_by(job, claim.uid) for job in scope.unfinished()):
            return again
        if claim.phase is ClaimPhase.COMPLETED or self._abandoned(scope, claim):
            self._release(scope, claim)
            return None
        owner = scope.owner
        if owner is not None and owner.live:
            return self._hand_over(scope, claim, owner)
        if claim.status.reason is Reason.EMERGENCY_RECLAIM:
            return self._after_reclaim(scope, claim)
        if owner is not None and owner.uid == claim.uid and may_release(scope.law_input()):
            self._release(scope, claim)
        elif self._power_unknown(scope, claim):
            self._unknown_power(scope, _UNPROVEN)
            self._release(scope, claim, forget_node=False)
        else:
            return again
        return None

    def _hand_over(self, scope: SlotScope, claim: NodeClaim, owner: NodeClaim) -> datetime | None:
        """A live claim has the slot: once it carries the machine, its debt is the owner's."""
        if not owner.committed:
            return scope.now + timedelta(seconds=self._settings.finalizer_poll)
        if scope.owes(claim) and not owner.status.inherited_debt:
            self._recorder.inherit_debt(owner)
        self._release(scope, claim, forget_node=False)
        return None

    def _after_reclaim(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """The owner had the machine: wait for the veto to end; nobody knows what became of its power.

        A slot that is being deleted leaves its machine to the owner for good: then there is nothing to wait for.
        """
        if scope.reclaim is not None and not scope.slot.marked:
            return scope.now + timedelta(seconds=self._settings.finalizer_poll)
        if scope.power is PowerState.OFF and scope.owes(claim):
            self._unknown_power(scope, "the owner had the machine, and nobody saw it going off")
        self._release(scope, claim, forget_node=False)
        return None

    def _unknown_power(self, scope: SlotScope, why: str) -> None:
        self._slot_conditions.set(
            scope.slot, condition(SlotCondition.POWER_UNKNOWN, True, "ShutdownUnproven", f"{why}; look at it")
        )

    def _release(self, scope: SlotScope, claim: NodeClaim, *, forget_node: bool = True) -> None:
        """Node object first, finalizer last: a crash between leaves a claim that still remembers the machine."""
        if forget_node and scope.proven_off and may_release(scope.law_input()):
            self._marks.forget(scope.node, scope.group)
        kept = [entry for entry in claim.metadata.finalizers if entry != names.FINALIZER_MACHINE]
        metadata = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version, "finalizers": kept or None}
        try:
            self._client.patch(NodeClaim, claim.name, claim.namespace, MergePatch({"metadata": metadata}))
        except NotFoundError:
            return

    def _collect(self, scope: SlotScope, claim: NodeClaim) -> datetime | None:
        """Delete an ended, digested claim after its TTL, unless a Job of it still runs."""
        finished = claim.status.finished_at or claim.metadata.creation_timestamp or scope.now
        kept = max(self._ttl(claim), self._settings.collect_min)
        until = finished + timedelta(seconds=kept)
        if scope.now < until:
            return until
        if any(owned_by(job, claim.uid) for job in scope.unfinished()):
            return scope.now + timedelta(seconds=self._settings.finalizer_poll)
        self._delete(claim)
        return None

    def _ttl(self, claim: NodeClaim) -> float:
        """The claim's own TTL; the CRD's default means the setting."""
        own = claim.spec.ttl_seconds_after_finished
        return self._settings.claim_ttl if own == _DEFAULT_TTL else float(own)

    def _delete(self, claim: NodeClaim) -> None:
        try:
            self._client.delete(NodeClaim, claim.name, claim.namespace, uid=claim.uid)
        except (NotFoundError, ConflictError):
            return

    # --- no slot ------------------------------------------------------------------------------------------------

    def _without_slot(self, claim: NodeClaim, now: datetime) -> datetime | None:
        """The slot is not there. Say so where people look; a committed claim keeps its finalizer until abandoned."""
        if self._slot_exists(claim):
            return now + timedelta(seconds=self._settings.drain_pass)
        if claim.live:
            text = (
                f'spec.slotRef.name: "{claim.slot_name}" is no slot in namespace "{claim.namespace}": '
                "create the slot first, or name another one"
            )
            self._recorder.fail(claim, Reason.INVALID_SLOT if in_boot_window(claim) else Reason.SLOT_DELETED, text)
            return None
        if claim.committed:
            if claim.metadata.annotations.get(names.ANNOTATION_ABANDON) == claim.uid:
                kept = [entry for entry in claim.metadata.finalizers if entry != names.FINALIZER_MACHINE]
                metadata = {"resourceVersion": claim.metadata.resource_version, "finalizers": kept or None}
                self._client.patch(NodeClaim, claim.name, claim.namespace, MergePatch({"metadata": metadata}))
                return None
            self._recorder.conditions(
                claim,
                condition(
                    ClaimCondition.NEEDS_HUMAN,
                    True,
                    "SlotMissing",
                    f"slot {claim.slot_name} is gone, so nobody can switch its machine off: do it by hand, then "
                    f"annotate this claim with {names.ANNOTATION_ABANDON}={claim.uid}",
                ),
            )
            return None
        finished = claim.status.finished_at or now
        until = finished + timedelta(seconds=max(self._ttl(claim), self._settings.collect_min))
        if now < until:
            return until
        if not claim.marked:
            self._delete(claim)
        return None

    def _slot_exists(self, claim: NodeClaim) -> bool:
        try:
            self._client.get(Node, claim.slot_name, claim.namespace)
        except NotFoundError:
            return False
        return True


_UNPROVEN: Final = "every shutdown Job failed: whether the machine is off is not known"
_NO_DEADLINE: Final = condition(
    ClaimCondition.NO_DEADLINE,
    True,
    "NoDeadline",
    "spec.deadlineAt is not set: a boot that never starts holds its slot until the claim is deleted",
)
_DEADLINE_SET: Final = condition(ClaimCondition.NO_DEADLINE, False, "DeadlineSet", "spec.deadlineAt is set")
_BOOT_OVER: Final = condition(ClaimCondition.NO_DEADLINE, False, "BootOver", "the machine is ready: no boot is limited")
_DEFAULT_TTL: Final = NodeClaimSpec.model_fields["ttl_seconds_after_finished"].default


def _undigested(scope: SlotScope) -> list[NodeClaim]:
    """Ended claims newer than the digest. None while a claim is live that was seeded after them."""
    last = scope.slot.status.last_claim
    seeded = [claim for claim in scope.claims if claim.live and claim.status.attempt]
    if seeded:
        return []
    since = last.finished_at if last else None
    return [
        claim
        for claim in scope.claims
        if claim.phase.terminal
        and (last is None or claim.uid != last.uid)
        and (since is None or (claim.status.finished_at or since) > since)
    ]


def _end_reason(claim: NodeClaim) -> Reason:
    """What the deleter said; a reason that is not one of a completed claim counts as unsaid."""
    said = claim.metadata.annotations.get(names.ANNOTATION_END_REASON, "")
    ends = {Reason.NODE_DELETED, Reason.CANCELLED_BY_DECREASE, Reason.SCHEDULE_ENDED, Reason.DELETED_BY_HAND}
    return Reason(said) if said in ends else Reason.DELETED_BY_HAND
