"""Kill the manager at the writes of a recorded clean run; the end must be that of the clean run."""

import pytest
from lab import stories
from lab.interposer import Fault
from lab.plans import perturb, plans, run

pytestmark = [pytest.mark.any_control_plane, pytest.mark.faults, pytest.mark.timeout(600)]

STORIES = [stories.boot_and_return, stories.delete_while_booting, stories.slot_deleted_while_ready]


@pytest.mark.parametrize("story", STORIES)
def test_a_manager_killed_after_any_write_of_an_operation_ends_where_a_clean_run_ends(world, story):
    clean = run(world, story)
    assert clean.ledger == ["on", "off"]
    chosen = plans(clean, [Fault.KILL_AFTER], reports=False)
    assert len(chosen) >= 15
    assert perturb(world, story, clean, chosen, at_once=4) == []
