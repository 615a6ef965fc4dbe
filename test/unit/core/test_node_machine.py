import itertools

import pytest
from transitions import MachineError

from homelab_autoscaler.lifecycle.machine import EDGES, Event, NodeMachine
from homelab_autoscaler.phase import MachineState

TABLE = {(event, origin): to for event, origin, to in EDGES}


@pytest.mark.parametrize(("event", "origin"), list(itertools.product(Event, MachineState)))
def test_an_event_moves_along_its_edge_or_raises_and_does_nothing(event, origin):
    machine, done = NodeMachine(origin), []
    if (event, origin) in TABLE:
        assert machine.fire(event, lambda: done.append(event)) is TABLE[event, origin]
        assert done == [event]
    else:
        with pytest.raises(MachineError):
            machine.fire(event, lambda: done.append(event))
        assert machine.state is origin
        assert done == []


def test_the_edges_are_those_of_state_management():
    expected = {
        ("StartNode", "shutdown", "startingup"),
        ("ShutdownNode", "ready", "shuttingdown"),
        ("JobCompleted", "startingup", "ready"),
        ("JobCompleted", "shuttingdown", "shutdown"),
        ("JobFailed", "startingup", "shutdown"),
        ("JobFailed", "shuttingdown", "ready"),
        ("JobTimeout", "startingup", "shutdown"),
        ("JobTimeout", "shuttingdown", "ready"),
        ("ForceCleanup", "startingup", "shutdown"),
        ("ForceCleanup", "shuttingdown", "shutdown"),
    }
    assert {(event.value, origin.value, to.value) for event, origin, to in EDGES} == expected


@pytest.mark.parametrize(("event", "origin", "to"), EDGES)
def test_work_that_raises_aborts_the_transition(event, origin, to):
    def work():
        raise RuntimeError("the API server said no")

    machine = NodeMachine(origin)
    with pytest.raises(RuntimeError, match="said no"):
        machine.fire(event, work)
    assert machine.state is origin
    machine.fire(event, lambda: None)
    assert machine.state is to


def test_the_state_is_still_the_old_one_while_the_work_runs():
    machine, seen = NodeMachine(MachineState.SHUTDOWN), []
    machine.fire(Event.START_NODE, lambda: seen.append(machine.state))
    assert seen == [MachineState.SHUTDOWN]


def test_there_are_no_automatic_transitions():
    assert not [name for name in dir(NodeMachine(MachineState.READY)) if name.startswith("to_")]
