"""Garbage collection, namespaces, budgets and workloads, on a manual clock."""

import pytest

from homelab_autoscaler.sandbox.apiserver import Fault
from homelab_autoscaler.sandbox.controllers.replicas import DEPLOYMENTS, REPLICA_SETS
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.resources import BUDGETS, CONFIG_MAPS, CRDS, NAMESPACES, PODS, SECRETS, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing.world import run_story

HOLD = "example.dev/hold"


def run(story, *machines):
    run_story(story, ControlPlaneOptions(simulators=SimulatorOptions(machines=machines, host_node=False)))


def quick(name):
    return MachineSpec(name, behaviour=Behaviour(boot_seconds=1.0, firmware_delay=0.0), initially_on=True)


def reference(owner, **more):
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **more,
    }


async def config_map(world, name, *owners, namespace="default", finalizers=(), **more):
    references = [reference(owner, **more) for owner in owners]
    meta = {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}
    return await world.create(CONFIG_MAPS, {"metadata": meta}, namespace)


async def there(world, resource, name, namespace="default"):
    answer = await world.admin.request("GET", path(resource, namespace, name))
    return answer.json() if answer.status == 200 else None


async def gone(world, resource, name, namespace="default", within=10):
    async def check():
        return await there(world, resource, name, namespace) is None

    await world.eventually(check, f"{resource.kind} {name} is gone", within=within)


async def delete(world, resource, name, policy="Background", namespace="default"):
    await world.admin.delete(path(resource, namespace, name), {"propagationPolicy": policy})


async def release(world, resource, name, namespace="default"):
    await world.admin.patch(path(resource, namespace, name), {"metadata": {"finalizers": None}})


def test_dependents_and_their_dependents_go_with_their_owner():
    async def story(world):
        owner = await config_map(world, "owner")
        kid = await config_map(world, "kid", owner)
        await world.create(SECRETS, {"metadata": {"name": "grandkid", "ownerReferences": [reference(kid)]}})
        await delete(world, CONFIG_MAPS, "owner")
        await gone(world, CONFIG_MAPS, "kid")
        await gone(world, SECRETS, "grandkid")

    run(story)


def test_a_dependent_of_two_owners_goes_when_both_are_gone():
    async def story(world):
        one, two = await config_map(world, "one"), await config_map(world, "two")
        await config_map(world, "kid", one, two)
        await delete(world, CONFIG_MAPS, "one")

        async def dropped():
            kid = await there(world, CONFIG_MAPS, "kid")
            return [owner["name"] for owner in kid["metadata"]["ownerReferences"]] == ["two"]

        await world.eventually(dropped, "the dead reference is dropped")
        await world.advance(60)
        assert await there(world, CONFIG_MAPS, "kid")
        await delete(world, CONFIG_MAPS, "two")
        await gone(world, CONFIG_MAPS, "kid")

    run(story)


def test_both_owners_gone_at_once_take_their_dependent():
    async def story(world):
        one, two = await config_map(world, "one"), await config_map(world, "two")
        await config_map(world, "kid", one, two)
        await delete(world, CONFIG_MAPS, "one")
        await delete(world, CONFIG_MAPS, "two")
        await gone(world, CONFIG_MAPS, "kid")

    run(story)


def test_an_owner_made_anew_under_its_name_is_another_owner():
    async def story(world):
        owner = await config_map(world, "owner")
        await config_map(world, "kid", owner)
        await delete(world, CONFIG_MAPS, "owner")
        await config_map(world, "owner")
        await gone(world, CONFIG_MAPS, "kid")
        assert await there(world, CONFIG_MAPS, "owner")

    run(story)


def test_an_owner_in_foreground_deletion_waits_for_dependents_that_block_it():
    async def story(world):
        owner = await config_map(world, "owner")
        await config_map(world, "kid", owner, finalizers=[HOLD], blockOwnerDeletion=True)
        await delete(world, CONFIG_MAPS, "owner", "Foreground")

        async def marked():
            return "deletionTimestamp" in (await there(world, CONFIG_MAPS, "kid"))["metadata"]

        await world.eventually(marked, "the dependent is being deleted")
        await world.advance(60)
        assert (await there(world, CONFIG_MAPS, "owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
        await release(world, CONFIG_MAPS, "kid")
        await gone(world, CONFIG_MAPS, "owner")
        assert await there(world, CONFIG_MAPS, "kid") is None

    run(story)


def test_a_circle_of_owners_in_foreground_deletion_is_broken():
    async def story(world):
        one = await config_map(world, "one")
        two = await config_map(world, "two", one, blockOwnerDeletion=True)
        circle = {"metadata": {"ownerReferences": [reference(two, blockOwnerDeletion=True)]}}
        await world.admin.patch(path(CONFIG_MAPS, "default", "one"), circle)
        await world.advance(1)
        await delete(world, CONFIG_MAPS, "one", "Foreground")
        await gone(world, CONFIG_MAPS, "two")
        await gone(world, CONFIG_MAPS, "one")

    run(story)


def test_orphans_stay_without_their_owner():
    async def story(world):
        owner = await config_map(world, "owner")
        await config_map(world, "kid", owner)
        await delete(world, CONFIG_MAPS, "owner", "Orphan")
        await gone(world, CONFIG_MAPS, "owner")
        await world.advance(60)
        assert "ownerReferences" not in (await there(world, CONFIG_MAPS, "kid"))["metadata"]

    run(story)


def test_an_owner_of_a_kind_that_is_not_served_is_waited_for():
    async def story(world):
        stranger = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u-1"}}
        await config_map(world, "kid", stranger)
        await world.advance(120)
        assert await there(world, CONFIG_MAPS, "kid")

    run(story)


def test_custom_objects_are_collected_also_of_kinds_that_come_later():
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "metadata": {"name": "things.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }

    async def story(world):
        await world.create(CRDS, definition)
        things = "/apis/example.dev/v1/namespaces/default/things"

        async def served():
            return (await world.admin.request("GET", things)).status == 200

        await world.eventually(served, "the kind is served")
        body = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "owner"}}
        owner = await world.admin.create(things, body)
        meta = {"name": "kid", "ownerReferences": [reference(owner)]}
        kid = await world.admin.create(things, {**body, "metadata": meta})
        await config_map(world, "grandkid", kid)
        await world.advance(1)
        await world.admin.delete(f"{things}/owner", {"propagationPolicy": "Background"})
        await gone(world, CONFIG_MAPS, "grandkid")
        assert (await world.admin.list(things))["items"] == []

    run(story)


def test_a_deleted_namespace_empties_itself_and_goes():
    async def story(world):
        await world.create(NAMESPACES, {"metadata": {"name": "doomed"}}, None)
        await config_map(world, "a", namespace="doomed")
        await config_map(world, "held", namespace="doomed", finalizers=[HOLD])
        await world.admin.delete(path(NAMESPACES, name="doomed"))
        await gone(world, CONFIG_MAPS, "a", "doomed")

        async def told():
            space = await world.admin.get(path(NAMESPACES, name="doomed"))
            return {item["type"]: item for item in space["status"].get("conditions", [])}

        conditions = await world.eventually(told, "the namespace says what holds it")
        assert f"{HOLD} in 1 resource instances" in conditions["NamespaceFinalizersRemaining"]["message"]
        assert "configmaps has 1 resource instances" in conditions["NamespaceContentRemaining"]["message"]
        await release(world, CONFIG_MAPS, "held", "doomed")
        await gone(world, NAMESPACES, "doomed", None)
        await world.create(NAMESPACES, {"metadata": {"name": "doomed"}}, None)
        await config_map(world, "a", namespace="doomed")

    run(story)


def deployment(replicas, image="x", name="web"):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


async def available(world, count):
    async def check():
        status = (await world.get(DEPLOYMENTS, "web"))["status"]
        pods = [pod for pod in await world.items(PODS) if "deletionTimestamp" not in pod["metadata"]]
        return status.get("availableReplicas", 0) == count and len(pods) == count

    await world.eventually(check, f"{count} replicas are available", within=120)


def test_a_deployment_keeps_its_pods_through_deletion_scaling_and_a_new_image():
    async def story(world):
        await world.create(DEPLOYMENTS, deployment(2))
        await available(world, 2)
        first = (await world.items(PODS))[0]["metadata"]["name"]
        await world.admin.delete(path(PODS, "default", first))
        await available(world, 2)
        assert await there(world, PODS, first) is None
        await world.admin.patch(path(DEPLOYMENTS, "default", "web", "scale"), {"spec": {"replicas": 1}})
        await available(world, 1)
        image = [{"name": "c", "image": "y"}]
        await world.admin.patch(
            path(DEPLOYMENTS, "default", "web"), {"spec": {"template": {"spec": {"containers": image}}}}
        )

        async def renewed():
            pods = await world.items(PODS)
            return [pod["spec"]["containers"][0]["image"] for pod in pods] == ["y"]

        await world.eventually(renewed, "the pod runs the new image", within=120)
        assert len(await world.items(REPLICA_SETS)) == 2
        await delete(world, DEPLOYMENTS, "web")

        async def empty():
            return not await world.items(PODS) and not await world.items(REPLICA_SETS)

        await world.eventually(empty, "everything is gone", within=60)

    run(story, quick("m1"))


async def evict(world, name):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    return await world.admin.request("POST", path(PODS, "default", name, "eviction"), body=body)


def test_a_budget_lets_a_drain_go_on_only_as_fast_as_replacements_get_ready():
    async def story(world):
        await world.create(DEPLOYMENTS, deployment(2))
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
        await world.create(BUDGETS, budget)
        await available(world, 2)
        names = [pod["metadata"]["name"] for pod in await world.items(PODS)]
        assert (await evict(world, names[0])).status == 429
        await world.admin.patch(path(BUDGETS, "default", "b"), {"spec": {"minAvailable": 1}})

        async def allowed():
            return (await world.get(BUDGETS, "b"))["status"]["disruptionsAllowed"] == 1

        await world.eventually(allowed, "one disruption is allowed")
        assert (await evict(world, names[0])).status == 201
        assert (await evict(world, names[1])).status == 429
        await gone(world, PODS, names[0])
        await available(world, 2)
        await world.eventually(allowed, "one disruption is allowed again")
        assert (await evict(world, names[1])).status == 201

    run(story, quick("m1"), quick("m2"))


FAULTS = {
    "watches are cut": Fault(kind="watch-cut", events=2, count=60),
    "revisions expire": Fault(kind="watch-expired", events=1, count=40),
    "writes conflict": Fault(kind="conflict", probability=0.3, count=60),
    "replies are lost": Fault(kind="drop-reply", probability=0.2, count=60),
    "the server is overloaded": Fault(kind="too-many-requests", probability=0.3, count=60),
    "the server is ill": Fault(kind="error", code=503, probability=0.3, count=60),
    "events come twice": Fault(kind="duplicate-event"),
}


@pytest.mark.parametrize("title", FAULTS)
def test_the_cluster_converges_although(title):
    async def story(world):
        world.plane.server.faults.add(FAULTS[title])
        await asked(lambda: world.create(DEPLOYMENTS, deployment(3)), world)
        await asked(lambda: available(world, 3), world)
        owner = await asked(lambda: there(world, DEPLOYMENTS, "web"), world)
        assert owner is not None
        await asked(lambda: delete(world, DEPLOYMENTS, "web"), world)

        async def empty():
            return not await world.items(PODS) and not await world.items(REPLICA_SETS)

        await asked(lambda: world.eventually(empty, "everything is gone", within=120), world)
        created = [write for write in world.plane.server.writes if write.resource == "pods" and write.type == "ADDED"]
        assert len(created) == 3

    run(story, quick("m1"))


async def asked(action, world):
    """A person asks again until the server answers; what was done by a lost request is found done."""
    for _ in range(200):
        try:
            return await action()
        except ConnectionError:
            await world.advance(0.1)
        except ApiStatusError as error:
            if error.reason in ("AlreadyExists", "NotFound"):
                return None
            await world.advance(0.1)
    raise AssertionError("the server never answered")
