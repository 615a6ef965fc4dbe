"""Release lines of Cluster Autoscaler that differ in what a provider sees."""

from __future__ import annotations

from enum import Enum


class Generation(Enum):
    """A release line, by its first release.

    V1_33 stands for everything from 1.29 to 1.33 and 1.34.0/1; V1_34 is 1.34.2 and later 1.34.
    """

    V1_33 = "1.33"
    V1_34 = "1.34"
    V1_35 = "1.35"
    V1_36 = "1.36"

    @property
    def old_fields(self) -> bool:
        """It writes and reads the Kubernetes-typed fields (spans in nanoseconds, `nodeInfo`)."""
        return self in {Generation.V1_33, Generation.V1_34}

    @property
    def new_fields(self) -> bool:
        """It writes and reads the well-known types and `nodeBytes`; it prefers them where it knows both."""
        return self is not Generation.V1_33

    @property
    def dies_without_durations(self) -> bool:
        """Options without a span end its process; later ones read a missing span as 0."""
        return self.old_fields

    @property
    def startup_time_by_group(self) -> bool:
        """It asks for a startup time per group that the protocol cannot carry, so returned options make it 0."""
        return self in {Generation.V1_35, Generation.V1_36}

    @property
    def asks_before_refresh(self) -> bool:
        """It asks for the group (and template) of ready nodes before the first Refresh."""
        return self in {Generation.V1_35, Generation.V1_36}

    @property
    def cordons(self) -> bool:
        """It cordons a node before ending it, by default."""
        return self is not Generation.V1_33

    @property
    def takes_back_timed_out_increases(self) -> bool:
        """It sends the negated sum of a scale-up that timed out to DecreaseTargetSize."""
        return self is Generation.V1_36

    @property
    def forgets_upcoming(self) -> bool:
        """Upcoming nodes count only while it remembers the request and the group is not backed off."""
        return self is Generation.V1_36

    @property
    def asks_template_after_delete(self) -> bool:
        """It asks for the group's template after a successful deletion."""
        return self is Generation.V1_36

    @property
    def dies_when_a_group_vanishes(self) -> bool:
        """A node whose group turns to none in the middle of its scale-down ends its process."""
        return self is not Generation.V1_36
