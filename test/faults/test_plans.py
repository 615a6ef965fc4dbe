"""Fault plans of the reference workloads: a manager broken at any of its writes ends where a clean run ends.

What is run here is a part of the whole set, the same part every time; FAULTS_SEED chooses another one. `make faults`
runs the whole set. See docs/testing.md.
"""

import os

import pytest
from lab.interposer import KILLS, Fault
from lab.plans import one_of_each_kind, perturb, plans
from lab.stories import STORIES

pytestmark = [pytest.mark.any_control_plane, pytest.mark.faults, pytest.mark.timeout(900)]

SEED = os.environ.get("FAULTS_SEED", "0")
OTHERS = tuple(fault for fault in Fault if fault not in KILLS)
SAMPLE = 1 / 6


def failures(world, story, clean, chosen):
    verdicts = perturb(world, story, clean, chosen, at_once=4)
    return [str(verdict) for verdict in verdicts if verdict.problems]


@pytest.mark.parametrize("kill", KILLS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_manager_killed_at_any_write_of_an_operation_ends_where_a_clean_run_ends(world, clean_of, story, kill):
    clean = clean_of(story)
    chosen = plans(clean, [kill], reports=False)
    if story.rounds > 1:
        chosen = one_of_each_kind(chosen, SEED)
    assert len(chosen) >= 3
    assert failures(world, story, clean, chosen) == []


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_lost_reply_a_conflict_or_an_error_at_a_write_ends_where_a_clean_run_ends(world, clean_of, story):
    clean = clean_of(story)
    possible = one_of_each_kind(plans(clean, OTHERS, reports=True), SEED)
    chosen = [plan for plan in possible if plan.share(SEED) < SAMPLE]
    assert chosen
    assert failures(world, story, clean, chosen) == []
