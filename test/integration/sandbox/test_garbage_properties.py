"""Random families of objects, deleted in random ways, against a few lines that say what should be left."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.resources import CONFIG_MAPS, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing.world import run_story

SIZE = 7


@st.composite
def families(draw):
    """Owners of each object, all of them older than it; then deletes with a policy."""
    owners = [draw(st.sets(st.integers(0, max(index - 1, 0)), max_size=2)) if index else set() for index in range(SIZE)]
    blocking = draw(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE))
    policies = st.sampled_from(["Background", "Foreground", "Orphan"])
    deletes = draw(st.lists(st.tuples(st.integers(0, SIZE - 1), policies), min_size=1, max_size=4))
    return owners, blocking, deletes


def expected(owners, deletes):
    """Who is left: those with an owner left, and those who never had one or were set free."""
    owners = {index: set(found) for index, found in enumerate(owners)}
    for victim, policy in deletes:
        if victim not in owners:
            continue
        if policy == "Orphan":
            for found in owners.values():
                found.discard(victim)
        del owners[victim]
        while True:
            dead = [index for index, found in owners.items() if found and not (found & set(owners))]
            if not dead:
                break
            for index in dead:
                del owners[index]
        # A reference to one that is gone is dropped while another owner is left.
        owners = {index: found & set(owners) for index, found in owners.items()}
    return set(owners)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(families())
def test_what_is_left_is_what_has_an_owner_left_or_never_had_one(family):
    owners, blocking, deletes = family

    async def story(world):
        made = []
        for index, found in enumerate(owners):
            references = [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": f"o{owner}",
                    "uid": made[owner]["metadata"]["uid"],
                    "blockOwnerDeletion": blocking[index],
                }
                for owner in sorted(found)
            ]
            body = {"metadata": {"name": f"o{index}", "ownerReferences": references}}
            made.append(await world.create(CONFIG_MAPS, body))
        done = []
        for victim, policy in deletes:
            done.append((victim, policy))
            try:
                await world.admin.delete(path(CONFIG_MAPS, "default", f"o{victim}"), {"propagationPolicy": policy})
            except ApiStatusError as error:
                if error.code != 404:
                    raise
            wanted = {f"o{index}" for index in expected(owners, done)}

            async def settled(wanted=wanted):
                return {item["metadata"]["name"] for item in await world.items(CONFIG_MAPS)} == wanted

            await world.eventually(settled, f"{sorted(wanted)} are left after {done}", within=20)
            await world.advance(1)
        assert await settled(), "and they stay"

    run_story(story, ControlPlaneOptions(simulators=SimulatorOptions(scheduler=False, host_node=False)))
