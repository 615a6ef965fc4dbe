"""An install whose manager was not there when people wrote: nobody was stopped, and the rules hold all the same."""

import pytest
from installed.claims import create_claim

from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE

pytestmark = pytest.mark.timeout(300)


def test_with_the_webhook_down_writes_pass_and_the_controllers_hold_the_same_rules(installed, pool, person):
    slot = installed.machine(pool, "blind", boot_seconds=60)
    older = create_claim(person, "older", slot)
    newer = create_claim(person, "newer", slot)
    pool.create_slot("sly", "sly", startup={"image": "local", "serviceAccount": MANAGER})
    sly = create_claim(person, "sly", "sly")
    with installed.manager():
        pool.until("the newest wins", lambda: pool.phase(newer) == "booting")
        pool.until("the older one ended", lambda: pool.phase(older) == "failed")
        ended = installed.client.get(NodeClaim, "older", POOLS_NAMESPACE)
        assert ended.status.reason == "Superseded"
        pool.until("the slot says why", lambda: said(pool.slot("sly")))
        assert pool.phase(sly) == "pending"
        assert not [job for job in pool.jobs() if job.name.startswith("sly")]
        installed.client.delete(NodeClaim, "newer", POOLS_NAMESPACE)
        pool.until("off again", lambda: pool.phase(newer) == "gone" or pool.phase(newer) == "completed")


def said(slot):
    return [entry for entry in slot.status.conditions if entry.reason == "PodNotAllowed" and entry.status == "True"]
