"""Fault plans of the reference workloads: a manager broken at any of its writes ends where a clean run ends."""

import pytest
from lab.interposer import KILLS
from lab.plans import perturb, plans, recorded
from lab.stories import STORIES

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ONE_ROUND = [story for story in STORIES if not story.name.endswith("three_times")]


@pytest.mark.parametrize("story", ONE_ROUND, ids=str)
def test_a_manager_killed_at_any_write_of_an_operation_ends_where_a_clean_run_ends(world, story):
    clean = recorded(world, story)
    chosen = plans(clean, KILLS, reports=False)
    assert len(chosen) >= 6
    verdicts = perturb(world, story, clean, chosen, at_once=4)
    assert [str(verdict) for verdict in verdicts if verdict.problems] == []
