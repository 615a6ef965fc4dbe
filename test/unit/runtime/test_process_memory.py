"""How a manager's process looks for garbage."""

import gc

from homelab_autoscaler.runtime.manager.process import rare_collections


def test_what_was_there_before_is_not_searched_and_all_is_as_before_afterwards():
    before = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0][0]
        assert gc.get_freeze_count() > 10_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
