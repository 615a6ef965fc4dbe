"""The closed vocabularies of v2alpha1: phases, calls, power, condition types and reasons.

A reason is an API: people alert on it and documentation explains each. Adding one means adding its page.
"""

from __future__ import annotations

from enum import StrEnum


class ClaimPhase(StrEnum):
    """Phase of a NodeClaim. An empty phase reads as pending."""

    PENDING = "pending"
    """The request exists and no lifecycle Job was made for it. The only phase that can be cancelled."""
    BOOTING = "booting"
    """The startup Job exists and the power-on was asked for. Committed: it is reversed, never interrupted."""
    READY = "ready"
    """The machine is up, joined, and can take the pool's work."""
    FAILED = "failed"
    """The attempt made no usable machine and never will. Final."""
    COMPLETED = "completed"
    """The claim ended with its machine available, or was withdrawn; its machine is off. Final."""

    @property
    def live(self) -> bool:
        """pending, booting or ready: the claim owns its slot."""
        return self in _LIVE

    @property
    def terminal(self) -> bool:
        """failed or completed: final."""
        return self not in _LIVE


_LIVE = frozenset({ClaimPhase.PENDING, ClaimPhase.BOOTING, ClaimPhase.READY})


class Call(StrEnum):
    """Who asked for the machine."""

    INCREASE_SIZE = "IncreaseSize"
    """Cluster Autoscaler, through the provider."""
    MANUAL = "Manual"
    """A person."""
    SCHEDULE = "Schedule"
    """A ScheduledMachine whose window is open."""
    ADOPT = "Adopt"
    """The manager, for a machine that was on when its slot was first seen."""


class SlotPhase(StrEnum):
    """Report of a slot. Nothing reads it to decide."""

    OFF = "off"
    """The machine is off and nobody wants it: a free slot."""
    PENDING = "pending"
    """Wanted; the boot has not begun."""
    BOOTING = "booting"
    """Wanted, and not (or not any more) able to take work."""
    READY = "ready"
    """The machine takes the pool's work."""
    DRAINING = "draining"
    """Not wanted, and on or not known to be off."""
    RECLAIMED = "reclaimed"
    """In its owner's hands."""


class PowerState(StrEnum):
    """Observed power: on iff the node's Ready condition is True."""

    ON = "on"
    """The node's Ready condition is True."""
    OFF = "off"
    """It is not, or there is no node. A report, not evidence."""


class ReclaimPhase(StrEnum):
    """Phase of a NodeReclaim."""

    EJECTING = "Ejecting"
    """Jobs are stopped, pods deleted, claims ended."""
    HELD = "Held"
    """The machine is its owner's."""
    RETURNING = "Returning"
    """It was given back and rejoins the pool."""


class ReclaimSource(StrEnum):
    """Who took the machine back."""

    AGENT = "Agent"
    """The agent on the machine saw a process that matches."""
    MANUAL = "Manual"
    """A person made the NodeReclaim."""


class GroupHealth(StrEnum):
    """Health of a pool."""

    HEALTHY = "healthy"
    """Every wanted machine is ready or on its way."""
    DEGRADED = "degraded"
    """Some boots failed."""
    OFFLINE = "offline"
    """Boots failed, and no machine is ready."""
    UNKNOWN = "unknown"
    """The pool has no slots, or was not looked at yet."""


class Reason(StrEnum):
    """Why a claim is in its phase: `status.reason`."""

    STARTUP_JOB_CREATED = "StartupJobCreated"
    MACHINE_READY = "MachineReady"
    MACHINE_ADOPTED = "MachineAdopted"

    DEADLINE_EXCEEDED = "DeadlineExceeded"
    ATTEMPT_LIMIT_EXCEEDED = "AttemptLimitExceeded"
    STARTUP_JOB_FAILED = "StartupJobFailed"
    STARTUP_JOB_TIMEOUT = "StartupJobTimeout"
    READINESS_GATE_TIMEOUT = "ReadinessGateTimeout"
    STUCK_TRANSITION = "StuckTransition"
    INVALID_SLOT = "InvalidSlot"
    MACHINE_GONE = "MachineGone"
    SUPERSEDED = "Superseded"
    SLOT_DELETED = "SlotDeleted"
    EMERGENCY_RECLAIM = "EmergencyReclaim"

    NODE_DELETED = "NodeDeleted"
    CANCELLED_BY_DECREASE = "CancelledByDecreaseTargetSize"
    DELETED_BY_HAND = "DeletedByHand"
    SCHEDULE_ENDED = "ScheduleEnded"
    ABANDONED = "Abandoned"


STREAK_REASONS = frozenset(
    {
        Reason.STARTUP_JOB_FAILED,
        Reason.STARTUP_JOB_TIMEOUT,
        Reason.READINESS_GATE_TIMEOUT,
        Reason.DEADLINE_EXCEEDED,
        Reason.STUCK_TRANSITION,
    }
)
"""Ends that extend a streak of failed boots; every other end leaves the streak as it was."""


class ClaimCondition(StrEnum):
    """Condition types of a NodeClaim."""

    READY = "Ready"
    MACHINE_COMMITTED = "MachineCommitted"
    MACHINE_OBSERVED_OFF = "MachineObservedOff"
    NO_DEADLINE = "NoDeadline"
    KUBELET_ALIVE = "KubeletAlive"
    POWER_UNKNOWN = "PowerUnknown"
    NEEDS_HUMAN = "NeedsHuman"
    PROTECTED = "Protected"


class SlotCondition(StrEnum):
    """Condition types of a Node (slot). All are reports."""

    OBSERVED = "Observed"
    USABLE = "Usable"
    AUTOSCALER = "Autoscaler"
    UNKNOWN_GROUP = "UnknownGroup"
    INVALID_SLOT = "InvalidSlot"
    EXHAUSTED = "Exhausted"
    POWER_UNKNOWN = "PowerUnknown"
    POWER_FLAPPING = "PowerFlapping"
    NEEDS_HUMAN = "NeedsHuman"
    PROTECTED = "Protected"
    KUBELET_ALIVE = "KubeletAlive"
    DRAIN_BLOCKED = "DrainBlocked"


class GroupCondition(StrEnum):
    """Condition types of a Group."""

    READY = "Ready"
    POOL_SUSPECT = "PoolSuspect"


class ReclaimCondition(StrEnum):
    """Condition types of a NodeReclaim."""

    JOBS_STOPPED = "JobsStopped"
    CORDONED = "Cordoned"
    PODS_GONE = "PodsGone"
    LEFT_CLUSTER = "LeftCluster"
