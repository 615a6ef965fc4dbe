"""Clocks that are wrong, jump or run locally, and passes that wake themselves: kinds clock, hot-loop, and restarts."""

from datetime import timedelta

import pytest

from homelab_api.v2alpha1 import ClaimCondition

HOUR = timedelta(hours=1)
DECADE = timedelta(days=3650)


@pytest.mark.parametrize("skew", [-30 * 86400, 30 * 86400])
def test_a_machine_whose_own_clock_is_a_month_off_boots_serves_and_goes_like_any_other(cluster, skew):
    cluster.machine(clock_skew=skew)
    claim = cluster.ready()
    cluster.run(3600)
    assert cluster.phase(claim) == "ready"
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands() == ["on", "off"]


def jump(cluster, by, back_after=None):
    """The operator's clock is set; with `back_after` it is put right again so many seconds later."""
    cluster.clock.skew = by
    cluster.operator.resync()
    if back_after is not None:
        cluster.run(back_after)
        cluster.clock.skew = timedelta()
        cluster.operator.resync()


JUMPS = [
    pytest.param(-HOUR, None, id="an hour back"),
    pytest.param(HOUR, 30, id="an hour on, for half a minute"),
    pytest.param(DECADE, None, id="ten years on"),
]


@pytest.mark.parametrize(("by", "back_after"), JUMPS)
class TestJumpsOfTheOperatorsClock:
    def test_never_end_a_ready_machine(self, cluster, by, back_after):
        for name in "abc":
            cluster.machine(name)
        claims = [cluster.claim(name) for name in "abc"]
        cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims), step=5)
        jump(cluster, by, back_after)
        cluster.run(1800)
        assert [cluster.phase(claim) for claim in claims] == ["ready"] * 3
        assert all(cluster.commands(name) == ["on"] for name in "abc")

    def test_do_not_cost_a_boot(self, cluster, by, back_after):
        cluster.machine()
        claim = cluster.claim()
        cluster.run(10)
        jump(cluster, by, back_after)
        cluster.until("ready", lambda: cluster.phase(claim) == "ready", within=300, step=5)
        assert cluster.commands() == ["on"]

    def test_do_not_save_a_machine_that_never_joins(self, cluster, by, back_after):
        cluster.machine(join_refused=True)
        claim = cluster.claim()
        cluster.run(10)
        jump(cluster, by, back_after)
        cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=1000, step=5)
        cluster.until("off", lambda: cluster.power() == "off", within=900, step=5)
        assert cluster.commands() == ["on", "off"]

    def test_neither_hasten_a_drain_nor_hold_it_up(self, cluster, by, back_after):
        cluster.machine()
        claim = cluster.ready()
        cluster.pod("app")
        cluster.budget("app", {"app": "app"})
        began = cluster.seconds
        cluster.unclaim(claim)
        cluster.run(10)
        jump(cluster, by, back_after)
        cluster.until("it is switched off", lambda: "off" in cluster.commands(), within=400, step=5)
        assert cluster.seconds - began >= 300
        cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=300, step=5)
        assert cluster.commands() == ["on", "off"]

    def test_leave_no_lock_behind_that_outlives_its_window(self, cluster, by, back_after):
        cluster.machine()
        claim = cluster.ready()
        cluster.script("off", "m", seconds=60)
        jump(cluster, by)
        cluster.unclaim(claim)
        cluster.until("locked", lambda: any("lock" in key for key in cluster.slot().metadata.annotations), within=60)
        cluster.kill()
        if back_after is not None:
            cluster.clock.skew = timedelta()
        cluster.start()
        cluster.operator.leadership.transitions = 0  # a Lease that somebody deleted: nobody's successor
        cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=900, step=5)
        assert cluster.power() == "off"


def test_an_operator_on_a_board_that_woke_in_another_year_boots_and_stops_machines(cluster):
    cluster.kill()
    cluster.clock.skew = -DECADE
    cluster.start()
    cluster.machine()
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=300, step=5)
    assert cluster.commands() == ["on", "off"]


def test_a_drain_whose_taint_bears_a_time_to_come_ends_all_the_same(cluster):
    """The cluster's own clock was wrong when the drain began, and was put right."""
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("app")
    cluster.budget("app", {"app": "app"})
    now = cluster.time.now()
    cluster.time.set(now + DECADE)
    cluster.unclaim(claim)
    cluster.until("it drains", lambda: cluster.node().spec.unschedulable)
    cluster.time.set(now)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone", within=900, step=5)
    assert cluster.commands() == ["on", "off"]


def test_ten_settled_slots_and_their_heartbeats_cause_no_write_in_half_an_hour(cluster):
    for number in range(10):
        cluster.machine(f"m{number}")
    claims = [cluster.claim(f"m{number}") for number in range(6)]
    cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims))
    cluster.run(300)
    since = cluster.plane.server.store.revision
    passes = sum(cluster.operator.passes.values())
    cluster.run(1800)
    written = cluster.writes(since)
    assert any("system:node:" in write.user for write in written), "the kubelets were not silent"
    assert [str(write) for write in written if "manager" in write.user] == []
    made = sum(cluster.operator.passes.values()) - passes
    assert made <= 10 * 2 * (1800 / cluster.settings.idle_resync) * 2.5


@pytest.mark.parametrize("restarts", [False, True])
def test_waits_end_when_their_objects_say_however_often_the_operator_restarts(cluster, restarts):
    def spend(seconds):
        for _ in range(int(seconds // 120)):
            cluster.run(120)
            if restarts:
                cluster.restart()

    cluster.machine()
    claim = cluster.ready()
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.until("seen", lambda: cluster.condition(cluster.fresh(claim), ClaimCondition.MACHINE_OBSERVED_OFF))
    spend(cluster.settings.boot_budget - 15)
    assert cluster.phase(claim) == "ready"
    cluster.run(135)
    assert cluster.reason(claim) == "MachineGone"

    cluster.machine("slow", join_refused=True)
    late = cluster.claim("slow")
    cluster.script("on", "slow", hangs=True)
    spend(240)
    assert cluster.phase(late) == "booting"
    cluster.run(240)
    assert cluster.phase(late) == "failed"
