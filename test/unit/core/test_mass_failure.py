from homelab_autoscaler.lifecycle.pool import held_until, suspicion
from homelab_autoscaler.settings import Settings

SETTINGS = Settings()


def pool(make, off_at, on=0, marked=0):
    def ready(name, since=None, **kwargs):
        conditions = (
            [{"type": "MachineObservedOff", "status": "True", "lastTransitionTime": make.at(since).isoformat()}]
            if since is not None
            else []
        )
        return make.claim(name, phase="ready", conditions=conditions, **kwargs)

    return (
        [ready(f"off-{i}", since) for i, since in enumerate(off_at)]
        + [ready(f"on-{i}") for i in range(on)]
        + [ready(f"marked-{i}", 0, marked=True) for i in range(marked)]
    )


def test_three_of_five_machines_going_off_within_two_minutes_make_the_pool_suspect(make):
    found = suspicion(pool(make, [0, 60, 120], on=2), SETTINGS)
    assert found is not None
    assert (found.off, found.ready, found.since) == (3, 5, make.at(120))
    assert found.until == make.at(120 + 730)


def test_half_of_the_pool_is_not_more_than_half(make):
    assert suspicion(pool(make, [0, 0, 0], on=3), SETTINGS) is None


def test_two_machines_are_never_a_mass_failure(make):
    assert suspicion(pool(make, [0, 0]), SETTINGS) is None


def test_machines_that_go_off_one_after_another_are_no_mass_failure(make):
    assert suspicion(pool(make, [0, 121, 242], on=1), SETTINGS) is None


def test_marked_claims_do_not_count(make):
    assert suspicion(pool(make, [0, 0], on=0, marked=5), SETTINGS) is None


def test_held_up_operations_go_one_by_one_after_the_wait(make):
    found = suspicion(pool(make, [0, 0, 0]), SETTINGS)
    assert held_until(found, 0, make.at(729), SETTINGS) == make.at(730)
    assert held_until(found, 0, make.at(730), SETTINGS) is None
    assert held_until(found, 2, make.at(745), SETTINGS) == make.at(750)
