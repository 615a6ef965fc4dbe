"""The readiness gate: the only way to `ready`.

After the startup Job (or for a machine that was on already) the gate waits for the node to register, recognises it,
and holds the claim until the node can take the pool's work. Each call is one re-entrant step: every instant that it
measures from stands on an object, so a new process goes on where the old one stopped. A pool that gives its machines
more time than the boot budget gives it to these two waits as well: else a slow machine would be switched off, again and
again, long before the deadline that its claim and the autoscaler go by.
Source: state management, "Ready means the machine can take the pool's work"; model section 6 (Ready, Gate timeout).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from homelab_api.core import CoreNode
from homelab_api.meta import format_duration
from homelab_api.v2alpha1 import ClaimPhase, NodeClaim, Reason
from homelab_autoscaler.claim.deadlines import in_boot_window
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.lifecycle import events
from homelab_autoscaler.lifecycle.lock import LockKind
from homelab_autoscaler.lifecycle.machine import Event, NodeMachine
from homelab_autoscaler.lifecycle.node_marks import identity_patch, ready_patch, undrain_patch
from homelab_autoscaler.phase import MachineState, unusable
from homelab_autoscaler.runtime import NotFoundError

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import Group
    from homelab_autoscaler.claim.recorder import ClaimRecorder
    from homelab_autoscaler.lifecycle.lock import Locks
    from homelab_autoscaler.lifecycle.node_marks import NodeMarks
    from homelab_autoscaler.lifecycle.report import Reporter
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.runtime import Client, EventRecorder
    from homelab_autoscaler.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GateStart:
    """From when the gate measures.

    Attributes:
        at: end of the startup Job, or the commitment of a machine that was on already.
        judge_registration: whether a node that does not register in time fails the boot. Not when the startup Job is
            missing: a missing Job is no verdict, the deadline decides.
    """

    at: datetime
    judge_registration: bool


class ReadinessGate:
    """Takes a booted machine to `ready`, or fails its claim."""

    def __init__(
        self,
        *,
        client: Client,
        claims: ClaimRecorder,
        locks: Locks,
        marks: NodeMarks,
        reporter: Reporter,
        recorder: EventRecorder,
        settings: Settings,
    ) -> None:
        self._client = client
        self._claims = claims
        self._locks = locks
        self._marks = marks
        self._reporter = reporter
        self._events = recorder
        self._settings = settings

    def step(self, scope: SlotScope, claim: NodeClaim, group: Group, start: GateStart) -> datetime | None:
        """One step.

        Returns:
            When to look again at the latest; None when the gate has answered.

        Raises:
            ConflictError: the node or the claim changed under a write; the next step decides anew.
        """
        self._locks.renew(scope.slot, LockKind.SCALE_UP)
        node = scope.node
        slow = self._settings.surplus(group.spec.max_node_provision_time)
        if node is None:
            waits = timedelta(seconds=self._settings.registration_wait + slow)
            until = start.at + waits
            if not start.judge_registration:
                return scope.now + timedelta(seconds=self._settings.monitor_poll)
            if scope.now < until:
                return until
            self._time_out(scope, claim, f"node {scope.node_name} did not register within {format_duration(waits)}")
            return None
        self._marks.apply(node, identity_patch(node, scope.slot, group, placeholder_id(claim)))
        registered = max(start.at, node.metadata.creation_timestamp or start.at)
        waits = timedelta(seconds=self._settings.gate_timeout + slow)
        until = registered + waits
        why = unusable(node, group.spec.node_readiness_taints, ignore_own_cordon=True)
        if why is None:
            return self._open(scope, claim, group)
        if scope.now < until:
            return until
        self._time_out(scope, claim, f"{why}, {format_duration(waits)} after it registered")
        return None

    def _open(self, scope: SlotScope, claim: NodeClaim, group: Group) -> datetime | None:
        """The cached node looks usable: read it again, make it capacity, ask once more, move the claim."""
        try:
            node = self._client.get(CoreNode, scope.node_name)
            present = self._client.get(NodeClaim, claim.name, claim.namespace)
        except NotFoundError:
            return scope.now
        if present.uid != claim.uid or not in_boot_window(present):
            return scope.now  # Withdrawn, ended or ready by now: nothing is left to open, or to report a second time.
        taints = group.spec.node_readiness_taints
        if unusable(node, taints, ignore_own_cordon=True) is not None:
            return scope.now + timedelta(seconds=self._settings.uncordon_retry_max)
        node = self._marks.apply(node, ready_patch(node, scope.slot, group, present))
        if unusable(node, taints) is not None:
            return scope.now + timedelta(seconds=self._settings.uncordon_retry_max)
        moved = present

        def work() -> None:
            nonlocal moved
            reason = Reason.MACHINE_READY if present.status.job_name else Reason.MACHINE_ADOPTED
            moved = self._claims.move(present, ClaimPhase.READY, reason, nodeName=node.name)

        NodeMachine(MachineState.STARTINGUP).fire(Event.JOB_COMPLETED, work)
        log.info("machine ready", slot=scope.slot.name, claim=claim.name, node=node.name)
        slot = self._locks.release(scope.slot)
        others = tuple(entry for entry in scope.claims if entry.uid != moved.uid)
        self._reporter.live(replace(scope, slot=slot, node=node, claims=(*others, moved)))
        return None

    def _time_out(self, scope: SlotScope, claim: NodeClaim, message: str) -> None:
        """Give up on this boot: our cordon must not outlive it, the claim fails, the law switches the machine off."""
        if scope.node is not None:
            self._marks.apply(scope.node, undrain_patch(scope.node))

        def work() -> None:
            self._claims.fail(claim, Reason.READINESS_GATE_TIMEOUT, message)

        NodeMachine(MachineState.STARTINGUP).fire(Event.JOB_TIMEOUT, work)
        self._events.event(scope.slot, "Warning", events.READINESS_GATE_TIMEOUT, f"claim {claim.name}: {message}")
        self._locks.release(scope.slot)
