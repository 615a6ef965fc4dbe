"""Two managers at work at once: a lead that was handed over while its holder slept, and two releases by mistake."""

import pytest
from lab import steps
from lab.process import LEASE

from homelab_api.core import Lease

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def hand_over(scene, first):
    """A second manager leads while the first, cut off from the Lease, still believes that it does."""
    leases = first.hold(steps.renews_lead, count=None)
    scene.pool.until("its renewal is held", lambda: leases.reached)
    scene.pool.hand_over_lease(LEASE)
    before = scene.pool.client.get(Lease, LEASE, scene.pool.namespace).spec
    second = scene.watched_manager()
    scene.pool.until(
        "the second leads",
        lambda: (
            scene.pool.client.get(Lease, LEASE, scene.pool.namespace).spec.lease_transitions > before.lease_transitions
        ),
    )
    return second, leases


STEPS = {
    "the lock": steps.takes_lock,
    "the finalizer": steps.commits,
    "the Job": steps.creates_job("startup"),
    "the move to booting": steps.moves_to("booting"),
    "the release": steps.releases_job("startup"),
    "the record of the release": steps.records_request,
    "the move to ready": steps.moves_to("ready"),
}


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_lead_handed_over_in_the_middle_of_a_boot_ends_in_one_power_on(scene, step, answered):
    """The old leader's request arrives late (before), or its reply does (after); both act for a while."""
    first = scene.watched_manager()
    held = first.hold(STEPS[step], answered=answered)
    claim = scene.pool.claim(scene.machine)
    held.wait()
    _, leases = hand_over(scene, first)
    scene.pool.until("it has taken over", lambda: scene.pool.phase(claim) in {"booting", "ready"})
    held.let_go()
    scene.until_phase(claim, "ready")
    leases.let_go()
    assert scene.commands == ["on"]
    scene.pool.unclaim(claim)
    scene.until_at_rest()
    assert scene.commands == ["on", "off"]


SHUTDOWN_STEPS = {
    "the lock": steps.takes_lock,
    "the cordon": steps.cordons,
    "the count": steps.counts_shutdown,
    "the Job": steps.creates_job("shutdown"),
    "the release": steps.releases_job("shutdown"),
    "the end": steps.moves_to("completed"),
    "the finalizer": steps.lets_go,
}


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", SHUTDOWN_STEPS)
def test_a_lead_handed_over_in_the_middle_of_a_shutdown_ends_in_one_power_off(scene, step, answered):
    first = scene.watched_manager()
    claim = scene.ready()
    scene.pool.until("unlocked", lambda: "lock" not in str(scene.slot.metadata.annotations))
    held = first.hold(SHUTDOWN_STEPS[step], answered=answered)
    scene.pool.unclaim(claim)
    held.wait()
    _, leases = hand_over(scene, first)
    scene.pool.until("it has taken over", lambda: "off" in scene.commands)
    held.let_go()
    scene.until_at_rest()
    leases.let_go()
    assert scene.commands == ["on", "off"]


def test_two_managers_with_leases_of_their_own_never_act_at_once(scene_of, quick):
    """Two releases by mistake: neither knows of the other, and only locks, names and second reads keep them apart."""
    scene = scene_of(settings=quick(lock_timeout=3, off_settle=5))
    for lease in ("one", "two"):
        scene.manager(scene.proxy(), lease=lease)
    for _ in range(2):
        claim = scene.ready()
        scene.pool.unclaim(claim, "DeletedByHand")
        scene.until_at_rest()
    assert scene.commands == ["on", "off"] * 2
