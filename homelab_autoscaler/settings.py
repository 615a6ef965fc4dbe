"""Every number of the model in one place.

Times are seconds as floats, counts are ints. The environment (`HOMELAB_AUTOSCALER_JOB_TIMEOUT=6m`) and the flags of
the manager set them; a time may be written as seconds or as a duration with units. Numbers written on objects (a
slot's `timeoutSeconds`, a group's `maxNodeProvisionTime`) are true times and are never scaled with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from homelab_api.meta import parse_duration

SPEC_JOB_TIMEOUT: Final = 300.0
"""The `timeoutSeconds` of a lifecycle pod that the boot budget already contains; a slot's excess over it is added."""


@dataclass(frozen=True, slots=True)
class Span:
    """Marks a field that is a span of time, so that `Settings.scaled` divides it."""


def _read_seconds(value: object) -> object:
    """Accept a number of seconds, as text too, or a duration with units."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return parse_duration(value).total_seconds()
    return value


Seconds = Annotated[float, BeforeValidator(_read_seconds), Field(gt=0, allow_inf_nan=False), Span()]
SecondsOrOff = Annotated[float, BeforeValidator(_read_seconds), Field(ge=0, allow_inf_nan=False), Span()]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """The numbers that the manager runs by. Immutable; a change is a new manager.

    Raises:
        pydantic.ValidationError: naming the field and what it accepts.
    """

    model_config = SettingsConfigDict(
        env_prefix="HOMELAB_AUTOSCALER_",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
    )

    # --- boot ---------------------------------------------------------------------------------------------------
    job_timeout: Seconds = 300.0
    """Seconds that a lifecycle Job may take, from its startTime (model section 5)."""
    monitor_poll: Seconds = 30.0
    """Seconds between two looks of a Job monitor; a fallback only, since monitors wake on events (section 5)."""
    registration_wait: Seconds = 90.0
    """Seconds for a booted machine's node to register (section 5; state management, readiness gate)."""
    gate_timeout: Seconds = 240.0
    """Seconds that the readiness gate waits from the node's registration on (section 5)."""
    uncordon_retry_max: Seconds = 10.0
    """Ceiling in seconds of the pause between two tries to uncordon (section 5)."""
    deadline_slack: Seconds = 60.0
    """Seconds added to the sum of the boot's deadlines (section 5)."""
    autoscaler_max_node_provision_time: Seconds = 900.0
    """Seconds that the autoscaler waits for a node, for groups that set no `maxNodeProvisionTime` (section 2)."""

    # --- operations ---------------------------------------------------------------------------------------------
    lock_timeout: Seconds = 300.0
    """Seconds that an operation lock holds unless it is renewed; also one "lock window" (sections 3, 5, 6)."""
    stuck_floor: Seconds = 900.0
    """Least number of seconds before an operation counts as stuck (section 5)."""
    job_failure_target_grace: Seconds = 30.0
    """Seconds after which a Job's condition FailureTarget is judged as Failed (section 5)."""
    job_pod_force: Seconds = 2.0
    """Seconds between deleting the pod of an ended Job with grace 1 and deleting it with grace 0 (section 6)."""
    drain_pass: Seconds = 1.0
    """Longest single pass of a drain in seconds; the rest is taken up by the next one (section 6)."""
    never_used_wait: Seconds = 60.0
    """Seconds before a machine that is on and whose slot was never used is switched off (section 3, row 2)."""

    # --- off ----------------------------------------------------------------------------------------------------
    off_settle: Seconds = 120.0
    """Seconds after a shutdown Job's end in which a machine that is still on counts as going off (section 3)."""
    lease_silence: Seconds = 40.0
    """Least number of seconds between two own reads of an unchanged kubelet Lease that mean silence (section 7)."""
    shutdown_pause: Seconds = 1800.0
    """Seconds that shutdowns pause after `max_attempts` of them did not land (section 4)."""
    flapping_limit: Count = 6
    """Releases of shutdown Jobs per slot and `flapping_window` before PowerFlapping (section 4)."""
    flapping_window: Seconds = 3600.0
    """Window in seconds over which those releases are counted (section 4)."""
    flapping_pause: Seconds = 1800.0
    """Seconds that a flapping slot's shutdowns pause (section 4)."""

    # --- claims -------------------------------------------------------------------------------------------------
    max_attempts: Count = 3
    """Consecutive failed boots, and consecutive shutdowns that did not land, before we stop (section 4)."""
    exhausted_after: SecondsOrOff = 1800.0
    """Seconds from `streakAt` after which an exhausted slot is offered again; 0 = only by hand (section 13.10)."""
    finalizer_poll: Seconds = 15.0
    """Seconds between two looks at a machine that a claim's finalizer waits for (section 5)."""
    claim_ttl: Seconds = 3600.0
    """Seconds that an ended claim is kept when its own `ttlSecondsAfterFinished` says nothing (section 5)."""
    collect_min: Seconds = 120.0
    """Seconds after its end before which no claim is collected, whatever its TTL (section 9)."""
    name_wait: Seconds = 1.0
    """Seconds that a creator waits for the digest of an ended claim that still has the wanted name (section 9)."""
    creator_stale: Seconds = 10.0
    """Age in seconds past which a creator reads again before it creates (section 9)."""

    # --- pools --------------------------------------------------------------------------------------------------
    idle_resync: Seconds = 300.0
    """Seconds after which a slot is looked at though nothing happened (section 5)."""
    mass_failure_window: Seconds = 120.0
    """Seconds within which machines going off together make a pool suspect (section 13.9)."""
    mass_failure_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A pool is suspect when more than this fraction of its ready machines went off (section 13.9)."""
    mass_failure_min: Count = 3
    """Least number of machines that make a mass failure (section 13.9)."""
    mass_failure_pace: Seconds = 10.0
    """Seconds between two held-up operations once a suspect pool's wait is over (section 13.9)."""

    # --- history ------------------------------------------------------------------------------------------------
    history_ring: Count = 32
    """Rows of a slot's display ring (state management, observability fields)."""
    history_window: Seconds = 86400.0
    """Seconds that ring and ledger look back (state management, observability fields)."""
    history_ledger: Count = 512
    """Timestamps in a slot's ledger of boots (state management, observability fields)."""

    @property
    def boot_budget(self) -> float:
        """Seconds that one boot can consume: all its deadlines in series, one sleep and the slack; 730 by default."""
        return (
            self.job_timeout
            + self.monitor_poll
            + self.registration_wait
            + self.gate_timeout
            + self.uncordon_retry_max
            + self.deadline_slack
        )

    def job_timeout_of(self, timeout_seconds: float | None = None) -> float:
        """Seconds that a Job of a slot with this `timeoutSeconds` may take."""
        return self.job_timeout + _excess(timeout_seconds)

    def surplus(self, max_node_provision_time: timedelta | None) -> float:
        """Seconds by which a pool's own provision time goes beyond the boot budget; 0 for a pool that sets none."""
        given = max_node_provision_time.total_seconds() if max_node_provision_time else 0.0
        return max(0.0, given - self.boot_budget)

    def boot_window(
        self, max_node_provision_time: timedelta | float | None = None, timeout_seconds: float | None = None
    ) -> float:
        """One boot window in seconds: the longer of the budget and the claim's number, plus the slot's excess.

        Used for `deadlineAt` (from `requestedAt`), the MachineGone grace, the mass-failure rule and `stuck_threshold`.

        Args:
            max_node_provision_time: the claim's `spec.maxNodeProvisionTime`, a true time; None if unset.
            timeout_seconds: the slot's `startupPodSpec.timeoutSeconds`, a true time; None if unknown.
        """
        floor = max_node_provision_time or 0.0
        if isinstance(floor, timedelta):
            floor = floor.total_seconds()
        return max(self.boot_budget, floor) + _excess(timeout_seconds)

    def stuck_threshold(
        self, max_node_provision_time: timedelta | float | None = None, timeout_seconds: float | None = None
    ) -> float:
        """Seconds after which an operation counts as stuck: past one boot window and one lock window of any claim."""
        return max(self.stuck_floor, self.boot_window(max_node_provision_time, timeout_seconds) + self.lock_timeout)

    def scaled(self, factor: float) -> Self:
        """These settings with every time divided by `factor`; counts and fractions stay.

        Raises:
            ValueError: when the factor is not a positive number.
        """
        if not 0 < factor < float("inf"):
            raise ValueError(
                f"time factor {factor} is not usable: give a positive number, like 10 for ten times faster"
            )
        times = {
            name: getattr(self, name) / factor
            for name, field in type(self).model_fields.items()
            if any(isinstance(mark, Span) for mark in field.metadata)
        }
        return self.model_copy(update=times)


def _excess(timeout_seconds: float | None) -> float:
    return max(0.0, (timeout_seconds or 0.0) - SPEC_JOB_TIMEOUT)
