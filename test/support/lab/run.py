"""One telling of a story: where it can be told, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lab.interposer import Fault, Place
    from lab.oracle import Outcome
    from lab.stories import Story

CANARY = "canary-b1d7a0c4"
"""The password of every machine's controller: it must turn up nowhere."""


@dataclass
class Run:
    """How a story ended.

    Attributes:
        outcome: what the oracles compare; None if it did not end.
        places: writes of the first manager, in order.
        violations: what the monitors saw.
        failure: why it did not end; "" if it did.
        struck: whether the fault happened.
        seconds: how long it took.
    """

    outcome: Outcome | None
    places: list[Place]
    violations: list[str] = field(default_factory=list)
    failure: str = ""
    struck: bool = False
    seconds: float = 0.0


class Teller(Protocol):
    """Where stories can be told.

    Attributes:
        side_by_side: several at once.
    """

    side_by_side: bool

    def tell(self, story: Story, fault: Fault | None = None, at: int | Place = 0) -> Run:
        """Tell a story to a manager that is broken at one write and, if it died of that, started again."""
        ...
