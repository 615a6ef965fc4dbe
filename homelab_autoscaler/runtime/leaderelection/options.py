"""Numbers and names of an election."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass, field

JITTER = 1.2


def new_identity() -> str:
    """`<hostname>_<random uuid>`: two processes never share one, not even on one host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """Which Lease decides, and how patiently. Times in seconds.

    Attributes:
        name: of the Lease.
        namespace: of the Lease; None takes the client configuration's.
        lease_duration: how long others wait after the last change they saw before they take over.
        renew_deadline: how long a leader tries to renew before it gives up.
        retry_period: between two tries.
        release_on_stop: hand the lease over after a clean stop instead of letting others wait.
        identity: of this process.

    Raises:
        ValueError: lease_duration > renew_deadline > retry_period x 1.2 does not hold.
    """

    name: str
    namespace: str | None = None
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_stop: bool = True
    identity: str = field(default_factory=new_identity)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("leader election needs the name of a Lease")
        if self.retry_period <= 0 or self.renew_deadline <= self.retry_period * JITTER:
            raise ValueError(
                f"leader election: renew_deadline ({self.renew_deadline:g} s) must be longer than "
                f"{JITTER:g} x retry_period ({self.retry_period:g} s), which must be positive"
            )
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"leader election: lease_duration ({self.lease_duration:g} s) must be longer than "
                f"renew_deadline ({self.renew_deadline:g} s)"
            )
