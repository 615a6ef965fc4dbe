"""The closed vocabularies of v2alpha1: phases, calls, power, condition types and reasons.

A reason is an API: people alert on it and documentation explains each. Adding one means adding its page.
"""

from __future__ import annotations

from enum import StrEnum


class ClaimPhase(StrEnum):
    """Phase of a NodeClaim. An empty phase reads as pending."""

    PENDING = "pending"
    BOOTING = "booting"
    READY = "ready"
    FAILED = "failed"
    COMPLETED = "completed"

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
    MANUAL = "Manual"
    SCHEDULE = "Schedule"
    ADOPT = "Adopt"


class SlotPhase(StrEnum):
    """Report of a slot. Nothing reads it to decide."""

    OFF = "off"
    PENDING = "pending"
    BOOTING = "booting"
    READY = "ready"
    DRAINING = "draining"
    RECLAIMED = "reclaimed"


class PowerState(StrEnum):
    """Observed power: on iff the node's Ready condition is True."""

    ON = "on"
    OFF = "off"


class ReclaimPhase(StrEnum):
    """Phase of a NodeReclaim."""

    EJECTING = "Ejecting"
    HELD = "Held"
    RETURNING = "Returning"


class ReclaimSource(StrEnum):
    """Who took the machine back."""

    AGENT = "Agent"
    MANUAL = "Manual"


class GroupHealth(StrEnum):
    """Health of a pool."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


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
