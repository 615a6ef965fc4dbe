"""Every state of a slot that few changes of mind and few faults can lead to keeps the rules.

The default bound is for every change: about a minute on one core, with the guards. `MODEL_INTENTS`, `MODEL_FAULTS` and
`MODEL_SECONDS` (of processor time) widen it: all starts with one change of mind and one fault take about three minutes.
Run with `-s` to see how much was explored.
"""

import os

import pytest
from slotmodel import scenarios
from slotmodel.guards import GUARDS
from slotmodel.product import Product
from slotmodel.search import Search
from slotmodel.stored import forget_everything

SECONDS = float(os.environ.get("MODEL_SECONDS", "300"))
BOUNDS = {
    "a claim for a machine that is off": [(1, 0), (0, 1)],
    "a ready machine": [(1, 1)],
    "an unwanted machine": [(1, 1)],
    "two claims of one second": [(1, 0), (0, 1)],
    "a machine whose kubelet is not ready": [(1, 0), (0, 1)],
    "a machine that never joins": [(1, 0), (0, 1)],
    "a shutdown that lied": [(1, 0), (0, 1)],
}
"""(changes of mind, faults) that are exhausted by default."""


def cases():
    intents, faults = os.environ.get("MODEL_INTENTS"), os.environ.get("MODEL_FAULTS")
    for name, bounds in BOUNDS.items():
        wider = [(int(intents or 1), int(faults or 1))] if intents or faults else bounds
        for bound in wider:
            yield pytest.param(name, *bound, id=f"{name}, {bound[0]} intents, {bound[1]} faults")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "intents", "faults"), list(cases()))
def test_every_reachable_state_keeps_the_rules_and_finds_its_rest(monkeypatch, name, intents, faults):
    search = Search(Product(monkeypatch), max_seconds=SECONDS)
    result = search.run([scenarios.start(name, intents, faults)])
    forget_everything()
    print(f"\n{name}, {intents} intents, {faults} faults: {result.report()}")
    assert not result.rule, result.report()
    assert not result.surprises, result.report()
    assert result.complete or os.environ.get("MODEL_SECONDS"), result.report()


@pytest.mark.timeout(600)
def test_the_search_is_the_same_in_every_run(monkeypatch):
    runs = []
    for _ in range(2):
        result = Search(Product(monkeypatch)).run([scenarios.start("a ready machine", 1, 0)])
        forget_everything()
        runs.append((result.states, result.transitions))
    assert runs[0] == runs[1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", GUARDS)
def test_without_a_guard_there_is_a_counterexample(monkeypatch, name):
    guard = GUARDS[name]
    guard.remove(monkeypatch)
    search = Search(Product(monkeypatch), max_seconds=120)
    result = search.run([scenarios.start(guard.start, guard.intents, guard.faults)])
    forget_everything()
    print(f"\nwithout: {name}: {result.report()}")
    assert guard.breaks in result.rule, result.report()
    assert result.counterexample, result.report()
