"""What the autoscaler remembers from one loop to the next; all of it is lost when its process ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.cloud import InstanceInfo
    from homelab_autoscaler.sandbox.autoscaler.options import Times


@dataclass(slots=True)
class ScaleUpRequest:
    """Machines asked for and not all there yet.

    Attributes:
        increase: the sum that was asked for; not reduced as nodes arrive, but by create errors.
        at: the latest increase; every further one moves it.
    """

    increase: int
    at: float


@dataclass(slots=True)
class Backoff:
    """A group that is left alone for a while.

    Attributes:
        until: when it is tried again.
        duration: the present length; doubles with each failure.
        failed_at: the latest failure.
        why: what happened.
    """

    until: float
    duration: float
    failed_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Happening:
    """One entry of the journal: what an event or a log line of the real one would say."""

    at: float
    kind: str
    about: str
    text: str = ""


@dataclass(slots=True)
class Deletion:
    """A node on its way out: tainted, emptied, then handed to the provider.

    Attributes:
        node: name.
        group: id.
        tainted_at: when.
        evicting_since: when its pods were asked to go; None before that.
    """

    node: str
    group: str
    tainted_at: float
    evicting_since: float | None = None


@dataclass(slots=True)
class Memory:
    """All of it. Times are readings of the monotonic clock."""

    requests: dict[str, ScaleUpRequest] = field(default_factory=dict)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    instances: dict[str, list[InstanceInfo]] = field(default_factory=dict)
    instances_listed_at: float | None = None
    unregistered_since: dict[str, float] = field(default_factory=dict)
    mismatch_since: dict[str, tuple[int, float]] = field(default_factory=dict)
    errors_seen: set[str] = field(default_factory=set)
    templates: dict[str, JsonObject] = field(default_factory=dict)
    unneeded_since: dict[str, float] = field(default_factory=dict)
    deletions: dict[str, Deletion] = field(default_factory=dict)
    deleted_at: dict[str, float] = field(default_factory=dict)
    added_at: float | None = None
    removed_at: float | None = None
    failed_at: float | None = None
    journal: list[Happening] = field(default_factory=list)
    cleaned: bool = False

    def backed_off(self, group: str, now: float) -> bool:
        """Whether the group is left alone now."""
        backoff = self.backoffs.get(group)
        return backoff is not None and now < backoff.until

    def back_off(self, group: str, why: str, now: float, times: Times) -> None:
        """Leave the group alone, for twice as long as the last time unless that is long ago."""
        before = self.backoffs.get(group)
        duration = times.initial_backoff
        if before is not None and now - before.failed_at < times.backoff_reset:
            duration = min(before.duration * 2, times.max_backoff)
        self.backoffs[group] = Backoff(now + duration, duration, now, why)

    def request(self, group: str, delta: int, now: float) -> None:
        """Note an increase that the provider accepted."""
        known = self.requests.get(group)
        if known is None:
            self.requests[group] = ScaleUpRequest(delta, now)
        else:
            known.increase += delta
            known.at = now
        self.added_at = now
