"""Much of a pool going off at once is a power cut or a partition, not so many wishes. On virtual time."""

import itertools

import pytest
from virtual.rest import commands_of_jobs

from homelab_api.v2alpha1 import Group, GroupCondition

pytestmark = pytest.mark.faults

NAMES = ["m0", "m1", "m2", "m3"]


@pytest.fixture
def dark(cluster):
    """Four ready machines, of which three have lost their power."""
    for name in [*NAMES, "spare"]:
        cluster.machine(name, boot_seconds=10)
    claims = {name: cluster.claim(name) for name in NAMES}
    cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims.values()))
    for name in NAMES[1:]:
        cluster.in_loop(cluster.at(name).cut_power)
    cluster.until("suspect", lambda: suspect(cluster))
    return claims


def suspect(cluster):
    return cluster.condition(cluster.get(Group, "pool"), GroupCondition.POOL_SUSPECT)


def ended(cluster, claims):
    return [name for name, claim in claims.items() if cluster.reason(claim) == "MachineGone"]


def test_a_suspect_pool_says_so_and_is_itself_again_when_half_are_back(cluster, dark):
    assert "3 of 4 ready machines went off together" in suspect(cluster).message
    assert cluster.reasons("pool").count("PoolSuspect") == 1
    for name in NAMES[1:3]:
        cluster.in_loop(cluster.at(name).press_button)
    cluster.until("recovered", lambda: not suspect(cluster), within=120)
    cluster.run(800)
    assert ended(cluster, dark) == ["m3"], "one machine that is gone is gone"
    assert all(cluster.phase(dark[name]) == "ready" for name in NAMES[:3])


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_suspect_pool_holds_up_goes_one_by_one_after_its_wait_and_wishes_are_not_held_up(
    cluster, dark, restarted
):
    seen = cluster.seconds
    cluster.unclaim(dark["m0"])
    wanted = cluster.claim("spare")
    cluster.until("a boot and a withdrawal go on", lambda: cluster.phase(wanted) == "ready", within=300)
    cluster.until("off", lambda: commands_of_jobs(cluster, "m0") == ["on", "off"], within=300)
    if restarted:
        cluster.restart()
    window = cluster.settings.boot_window()
    cluster.run(2 * window - (cluster.seconds - seen) - 30)
    assert ended(cluster, dark) == [], "the pool's wait, and then each claim's own"
    at = {}
    while len(at) < 3:
        assert cluster.seconds - seen < 2 * window + 200
        for name in ended(cluster, dark):
            at.setdefault(name, cluster.seconds)
        cluster.run(1)
    times = sorted(at.values())
    assert all(later - earlier >= 9 for earlier, later in itertools.pairwise(times)), times
    assert all(commands_of_jobs(cluster, name) == ["on"] for name in NAMES[1:])
