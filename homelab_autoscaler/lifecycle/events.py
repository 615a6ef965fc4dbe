"""Reasons of the events that lifecycle operations publish on slots."""

from __future__ import annotations

from typing import Final

SCALE_UP_DEFERRED: Final = "ScaleUpDeferred"
SCALE_DOWN_DEFERRED: Final = "ScaleDownDeferred"
SHUTDOWN_ABORTED: Final = "ShutdownAborted"
SHUTDOWN_STARTED: Final = "ShutdownStarted"
SHUTDOWN_JOB_FAILED: Final = "ShutdownJobFailed"
SHUTDOWN_JOB_TIMEOUT: Final = "ShutdownJobTimeout"
SHUTDOWN_ATTEMPT_LIMIT_REACHED: Final = "ShutdownAttemptLimitReached"
POWER_FLAPPING: Final = "PowerFlapping"
READINESS_GATE_TIMEOUT: Final = "ReadinessGateTimeout"
DRAIN_FORCED: Final = "DrainForced"
NODE_PROTECTED: Final = "NodeProtected"
STALE_NODE_DELETED: Final = "StaleNodeDeleted"
JOB_NAME_TAKEN: Final = "JobNameTaken"
