"""What a cluster sees of machines that come, go, hang and lie, on a manual clock."""

import pytest

from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.kubelet.runtime import EXIT_CODE, READY_SECONDS, RUN_SECONDS, STOP_SECONDS
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec, Power
from homelab_autoscaler.sandbox.resources import EVENTS, LEASES, NODE_LEASES, NODES, PODS, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.world import run_story

CILIUM = {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}


def run(story, *machines, **options):
    simulators = SimulatorOptions(machines=machines or (machine(),), host_node=False, **options)
    run_story(story, ControlPlaneOptions(simulators=simulators))


def machine(name="m1", *, node=None, initially_on=True, **behaviour):
    quick = {"boot_seconds": 10.0, "firmware_delay": 0.0, **behaviour}
    return MachineSpec(name, node, Behaviour(**quick), initially_on=initially_on)


def condition(found, kind="Ready"):
    return next((item for item in found["status"].get("conditions", []) if item["type"] == kind), {"status": "absent"})


def taints(found):
    return sorted((item["key"].rpartition("/")[2], item["effect"]) for item in found["spec"].get("taints", []))


async def node_is(world, status, name="m1", within=120.0):
    async def check():
        found = await world.get(NODES, name)
        return found if condition(found)["status"] == status else None

    return await world.eventually(check, f"node {name} is Ready={status}", within=within, step=0.25)


async def missing(world, resource, name, namespace="default"):
    answer = await world.admin.request("GET", path(resource, namespace, name))
    return answer.status == 404


async def pod_is(world, phase, name="p", within=60.0):
    async def check():
        found = await world.get(PODS, name)
        return found if found["status"]["phase"] == phase else None

    return await world.eventually(check, f"pod {name} is {phase}", within=within)


async def pod_gone(world, name="p", within=60.0):
    await world.eventually(lambda: missing(world, PODS, name), f"pod {name} is gone", within=within)


def pod(name="p", annotations=None, **spec):
    meta = {"name": name, "annotations": annotations or {}, "labels": {"app": "x"}}
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def test_a_booted_machine_becomes_a_ready_node_with_a_lease():
    async def story(world):
        await world.advance(9)
        assert await missing(world, NODES, "m1")
        found = await node_is(world, "True")
        assert taints(found) == []
        assert found["status"]["allocatable"]["cpu"] == "4"
        lease = await world.get(LEASES, "m1", NODE_LEASES)
        assert lease["spec"]["holderIdentity"] == "m1"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
        await world.advance(11)
        again = await world.get(LEASES, "m1", NODE_LEASES)
        assert again["spec"]["renewTime"] > lease["spec"]["renewTime"]

    run(story)


def test_a_node_registers_as_its_machine_declares():
    spec = NodeSpec(
        "blade.lan",
        labels={"disk": "ssd"},
        provider_id="metal://blade",
        taints=({"key": "mine", "effect": "NoSchedule"},),
        capacity={"cpu": "8", "memory": "32Gi", "pods": "20"},
    )

    async def story(world):
        found = await node_is(world, "True", "blade.lan")
        assert found["metadata"]["labels"]["disk"] == "ssd"
        assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "blade.lan"
        assert found["spec"]["providerID"] == "metal://blade"
        assert taints(found) == [("mine", "NoSchedule")]
        assert found["status"]["capacity"] == {"cpu": "8", "memory": "32Gi", "pods": "20"}

    run(story, machine(node=spec))


def test_a_machine_without_power_is_ready_for_forty_seconds_more_and_then_unknown():
    async def story(world):
        await node_is(world, "True")
        await world.advance(5)
        world.plane.fleet["m1"].cut_power()
        await world.advance(29)
        assert condition(await world.get(NODES, "m1"))["status"] == "True"
        found = await node_is(world, "Unknown", within=15)
        ready = condition(found)
        assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        assert condition(found, "MemoryPressure")["status"] == "Unknown"

        async def tainted():
            return taints(await world.get(NODES, "m1")) == [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]

        await world.eventually(tainted, "the node is tainted")

    run(story)


def test_a_machine_that_comes_back_is_ready_again_without_taints():
    async def story(world):
        before = await node_is(world, "True")
        world.plane.fleet["m1"].cut_power()
        await node_is(world, "Unknown")
        world.plane.fleet["m1"].command("on", "test")
        after = await node_is(world, "True")

        async def clean():
            return taints(await world.get(NODES, "m1")) == []

        await world.eventually(clean, "the taints are gone")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
        assert "Rebooted" in [event["reason"] for event in await world.items(EVENTS)]

    run(story)


def test_a_short_reboot_goes_unnoticed_by_the_ready_condition():
    async def story(world):
        await node_is(world, "True")
        world.plane.fleet["m1"].reboot()
        for _ in range(30):
            await world.advance(1)
            assert condition(await world.get(NODES, "m1"))["status"] in ("True", "False")
        await node_is(world, "True")

    run(story)


def test_an_unchanged_status_is_reported_every_five_minutes():
    async def story(world):
        before = condition(await node_is(world, "True"))["lastHeartbeatTime"]
        await world.advance(240)
        assert condition(await world.get(NODES, "m1"))["lastHeartbeatTime"] == before
        await world.advance(80)
        assert condition(await world.get(NODES, "m1"))["lastHeartbeatTime"] > before

    run(story)


def test_a_hung_kubelet_makes_its_node_unknown_although_the_machine_is_on():
    async def story(world):
        await node_is(world, "True")
        found = world.plane.fleet["m1"]
        found.change(found.behaviour.changed({"kubelet_hung": True}))
        await node_is(world, "Unknown")
        assert found.power is Power.UP
        found.change(found.behaviour.changed({"kubelet_hung": False}))
        await node_is(world, "True")

    run(story)


@pytest.mark.parametrize("skew", [-86_400.0, 86_400.0])
def test_a_wrong_clock_on_the_machine_makes_no_node_unknown(skew):
    async def story(world):
        found = await node_is(world, "True")
        assert condition(found)["lastHeartbeatTime"][:10] != "2026-01-01"
        for _ in range(12):
            await world.advance(10)
            assert condition(await world.get(NODES, "m1"))["status"] == "True"
        world.plane.fleet["m1"].cut_power()
        await node_is(world, "Unknown", within=60)

    run(story, machine(clock_skew=skew))


def test_a_machine_that_is_not_let_in_has_no_node_until_it_is():
    async def story(world):
        await world.advance(300)
        found = world.plane.fleet["m1"]
        assert found.power is Power.UP
        assert await missing(world, NODES, "m1")
        found.change(found.behaviour.changed({"join_refused": False}))
        await node_is(world, "True")

    run(story, machine(join_refused=True))


def test_a_startup_taint_goes_when_the_agent_has_taken_it_away():
    async def story(world):
        found = await node_is(world, "True")
        assert ("agent-not-ready", "NoExecute") in taints(found)

        async def clean():
            return taints(await world.get(NODES, "m1")) == []

        await world.eventually(clean, "the taint is gone", within=20)

    run(story, machine(startup_taints=(CILIUM,), startup_taints_clear=10.0))


def test_a_startup_taint_can_stay_for_ever_and_be_healed():
    async def story(world):
        await node_is(world, "True")
        await world.advance(900)
        assert taints(await world.get(NODES, "m1")) == [("agent-not-ready", "NoExecute")]
        found = world.plane.fleet["m1"]
        found.change(found.behaviour.changed({"startup_taints_clear": 0}))

        async def clean():
            return taints(await world.get(NODES, "m1")) == []

        await world.eventually(clean, "the taint is gone", within=20)

    run(story, machine(startup_taints=(CILIUM,), startup_taints_clear=None))


def test_a_deleted_node_and_its_lease_do_not_come_back_while_the_kubelet_runs():
    async def story(world):
        await node_is(world, "True")
        await world.admin.delete(path(NODES, name="m1"))
        await world.eventually(lambda: missing(world, LEASES, "m1", NODE_LEASES), "the Lease is collected")
        await world.advance(300)
        assert await missing(world, NODES, "m1")
        assert await missing(world, LEASES, "m1", NODE_LEASES)
        world.plane.fleet["m1"].reboot()
        await node_is(world, "True")
        assert not await missing(world, LEASES, "m1", NODE_LEASES)

    run(story)


def test_a_node_left_from_before_is_taken_over_as_it_is():
    async def story(world):
        old = {
            "metadata": {"name": "m1", "labels": {"old": "yes"}},
            "spec": {"unschedulable": True, "providerID": "x://1"},
        }
        await world.create(NODES, old)
        world.plane.fleet["m1"].command("on", "test")
        found = await node_is(world, "True")
        assert found["metadata"]["labels"]["old"] == "yes"
        assert found["spec"]["unschedulable"] is True
        assert found["spec"]["providerID"] == "x://1"

        async def tainted():
            return taints(await world.get(NODES, "m1")) == [("unschedulable", "NoSchedule")]

        await world.eventually(tainted, "only the cordon is left")

    run(story, machine(initially_on=False, node=NodeSpec("m1", provider_id="x://2")))


def test_a_graceful_shutdown_says_not_ready_before_the_power_goes():
    async def story(world):
        await node_is(world, "True")
        world.plane.fleet["m1"].command("off", "test")
        found = await node_is(world, "False", within=3)
        assert condition(found)["message"] == "node is shutting down"
        assert world.plane.fleet["m1"].is_on
        await world.advance(10)
        assert not world.plane.fleet["m1"].is_on

    run(story, machine(announce_shutdown=True))


def test_a_pod_waits_for_a_machine_and_runs_when_it_is_there():
    async def story(world):
        await world.create(PODS, pod())

        async def told():
            return condition(await world.get(PODS, "p"), "PodScheduled")["status"] == "False"

        await world.eventually(told, "the pod is unschedulable", within=5)
        found = condition(await world.get(PODS, "p"), "PodScheduled")
        assert (found["reason"], found["message"]) == ("Unschedulable", "no nodes available to schedule pods")
        found = await pod_is(world, "Running")
        assert found["spec"]["nodeName"] == "m1"

        async def ready():
            return condition(await world.get(PODS, "p"))["status"] == "True"

        await world.eventually(ready, "the pod is ready")

    run(story)


def test_pods_that_do_not_fit_say_why_and_the_others_are_spread():
    async def story(world):
        await node_is(world, "True")
        await node_is(world, "True", "m2")
        big = {"resources": {"requests": {"cpu": "3"}}}
        for name in ("a", "b", "c"):
            await world.create(PODS, pod(name, containers=[{"name": "c", "image": "x", **big}]))
        await pod_is(world, "Running", "a")
        await pod_is(world, "Running", "b")
        nodes = {(await world.get(PODS, name))["spec"]["nodeName"] for name in ("a", "b")}
        assert nodes == {"m1", "m2"}
        found = condition(await world.get(PODS, "c"), "PodScheduled")
        assert found["message"] == "0/2 nodes are available: 2 Insufficient cpu."
        await world.admin.delete(path(PODS, "default", "a"))
        await pod_is(world, "Running", "c")

    run(story, machine(), machine("m2"))


def test_a_cordoned_node_takes_no_new_pods():
    async def story(world):
        await node_is(world, "True")
        await world.admin.patch(path(NODES, name="m1"), {"spec": {"unschedulable": True}})
        await world.create(PODS, pod())

        async def told():
            return condition(await world.get(PODS, "p"), "PodScheduled")["status"] == "False"

        await world.eventually(told, "the pod is unschedulable", within=5)
        await world.admin.patch(path(NODES, name="m1"), {"spec": {"unschedulable": None}})
        await pod_is(world, "Running")

    run(story)


def test_a_pod_with_a_life_of_its_own_ends_by_itself():
    async def story(world):
        spec = pod(annotations={RUN_SECONDS: "30", EXIT_CODE: "3"}, restartPolicy="Never")
        await world.create(PODS, spec)
        await pod_is(world, "Running")
        found = await pod_is(world, "Failed")
        assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3

    run(story)


def test_a_pod_that_ends_is_started_again_when_its_policy_says_so():
    async def story(world):
        await world.create(PODS, pod(annotations={RUN_SECONDS: "5", EXIT_CODE: "1"}))

        async def restarted():
            statuses = (await world.get(PODS, "p"))["status"].get("containerStatuses") or [{"restartCount": 0}]
            return statuses[0]["restartCount"] >= 3

        await world.eventually(restarted, "three restarts", within=120)
        assert (await world.get(PODS, "p"))["status"]["phase"] == "Running"

    run(story)


def test_a_pod_may_never_become_ready():
    async def story(world):
        await world.create(PODS, pod(annotations={READY_SECONDS: "-1"}))
        await pod_is(world, "Running")
        await world.advance(300)
        assert condition(await world.get(PODS, "p"))["status"] == "False"

    run(story)


def test_a_deleted_pod_goes_when_its_containers_have_stopped():
    async def story(world):
        await world.create(PODS, pod(annotations={STOP_SECONDS: "12"}))
        await pod_is(world, "Running")
        await world.admin.delete(path(PODS, "default", "p"))
        await world.advance(11)
        assert not await missing(world, PODS, "p")
        await pod_gone(world, within=2)

    run(story)


def test_a_pod_that_does_not_stop_is_killed_at_the_end_of_its_grace():
    async def story(world):
        await world.create(PODS, pod(annotations={STOP_SECONDS: "600"}, terminationGracePeriodSeconds=20))
        await pod_is(world, "Running")
        await world.admin.delete(path(PODS, "default", "p"))
        await world.advance(19)
        assert not await missing(world, PODS, "p")
        await pod_gone(world, within=2)

    run(story)


def test_a_grace_that_is_shortened_counts_at_once():
    async def story(world):
        await world.create(PODS, pod(annotations={STOP_SECONDS: "600"}, terminationGracePeriodSeconds=300))
        await pod_is(world, "Running")
        await world.admin.delete(path(PODS, "default", "p"))
        await world.advance(5)
        await world.admin.delete(path(PODS, "default", "p"), {"gracePeriodSeconds": 1})
        await pod_gone(world, within=2)

    run(story)


def test_pods_of_a_dead_machine_are_evicted_after_their_toleration_and_stay_until_somebody_removes_them():
    async def story(world):
        await world.create(PODS, pod("patient"))
        hasty = [
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 10,
            }
        ]
        await world.create(PODS, pod("hasty", tolerations=hasty))
        await pod_is(world, "Running", "patient")
        await pod_is(world, "Running", "hasty")
        await world.advance(5)
        world.plane.fleet["m1"].cut_power()
        await node_is(world, "Unknown")

        async def marked():
            return "deletionTimestamp" in (await world.get(PODS, "hasty"))["metadata"]

        await world.eventually(marked, "the hasty pod is evicted", within=15)
        found = await world.get(PODS, "hasty")
        assert condition(found, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert "deletionTimestamp" not in (await world.get(PODS, "patient"))["metadata"]
        assert condition(await world.get(PODS, "patient"))["reason"] == "NodeNotReady"
        await world.advance(310)
        assert "deletionTimestamp" in (await world.get(PODS, "patient"))["metadata"]
        await world.admin.delete(path(NODES, name="m1"))
        await pod_gone(world, "hasty", within=60)
        await pod_gone(world, "patient", within=5)

    run(story)


def test_a_taint_that_a_pod_does_not_tolerate_drives_it_away_at_once():
    async def story(world):
        await world.create(PODS, pod())
        await world.create(PODS, pod("q", tolerations=[{"operator": "Exists"}]))
        await pod_is(world, "Running")
        await pod_is(world, "Running", "q")
        taint = {"key": "infra.homecluster.dev/reclaimed", "effect": "NoExecute"}
        await world.admin.patch(path(NODES, name="m1"), {"spec": {"taints": [taint]}})
        await pod_gone(world, within=5)
        assert (await world.get(PODS, "q"))["status"]["phase"] == "Running"

    run(story)


def test_pods_of_a_rebooted_machine_start_again_or_are_lost_as_their_policy_says():
    async def story(world):
        await world.create(PODS, pod("again"))
        await world.create(PODS, pod("once", restartPolicy="Never"))
        await pod_is(world, "Running", "again")
        await pod_is(world, "Running", "once")
        world.plane.fleet["m1"].reboot()
        found = await pod_is(world, "Failed", "once")
        assert found["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"

        async def restarted():
            return (await world.get(PODS, "again"))["status"]["containerStatuses"][0]["restartCount"] == 1

        await world.eventually(restarted, "the pod was started again")
        await pod_is(world, "Running", "again")

    run(story)
