"""Fault plans of the reference workloads: a manager broken at any of its writes ends where a clean run ends.

On virtual time all of them are run, but for what repeats: at writes of mere reports, and at equal writes of several
rounds. With threads, caches and an election, on true time, a part is run, the same part every time; FAULTS_SEED chooses
another one. `make faults` runs the whole set. See docs/testing.md.
"""

import os

import pytest
from lab.interposer import KILLS, Fault
from lab.plans import one_of_each_kind, perturb, plans, recorded
from lab.stories import STORIES
from virtual.telling import VirtualWorld

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SEED = os.environ.get("FAULTS_SEED", "0")
KILLED = 1 / 3
BROKEN = 1 / 12


def failures(world, story, clean, chosen, at_once):
    verdicts = perturb(world, story, clean, chosen, at_once)
    return [str(verdict) for verdict in verdicts if verdict.problems]


def sample(chosen, part):
    return [plan for plan in chosen if plan.share(SEED) < part]


def possible(clean, story, faults):
    # A conflict at a report is handled in another way than at other writes: it is not an error there.
    chosen = plans(clean, faults, reports=faults == [Fault.CONFLICT])
    return one_of_each_kind(chosen, SEED) if story.rounds > 1 else chosen


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("story", STORIES, ids=str)
def test_an_operator_broken_at_any_write_ends_where_a_clean_run_ends(story, fault):
    world = VirtualWorld()
    clean = recorded(world, story, times=1)
    chosen = possible(clean, story, [fault])
    if story.rounds > 1 and fault not in KILLS:
        chosen = sample(chosen, KILLED)
    assert len(chosen) >= 3
    assert failures(world, story, clean, chosen, at_once=1) == []


@pytest.mark.any_control_plane
@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_whole_manager_broken_at_a_write_ends_where_a_clean_run_ends(world, story):
    clean = recorded(world, story)
    chosen = sample(possible(clean, story, KILLS), KILLED)
    chosen += sample(possible(clean, story, [fault for fault in Fault if fault not in KILLS]), BROKEN)
    assert chosen
    assert failures(world, story, clean, chosen, at_once=4) == []
