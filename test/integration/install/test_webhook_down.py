"""An install whose manager was not there when people wrote: nobody was stopped, and the rules hold all the same."""

import pytest
from installed.claims import create_claim

from homelab_autoscaler.install.roles import MANAGER

pytestmark = [pytest.mark.any_control_plane, pytest.mark.timeout(300)]


def test_with_the_webhook_down_writes_pass_and_the_controllers_hold_the_same_rules(installed, pool, person):
    slot = installed.machine(pool, "blind", boot_seconds=60)
    create_claim(person, "one", slot)
    create_claim(person, "two", slot)
    pool.create_slot("sly", "sly", startup={"image": "local", "serviceAccount": MANAGER})
    sly = create_claim(person, "sly", "sly")
    with installed.manager():
        # Within one second of creation the names' uids decide which of the two is the newer one.
        pool.until(
            "one of the two owns the slot",
            lambda: outcomes(pool, slot) == [("booting", None), ("failed", "Superseded")],
        )
        pool.until("the slot says why", lambda: said(pool.slot("sly")))
        pool.until("its claim ended", lambda: pool.phase(sly) == "failed")
        assert not [job for job in pool.jobs() if job.name.startswith("sly")]


def said(slot):
    return [entry for entry in slot.status.conditions if entry.reason == "PodNotAllowed" and entry.status == "True"]


def outcomes(pool, slot):
    claims = [claim for claim in pool.claims() if claim.slot_name == slot]
    return sorted((str(claim.phase), claim.status.reason if claim.phase == "failed" else None) for claim in claims)
