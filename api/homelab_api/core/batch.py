"""batchv1 Job: how every power command is sent."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import JsonObject, KubeModel, KubeObject, ResourceInfo, Time


class JobSpec(KubeModel):
    """The parts of a Job's spec that we set or read. `template` stays JSON: it is written once and never read."""

    suspend: bool | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    template: JsonObject = Field(default_factory=dict)


class JobCondition(KubeModel):
    """Complete, Failed, FailureTarget, SuccessCriteriaMet or Suspended."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class JobStatus(KubeModel):
    """What the Job controller reports."""

    start_time: Time | None = None
    completion_time: Time | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: list[JobCondition] = Field(default_factory=list)


class Job(KubeObject):
    """batchv1 Job."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("batch", "v1", "Job", "jobs")

    spec: JobSpec = Field(default_factory=JobSpec)
    status: JobStatus = Field(default_factory=JobStatus)

    def condition(self, kind: str) -> JobCondition | None:
        """The condition of that type if its status is True."""
        return next((c for c in self.status.conditions if c.type == kind and c.status == "True"), None)

    @property
    def succeeded(self) -> bool:
        """The Job finished well: its commands ran. This says nothing about the machine."""
        return self.condition("Complete") is not None

    @property
    def failed(self) -> bool:
        """The Job finished badly (exit code, deadline, or a refused pod)."""
        return self.condition("Failed") is not None

    @property
    def finished(self) -> bool:
        """Complete or Failed: no pod of it will be started any more."""
        return self.succeeded or self.failed

    @property
    def suspended(self) -> bool:
        """True while the Job waits for its release (spec.suspend)."""
        return bool(self.spec.suspend)
