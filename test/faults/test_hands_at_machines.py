"""People at the machines: buttons, plugs and reboots, in each phase of a slot. On virtual time, with true numbers."""

import random

import pytest
from virtual.rest import at_rest, commands_of_jobs

from homelab_api.core import CoreNode, Lease
from homelab_api.v2alpha1 import Node
from homelab_autoscaler.runtime import MergePatch

pytestmark = pytest.mark.faults


def press(cluster, machine="m"):
    cluster.in_loop(lambda: cluster.at(machine).press_button() and None)


def test_a_machine_that_nobody_wants_is_switched_off_once_whoever_switched_it_on(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.until("off", lambda: at_rest(cluster))
    press(cluster)
    cluster.until("on", lambda: cluster.power() == "up")
    cluster.until("off again", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off", "off"]


def test_a_machine_switched_on_by_hand_while_its_boot_is_held_up_needs_no_command(cluster):
    cluster.machine()
    cluster.until("seen", lambda: cluster.slot().status.phase == "off")
    lock = {
        "operation-lock": "scale-up",
        "lock-owner": "somebody/7",
        "lock-timestamp": cluster.clock.now().isoformat(),
        "lock-timeout": "240",
    }
    annotations = {f"homelab-autoscaler.dev/{key}": value for key, value in lock.items()}
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"annotations": annotations}}))
    claim = cluster.claim()
    cluster.run(10)
    press(cluster)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert commands_of_jobs(cluster) == []
    assert cluster.reason(claim) == "MachineAdopted"


def test_a_hand_that_is_faster_than_the_startup_job_changes_nothing(cluster):
    cluster.machine()
    claim = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.1)
    press(cluster)
    press(cluster)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert commands_of_jobs(cluster) == ["on"]


def test_a_machine_switched_off_by_hand_while_it_boots_fails_its_claim_and_frees_its_slot(cluster):
    cluster.machine(boot_seconds=60)
    claim = cluster.claim()
    cluster.until("on", lambda: cluster.power() == "booting")
    cluster.run(20)
    cluster.in_loop(lambda: cluster.at("m").cut_power())
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "ReadinessGateTimeout"
    cluster.until("free", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"], "whether it is on is not known: its boot is reversed"


def test_a_ready_machine_switched_off_by_hand_ends_its_claim_after_one_boot_window_without_any_job(cluster):
    cluster.machine()
    claim = cluster.ready()
    jobs = len(cluster.jobs())
    press(cluster)
    gone = cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "MachineGone"
    assert gone > cluster.settings.boot_window()
    cluster.until("free", lambda: at_rest(cluster, by_us=False))
    assert commands_of_jobs(cluster) == ["on"]
    assert len(cluster.jobs()) <= jobs
    before = cluster.node()
    cluster.ready()
    assert cluster.node().uid != before.uid


def test_a_machine_switched_off_by_hand_while_it_is_drained_is_off_in_the_end(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.pod("stays")
    cluster.budget("never", {"app": "stays"})
    cluster.unclaim(claim)
    cluster.until("draining", lambda: cluster.slot().status.phase == "draining")
    press(cluster)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("free", lambda: at_rest(cluster, by_us=False))
    assert commands_of_jobs(cluster) in (["on"], ["on", "off"])


def test_a_persons_cordon_on_a_ready_machine_changes_the_report_and_nothing_else(cluster):
    """Ten minutes: longer than the readiness gate waits."""
    cluster.machine()
    claim = cluster.ready()
    jobs = [job.uid for job in cluster.jobs()]
    cordon(cluster, unschedulable=True)
    cluster.run(600)
    assert cluster.phase(claim) == "ready"
    assert cluster.slot().status.phase == "booting"
    assert cluster.node().spec.unschedulable
    cordon(cluster, unschedulable=None)
    cluster.until("usable", lambda: cluster.slot().status.phase == "ready")
    assert [job.uid for job in cluster.jobs() if job.uid not in jobs] == []
    assert commands_of_jobs(cluster) == ["on"]


def cordon(cluster, *, unschedulable):
    patch = MergePatch({"spec": {"unschedulable": unschedulable}})
    cluster.client.patch(CoreNode, "node-m", None, patch)


@pytest.mark.parametrize("minutes", [2, 4])
def test_a_reboot_within_the_grace_leaves_a_ready_claim_ready_and_starts_no_job(cluster, minutes):
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", boot_seconds=minutes * 60)
    jobs = [job.uid for job in cluster.jobs()]
    cluster.in_loop(lambda: cluster.at("m").reboot())
    cluster.run(minutes * 60 + 120)
    assert cluster.phase(claim) == "ready"
    assert cluster.slot().status.phase == "ready"
    assert {job.uid for job in cluster.jobs()} <= set(jobs)
    assert commands_of_jobs(cluster) == ["on"]
    off = next((entry for entry in cluster.fresh(claim).status.conditions if entry.type == "MachineObservedOff"), None)
    assert off is None or off.status == "False"


def test_a_reboot_longer_than_the_grace_ends_the_claim_once_and_the_machine_is_switched_off_when_it_comes_back(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", boot_seconds=15 * 60)
    cluster.in_loop(lambda: cluster.at("m").reboot())
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "MachineGone"
    cluster.until("it is back", lambda: cluster.power() == "up")
    cluster.until("off", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"]
    assert cluster.reasons(claim.name).count("ClaimFailed") == 1


@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_cut_of_everything_machines_that_come_back_in_any_order_are_what_they_were_wanted_for(
    cluster, seed
):
    """Mains return: some machines start by themselves, one that nobody wants too; the operator comes back somewhere
    in between."""
    chance = random.Random(seed)
    wanted = [f"m{number}" for number in range(4)]
    for name in [*wanted, "spare", "booting"]:
        cluster.machine(name)
    claims = {name: cluster.claim(name) for name in wanted}
    cluster.until("all ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims.values()))
    used = cluster.ready("spare")
    cluster.unclaim(used)
    cluster.until("the spare is off", lambda: cluster.power("spare") == "off")
    late = cluster.claim("booting")
    cluster.until("it boots", lambda: cluster.power("booting") == "booting")
    for machine in [*wanted, "spare", "booting"]:
        cluster.in_loop(lambda machine=machine: cluster.at(machine).cut_power())
    cluster.kill()
    back = [*wanted, "spare", "booting"]
    chance.shuffle(back)
    returns = chance.randrange(len(back))
    for number, machine in enumerate(back):
        if number == returns:
            cluster.start()
        cluster.run(chance.randrange(60))
        if cluster.power(machine) == "off":
            press(cluster, machine)
    cluster.until("all serve", lambda: all(serves(cluster, name) for name in wanted))
    cluster.until("the spare is off", lambda: at_rest(cluster, "spare"))
    for machine in wanted:
        assert commands_of_jobs(cluster, machine) == ["on"]
        assert cluster.phase(claims[machine]) == "ready"
    cluster.until("a verdict", lambda: cluster.phase(late) in {"ready", "failed", "gone"})
    if cluster.phase(late) == "ready":
        assert commands_of_jobs(cluster, "booting") == ["on"]
    else:
        cluster.until("reversed", lambda: at_rest(cluster, "booting"))
        assert commands_of_jobs(cluster, "booting") in (["on", "off"], ["on", "off", "off"])
    assert commands_of_jobs(cluster, "spare") == ["on", "off", "off"]


def serves(cluster, machine):
    return cluster.power(machine) == "up" and cluster.slot(machine).status.phase == "ready"


def test_a_claim_by_hand_without_labels_takes_a_machine_that_is_on(cluster):
    cluster.machine(on=True, boot_seconds=10)
    cluster.until("on", lambda: cluster.node() is not None and is_ready(cluster))
    claim = cluster.claim_by_hand("mine")
    assert claim.metadata.labels == {}
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.run(3600)
    assert cluster.phase(claim) == "ready"
    assert commands_of_jobs(cluster) == []
    cluster.client.delete(type(claim), "mine", "lab")
    cluster.until("off", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["off"]


def test_slots_that_name_one_node_are_one_machine_of_the_oldest(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.run(2)
    twin = cluster.slot_body("twin", kubernetesNodeName="node-m")
    twin["spec"]["startupPodSpec"]["command"] = ["on", "m"]
    twin["spec"]["shutdownPodSpec"]["command"] = ["off", "m"]
    cluster.client.create_json(Node, twin, "lab")
    second = cluster.claim("twin")
    cluster.run(5)
    assert cluster.reason(second) == "InvalidSlot"
    cluster.run(1800)
    said = cluster.condition(cluster.slot("twin"), "InvalidSlot")
    assert said.reason == "NodeNameTaken"
    assert cluster.phase(claim) == "ready"
    assert commands_of_jobs(cluster) == ["on"]


# --- what a node says of its machine ---------------------------------------------------------------------------


def test_a_node_that_stays_ready_for_a_minute_after_its_machine_went_off_is_not_shut_down_twice(cluster):
    """The last heartbeats of a machine can be late; its node looks alive although it is not."""
    cluster.machine()
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.until("off", lambda: cluster.power() == "off", step=0.2)
    for _ in range(12):
        renew(cluster)
        cluster.run(5)
        assert is_ready(cluster)
        assert cluster.phase(claim) == "ready", "marked, and not yet believed to be off"
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("free", lambda: at_rest(cluster))
    assert commands_of_jobs(cluster) == ["on", "off"]


def is_ready(cluster):
    return cluster.node().condition("Ready").status == "True"


def renew(cluster):
    """What a heartbeat of the kubelet writes."""
    lease = cluster.get(Lease, "node-m", "kube-node-lease")
    renewed = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    cluster.client.patch(Lease, lease.name, "kube-node-lease", MergePatch({"spec": {"renewTime": renewed}}))


@pytest.mark.parametrize("wanted", ["withdrawn", "never asked for"])
def test_a_kubelet_that_renews_its_lease_while_its_node_is_not_ready_counts_as_on(cluster, wanted):
    cluster.machine()
    claim = cluster.ready()
    if wanted == "never asked for":
        cluster.unclaim(claim)
        cluster.until("free", lambda: at_rest(cluster))
        press(cluster)
    cluster.behave("m", power_off="lie")
    cluster.until("ready", lambda: cluster.node() is not None and is_ready(cluster))
    before = len(commands_of_jobs(cluster)) - (wanted == "never asked for")
    cluster.in_loop(lambda: cluster.at("m").kubelet.agent.set_ready(ready=False))
    cluster.until("not ready", lambda: cluster.node() is not None and not is_ready(cluster))
    if wanted == "withdrawn":
        cluster.unclaim(claim)
    cluster.until("told to stop", lambda: len(commands_of_jobs(cluster)) > before)
    cluster.until("it says so", lambda: cluster.condition(cluster.slot(), "KubeletAlive"))
    cluster.run(600)
    assert cluster.node() is not None, "the node of a machine that is on is never deleted"
    assert wanted != "withdrawn" or cluster.phase(claim) == "ready"
    assert commands_of_jobs(cluster)[before:] == ["off"] * len(commands_of_jobs(cluster)[before:])
    assert 1 <= len(commands_of_jobs(cluster)[before:]) <= cluster.settings.max_attempts + 1
    cluster.behave("m", power_off="obey")
    cluster.until("free", lambda: at_rest(cluster), within=2 * 3600)
