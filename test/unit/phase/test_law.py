"""The input law, row by row and by property."""

import itertools

import pytest

from homelab_api.v2alpha1 import ClaimPhase, PowerState, SlotPhase
from homelab_autoscaler.phase import (
    LAW,
    ClaimFact,
    ClaimKind,
    Input,
    MachineState,
    Operation,
    derive,
    fires,
    free,
    may_release,
    row,
    state,
)

ON, OFF = PowerState.ON, PowerState.OFF
PENDING = ClaimFact(ClaimPhase.PENDING, uid="u", name="c")
BOOTING = ClaimFact(ClaimPhase.BOOTING, uid="u", name="c")
READY = ClaimFact(ClaimPhase.READY, uid="u", name="c")
FAILED = ClaimFact(ClaimPhase.FAILED, uid="u", name="c")
COMPLETED = ClaimFact(ClaimPhase.COMPLETED, uid="u", name="c")
MARKED = [
    ClaimFact(phase, marked=True, uid="u", name="c")
    for phase in (ClaimPhase.PENDING, ClaimPhase.BOOTING, ClaimPhase.READY)
]
ENDED = [FAILED, COMPLETED, ClaimFact(ClaimPhase.FAILED, marked=True), ClaimFact(ClaimPhase.COMPLETED, marked=True)]

START, STOP = Operation.START_NODE, Operation.SHUTDOWN_NODE
S = MachineState

# The table of the specification, written out once more by hand: claim, power, usable, report, state, fires.
SPECIFIED = [
    *[(1, None, OFF, usable, "off", S.SHUTDOWN, None) for usable in (True, False)],
    *[(2, None, ON, usable, "draining", S.READY, STOP) for usable in (True, False)],
    (3, PENDING, OFF, False, "pending", S.SHUTDOWN, START),
    *[(4, PENDING, ON, usable, "booting", S.STARTINGUP, None) for usable in (True, False)],
    *[(5, BOOTING, power, usable, "booting", S.STARTINGUP, None) for power in (ON, OFF) for usable in (True, False)],
    (6, READY, ON, True, "ready", S.READY, None),
    (7, READY, ON, False, "booting", S.STARTINGUP, None),
    (8, READY, OFF, False, "booting", S.STARTINGUP, None),
    *[(9, claim, ON, usable, "draining", S.READY, STOP) for claim in MARKED for usable in (True, False)],
    *[(10, claim, OFF, False, "off", S.SHUTDOWN, None) for claim in MARKED],
    *[(11, claim, ON, usable, "draining", S.READY, STOP) for claim in ENDED for usable in (True, False)],
    *[(12, claim, OFF, False, "off", S.SHUTDOWN, None) for claim in ENDED],
]


@pytest.mark.parametrize(("number", "claim", "power", "usable", "report", "machine", "operation"), SPECIFIED)
def test_each_row_of_the_specification(number, claim, power, usable, report, machine, operation):
    value = Input(claim=claim, power=power, usable=usable)
    assert row(value).number == number
    assert derive(value) == report
    assert state(value) is machine
    assert fires(value) is operation


@pytest.mark.parametrize("claim", [None, PENDING, BOOTING, READY, *MARKED, *ENDED])
@pytest.mark.parametrize(("power", "machine"), [(ON, S.READY), (OFF, S.SHUTDOWN)])
def test_row_0_a_held_machine_is_left_alone_whatever_claims_say(claim, power, machine):
    value = Input(held=True, claim=claim, power=power, usable=power is ON, debt=True, kubelet_alive=True)
    assert row(value).number == 0
    assert derive(value) is SlotPhase.RECLAIMED
    assert state(value) is machine
    assert fires(value) is None
    assert not free(value)


@pytest.mark.parametrize("claim", [None, *MARKED, *ENDED])
def test_footnote_1_a_shutdown_in_flight_is_shuttingdown_and_is_not_fired_again(claim):
    value = Input(claim=claim, power=ON, shutdown_in_flight=True)
    assert state(value) is S.SHUTTINGDOWN
    assert derive(value) is SlotPhase.DRAINING
    assert fires(value) is None


@pytest.mark.parametrize("claim", [PENDING, BOOTING, READY])
def test_footnote_1_says_nothing_about_a_machine_that_is_wanted(claim):
    value = Input(claim=claim, power=ON, usable=True, shutdown_in_flight=True)
    assert state(value) is not S.SHUTTINGDOWN


def test_a_request_waits_for_the_shutdown_job_before_it_boots_the_machine_again():
    assert fires(Input(claim=PENDING, power=OFF, shutdown_in_flight=True)) is None
    assert fires(Input(claim=PENDING, power=OFF)) is START


@pytest.mark.parametrize("claim", [*MARKED, *ENDED])
def test_footnote_3_debt_makes_an_off_machine_count_as_on(claim):
    value = Input(claim=claim, power=OFF, debt=True)
    assert derive(value) is SlotPhase.DRAINING
    assert state(value) is S.READY
    assert fires(value) is STOP
    assert not free(value)
    assert not may_release(value)
    assert state(Input(claim=claim, power=OFF, debt=True, shutdown_in_flight=True)) is S.SHUTTINGDOWN


def test_footnote_3_debt_does_not_exist_without_a_claim_that_carries_it():
    value = Input(claim=None, power=OFF, debt=True)
    assert fires(value) is None
    assert free(value)


@pytest.mark.parametrize("claim", [None, *MARKED, *ENDED])
def test_footnote_3_a_kubelet_that_renews_makes_an_off_machine_count_as_on(claim):
    value = Input(claim=claim, power=OFF, kubelet_alive=True)
    assert derive(value) is SlotPhase.DRAINING
    assert fires(value) is STOP
    assert not free(value)
    assert not may_release(value)


@pytest.mark.parametrize("claim", [PENDING, READY])
def test_footnote_3_does_not_touch_rows_of_a_wanted_machine(claim):
    plain = Input(claim=claim, power=OFF)
    owing = Input(claim=claim, power=OFF, debt=True, kubelet_alive=True)
    assert row(owing) is row(plain)


@pytest.mark.parametrize("claim", [*MARKED, *ENDED])
def test_a_claim_is_released_only_when_off_is_confirmed(claim):
    assert not may_release(Input(claim=claim, power=OFF))
    assert may_release(Input(claim=claim, power=OFF, off_confirmed=True))
    assert not may_release(Input(claim=claim, power=ON, off_confirmed=True))
    assert not may_release(Input(claim=claim, power=OFF, off_confirmed=True, debt=True))


@pytest.mark.parametrize("claim", [None, *ENDED])
def test_a_free_slot_has_no_live_claim_and_a_machine_that_is_off(claim):
    assert free(Input(claim=claim, power=OFF))
    assert not free(Input(claim=claim, power=ON))


@pytest.mark.parametrize("claim", [PENDING, BOOTING, READY, *MARKED])
def test_a_slot_with_a_live_claim_is_not_free(claim):
    assert not free(Input(claim=claim, power=OFF, off_confirmed=True))


CLAIMS = [
    None,
    *(ClaimFact(phase, marked=marked, uid="u", name="c") for phase in ClaimPhase for marked in (False, True)),
]
FACTS = [name for name in Input.__slots__ if name not in {"claim", "power"}]
EVERY_INPUT = [
    Input(claim=claim, power=power, **dict(zip(FACTS, values, strict=True)))
    for claim, power in itertools.product(CLAIMS, PowerState)
    for values in itertools.product((False, True), repeat=len(FACTS))
]
"""All there are: a sample would miss the one in a thousand that is a ready machine with nothing in the way."""

STATES_OF_A_REPORT = {
    SlotPhase.OFF: {S.SHUTDOWN},
    SlotPhase.PENDING: {S.SHUTDOWN},
    SlotPhase.BOOTING: {S.STARTINGUP},
    SlotPhase.READY: {S.READY},
    SlotPhase.DRAINING: {S.READY, S.SHUTTINGDOWN},
    SlotPhase.RECLAIMED: {S.READY, S.SHUTDOWN},
}


def test_every_input_has_exactly_one_row():
    for value in EVERY_INPUT:
        assert [entry.number for entry in LAW if entry.matches(value)] == [row(value).number]


def test_state_and_report_never_disagree():
    for value in EVERY_INPUT:
        assert state(value) in STATES_OF_A_REPORT[derive(value)]


def test_what_fires_can_be_triggered_from_the_state():
    for value in EVERY_INPUT:
        needed = {None: set(S), START: {S.SHUTDOWN}, STOP: {S.READY}}
        assert state(value) in needed[fires(value)]


def test_a_held_machine_is_never_powered():
    for value in EVERY_INPUT:
        if value.held:
            assert fires(value) is None


def test_a_machine_is_started_only_for_an_unmarked_pending_claim_and_only_when_it_is_off():
    for value in EVERY_INPUT:
        if fires(value) is START:
            assert value.claim is not None
            assert value.claim.phase is ClaimPhase.PENDING
            assert not value.claim.marked
            assert value.power is OFF


def test_a_wanted_machine_is_never_switched_off():
    for value in EVERY_INPUT:
        if fires(value) is STOP:
            assert value.claim is None or value.claim.marked or value.claim.phase.terminal
            assert value.power is ON or value.debt or value.kubelet_alive


def test_nothing_fires_beside_another_operation_or_between_rival_claims():
    for value in EVERY_INPUT:
        if value.shutdown_in_flight or value.contested or value.other_job_unfinished:
            assert fires(value) is None


def test_an_unwanted_machine_that_may_be_on_is_always_somebodys_work():
    for value in EVERY_INPUT:
        quiet = not (value.held or value.contested or value.shutdown_in_flight or value.other_job_unfinished)
        wanted = value.claim is not None and value.claim.phase.live and not value.claim.marked
        if quiet and not wanted and value.counts_as_on:
            assert fires(value) is STOP


def test_the_names_of_claims_change_nothing():
    for value in EVERY_INPUT:
        if value.claim:
            other = ClaimFact(value.claim.phase, marked=value.claim.marked, uid="other", name="other")
            changed = Input(**{name: getattr(value, name) for name in Input.__slots__} | {"claim": other})
            assert (row(changed), state(changed), fires(changed)) == (row(value), state(value), fires(value))


def test_a_slot_is_not_both_free_and_busy():
    for value in EVERY_INPUT:
        if free(value):
            assert fires(value) is None
            assert derive(value) is SlotPhase.OFF


def test_the_rows_are_numbered_in_order():
    assert [entry.number for entry in LAW] == list(range(13))


def test_every_kind_of_claim_has_rows():
    assert {kind for entry in LAW if not entry.held for kind in entry.claims} == set(ClaimKind)
