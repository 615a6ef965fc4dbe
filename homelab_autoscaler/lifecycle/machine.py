"""The node state machine: four states, six events, exactly the edges of state management.

The state is never stored: a machine is made for one event, seeded with what the law says (or, for the end of an
operation, with the operation that is ending). The work of an event runs *before* the state changes; if it raises,
the event did not happen. There are no side effects on entering a state, because the state has changed by then.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

from transitions import Machine

from homelab_autoscaler.phase import MachineState

if TYPE_CHECKING:
    from collections.abc import Callable


class Event(StrEnum):
    """What can happen to a machine."""

    START_NODE = "StartNode"
    SHUTDOWN_NODE = "ShutdownNode"
    JOB_COMPLETED = "JobCompleted"
    JOB_FAILED = "JobFailed"
    JOB_TIMEOUT = "JobTimeout"
    FORCE_CLEANUP = "ForceCleanup"


_S = MachineState
EDGES: Final[tuple[tuple[Event, MachineState, MachineState], ...]] = (
    (Event.START_NODE, _S.SHUTDOWN, _S.STARTINGUP),
    (Event.SHUTDOWN_NODE, _S.READY, _S.SHUTTINGDOWN),
    (Event.JOB_COMPLETED, _S.STARTINGUP, _S.READY),
    (Event.JOB_COMPLETED, _S.SHUTTINGDOWN, _S.SHUTDOWN),
    (Event.JOB_FAILED, _S.STARTINGUP, _S.SHUTDOWN),
    (Event.JOB_FAILED, _S.SHUTTINGDOWN, _S.READY),
    (Event.JOB_TIMEOUT, _S.STARTINGUP, _S.SHUTDOWN),
    (Event.JOB_TIMEOUT, _S.SHUTTINGDOWN, _S.READY),
    (Event.FORCE_CLEANUP, _S.STARTINGUP, _S.SHUTDOWN),
    (Event.FORCE_CLEANUP, _S.SHUTTINGDOWN, _S.SHUTDOWN),
)
"""(event, from, to): all there are."""


class NodeMachine:
    """A machine in one state, waiting for one event."""

    def __init__(self, state: MachineState) -> None:
        self._machine = Machine(
            model=self,
            states=[entry.value for entry in MachineState],
            transitions=[
                {"trigger": event.name.lower(), "source": origin.value, "dest": to.value, "before": "_run"}
                for event, origin, to in EDGES
            ],
            initial=state.value,
            auto_transitions=False,
            queued=True,
            model_attribute="current",
        )

    @property
    def state(self) -> MachineState:
        """The present state."""
        # The library sets the attribute on its model by name.
        return MachineState(cast("Any", self).current)

    def fire(self, event: Event, work: Callable[[], object]) -> MachineState:
        """Do the event's work and change the state.

        Raises:
            transitions.MachineError: the event is not possible in this state; nothing was done.
            Exception: whatever the work raises; the state is what it was.
        """
        getattr(self, event.name.lower())(work)
        return self.state

    def _run(self, work: Callable[[], object]) -> None:
        work()
