"""The one writer of NodeClaim.status.

Every write is a merge patch of the fields that change, bound to the resourceVersion of the object that the decision
was made from. A claim that moved on in between answers with a conflict: nothing is written, the caller's pass runs
again on fresh facts. Guarantee: an illegal move never reaches the API server, and an event is published only for a
write that landed. Non-guarantee: a crash between write and event loses the event; conditions are the durable record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.conditions import condition, merge_conditions, readable
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import ClaimCondition, ClaimPhase, NodeClaim, Reason
from homelab_autoscaler.claim import events
from homelab_autoscaler.claim.moves import check_move
from homelab_autoscaler.runtime import MergePatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import Condition, JsonObject
    from homelab_autoscaler.runtime import Client, Clock, EventRecorder


class ClaimRecorder:
    """Writes phases, conditions and counters of claims."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._events = recorder
        self._clock = clock

    def seed(self, claim: NodeClaim, attempt: int) -> NodeClaim:
        """Stamp the attempt number, once. A claim that has one is returned as it is."""
        if claim.status.attempt:
            return claim
        seeded = self._write(claim, {"attempt": attempt}, ())
        events.publish_created(self._events, seeded)
        return seeded

    def move(
        self,
        claim: NodeClaim,
        to: ClaimPhase,
        reason: Reason,
        message: str = "",
        *,
        conditions: Iterable[Condition] = (),
        **fields: str | int | bool | None,
    ) -> NodeClaim:
        """Move the claim to a phase; a claim that is there for this reason already is returned as it is.

        Args:
            claim: as it was read; the write is bound to its resourceVersion.
            to: the phase.
            reason: why; must be legal for the move.
            message: a sentence for people.
            conditions: further conditions for the same write.
            **fields: further status fields in wire names, written in the same patch.

        Raises:
            IllegalMoveError: the table does not list the move; nothing is written.
            ConflictError: the claim changed since it was read; nothing is written.
        """
        if claim.status.phase is to and claim.status.reason is reason:
            return claim
        check_move(claim.name, claim.phase, to, reason)
        now = self._clock.now()
        status: JsonObject = {"phase": to.value, "reason": reason.value, "message": readable(message), **fields}
        if to is ClaimPhase.BOOTING and claim.status.started_at is None:
            status["startedAt"] = format_time(now)
        if to is ClaimPhase.READY:
            status["readyAt"] = format_time(now)
        if to.terminal:
            status["finishedAt"] = format_time(now)
        ready = condition(ClaimCondition.READY, to is ClaimPhase.READY, reason, message)
        # The deadline goes next, which is a change of the spec: the status is about the claim without it.
        clears = int(to is ClaimPhase.READY and claim.spec.deadline_at is not None)
        moved = self._write(claim, status, [ready, *conditions], spec_writes=clears)
        events.publish_move(self._events, moved)
        return self.clear_deadline(moved) if to is ClaimPhase.READY else moved

    def fail(self, claim: NodeClaim, reason: Reason, message: str) -> NodeClaim:
        """End the claim as failed."""
        return self.move(claim, ClaimPhase.FAILED, reason, message)

    def clear_deadline(self, claim: NodeClaim) -> NodeClaim:
        """Take the boot deadline off a ready claim: the second write of that move, repeated after a crash between."""
        if claim.spec.deadline_at is None:
            return claim
        patch = MergePatch(
            {"metadata": {"resourceVersion": claim.metadata.resource_version}, "spec": {"deadlineAt": None}}
        )
        return self._client.patch(NodeClaim, claim.name, claim.namespace, patch)

    def conditions(self, claim: NodeClaim, *changes: Condition) -> NodeClaim:
        """Merge conditions; no write when nothing changes."""
        return self._write(claim, {}, changes)

    def committed(self, claim: NodeClaim, message: str, *, power_requested: bool) -> NodeClaim:
        """Record that the machine is committed; the instant is `startedAt`, unless the boot has set it already.

        Args:
            claim: as it was read.
            message: how it came to be committed.
            power_requested: a startup Job was released for it; that happens once per claim.
        """
        now = format_time(self._clock.now())
        fields: JsonObject = {} if claim.status.started_at else {"startedAt": now}
        if power_requested and claim.status.power_requested_at is None:
            fields["powerRequestedAt"] = now
        return self._write(
            claim, fields, [condition(ClaimCondition.MACHINE_COMMITTED, True, "PowerRequested", message)]
        )

    def count_shutdown(self, claim: NodeClaim, attempt: int, job_name: str) -> NodeClaim:
        """Count a shutdown attempt and name its Job, in one write and before the Job exists.

        What had kept the shutdown from being tried is over with it.
        """
        over = [
            condition(kind, False, "ShutdownResumed", f"Job {job_name} is to switch the machine off")
            for kind in (ClaimCondition.NEEDS_HUMAN, ClaimCondition.PROTECTED)
            if holds(claim, kind)
        ]
        return self._write(
            claim,
            {
                "shutdownAttempts": attempt,
                "lastShutdownAttemptAt": format_time(self._clock.now()),
                "shutdownJobName": job_name,
            },
            over,
        )

    def observe(self, claim: NodeClaim) -> NodeClaim:
        """Note that a spec which somebody changed was seen; no write otherwise."""
        seen, present = claim.status.observed_generation, claim.metadata.generation
        if seen is None or present is None or seen >= present:
            return claim
        return self._write(claim, {"observedGeneration": present}, ())

    def inherit_debt(self, owner: NodeClaim) -> NodeClaim:
        """Record on the owner that a superseded claim's machine is now its to switch off."""
        return self._write(owner, {"inheritedDebt": True}, ())

    def _write(
        self, claim: NodeClaim, fields: JsonObject, changes: Iterable[Condition], *, spec_writes: int = 0
    ) -> NodeClaim:
        """One patch of what changes.

        Args:
            claim: as it was read.
            fields: status fields in wire names.
            changes: conditions to merge.
            spec_writes: changes of the spec that we are about to make ourselves.
        """
        merged = merge_conditions(claim.status.conditions, changes, self._clock.now())
        status = dict(fields)
        if merged != claim.status.conditions:
            status["conditions"] = [entry.to_json() for entry in merged]
        if not status:
            return claim
        generation = claim.metadata.generation
        if generation is not None and claim.status.observed_generation != generation + spec_writes:
            status["observedGeneration"] = generation + spec_writes
        return self._client.patch_status(claim, status, resource_version=claim.metadata.resource_version)


def holds(claim: NodeClaim, kind: ClaimCondition) -> bool:
    """Whether the claim carries the condition as true: one that never was true is not written as false."""
    found = claim.condition(kind)
    return found is not None and found.status == "True"
