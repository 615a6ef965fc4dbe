"""Boots against a time limit, as people reported them: docs/field-reports.md, kind boot-deadline."""

import pytest

from homelab_api.v2alpha1 import Call

DEADLINE = 900.0  # of a claim that the provider makes for a pool without a provision time of its own


def test_a_machine_that_always_needs_a_little_longer_than_it_may_is_tried_three_times_and_rests(cluster):
    cluster.machine(boot_seconds=cluster.settings.registration_wait + 30)
    cluster.keep_asking(1, 1700)
    assert cluster.commands() == ["on", "off"] * 3, "each failed boot is reversed once, and then nothing is sent"
    assert cluster.condition(cluster.slot(), "Exhausted")
    assert cluster.power() == "off"
    cluster.keep_asking(1, 1700)
    assert cluster.commands() == ["on", "off"] * 6, "after its rest the slot gets another streak, and not before"


def test_a_slow_machine_boots_within_the_time_that_its_pool_says(cluster):
    cluster.group(maxNodeProvisionTime="25m")
    cluster.machine(boot_seconds=1200)
    assert cluster.increase()
    claim = cluster.claims()[0]
    allowed = (claim.spec.deadline_at - claim.spec.requested_at).total_seconds()
    assert allowed >= 25 * 60
    cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=allowed)
    assert cluster.commands() == ["on"]


def test_a_pool_whose_machines_never_get_ready_never_has_more_of_them_on_than_asked_for(cluster):
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    for number in range(4):
        cluster.machine(f"m{number}", startup_taints=(taint,), startup_taints_clear=None)
    most = 0
    for _ in range(360):
        lacking = 2 - cluster.target()
        if lacking > 0:
            cluster.increase(lacking) or cluster.increase(1)
        cluster.run(10)
        wanted = cluster.target()
        on = sum(cluster.power(f"m{number}") != "off" for number in range(4))
        reversing = sum(claim.committed and not claim.wants_machine for claim in cluster.claims())
        assert on <= wanted + reversing
        most = max(most, on)
    assert most >= 2
    for number in range(4):
        assert cluster.commands(f"m{number}").count("on") <= 6, "two streaks in the hour at most"
    cluster.run(3600 - 1)
    assert all(cluster.power(f"m{number}") == "off" for number in range(4)), "no failed boot is left running"


def test_a_machine_that_joins_long_after_its_claim_was_collected_is_cordoned_and_switched_off(cluster):
    cluster.machine(boot_seconds=60)
    cluster.behave("m", join_refused=True)
    cluster.script("off", "m", sends=0, code=0)
    claim = cluster.claim(ttl_seconds_after_finished=120)
    cluster.until("the claim is collected", lambda: cluster.phase(claim) == "gone")
    assert cluster.power() == "up", "its shutdown script lied"
    cluster.run(3600)
    cluster.scripts.scripts.clear()
    cluster.behave("m", join_refused=False)
    cluster.until("it joins", lambda: cluster.node() is not None)
    assert cluster.target() == 0
    cluster.until("off again", lambda: cluster.power() == "off", within=300)
    writes = [str(write) for write in cluster.writes() if "node-m" in str(write)]
    assert cluster.commands() == ["on", "off"]
    assert writes


@pytest.mark.parametrize("late", [-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 3])
def test_a_boot_that_ends_at_its_deadline_has_one_verdict(cluster, late):
    cluster.group(maxNodeProvisionTime="730s")
    cluster.machine(boot_seconds=726 + late, firmware_delay=0)
    claim = cluster.claim()
    cluster.until("a verdict", lambda: cluster.phase(claim) in {"ready", "failed"})
    cluster.run(600)
    ends = [reason for reason in cluster.reasons(claim.name) if reason in {"ClaimReady", "ClaimFailed"}]
    assert len(ends) == 1
    if ends == ["ClaimReady"]:
        assert cluster.commands() == ["on"]
        assert cluster.phase(claim) == "ready"
    else:
        assert cluster.commands() == ["on", "off"]
        assert cluster.power() == "off"


@pytest.mark.parametrize("before", [0.2, 1, 2])
def test_a_claim_deleted_just_before_its_node_joins_leaves_no_node_and_no_running_machine(cluster, before):
    cluster.machine(boot_seconds=60, firmware_delay=1)
    claim = cluster.claim()
    cluster.until("booting", lambda: cluster.power() == "booting")
    cluster.run(60 - before)
    cluster.unclaim(claim, "DeletedByHand")
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.run(300)
    assert cluster.power() == "off"
    assert cluster.node() is None
    assert cluster.commands() == ["on", "off"]
    again = cluster.ready(call=Call.MANUAL)
    assert not cluster.node().spec.unschedulable
    assert cluster.phase(again) == "ready"
