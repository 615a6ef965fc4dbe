"""Power buttons that lie, forget, freeze or are pressed twice: kinds power-observation, power-loop, wol-bmc."""

from datetime import datetime, timedelta

import pytest

from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import Node, PowerState, SlotCondition
from homelab_autoscaler.runtime.errors import TransportError


def test_an_accepted_power_off_is_no_machine_that_is_off(cluster):
    cluster.machine(stop_seconds=65)
    claim = cluster.ready()
    cluster.unclaim(claim)
    cluster.until("the Job is over", lambda: any(job.succeeded and "shutdown" in job.name for job in cluster.jobs()))
    cluster.run(55)
    assert cluster.power() == "stopping"
    assert cluster.slot().status.power_state is PowerState.ON
    assert cluster.phase(claim) == "ready"
    assert not cluster.increase(), "the slot is not free"
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.power() == "off"
    assert cluster.commands() == ["on", "off"]


@pytest.mark.parametrize(
    ("command", "script", "firmware"),
    [
        ("on", {"code": 1}, "obey"),
        ("on", {}, "late"),
        ("off", {"code": 1}, "obey"),
        ("off", {}, "late"),
        ("off", {"sends": 2}, "obey"),
        ("on", {"sends": 3}, "obey"),
    ],
    ids=[
        "on fails after working",
        "reply to on lost",
        "off fails after working",
        "reply to off lost",
        "off x2",
        "on x3",
    ],
)
def test_whatever_a_script_says_the_exit_code_and_the_observation_decide(cluster, command, script, firmware):
    cluster.machine(**{f"power_{command}": firmware})
    cluster.script(command, "m", **script)
    claim = cluster.claim()
    if command == "on" and script.get("sends", 1) == 1:
        cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=60)
        assert cluster.reason(claim) == "StartupJobFailed"
    else:
        cluster.until("ready", lambda: cluster.phase(claim) == "ready")
        cluster.unclaim(claim)
        cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("off", lambda: cluster.power() == "off", within=300)
    cluster.run(900)
    assert cluster.power() == "off"
    assert cluster.slot().status.phase == "off"


def test_a_power_on_that_is_ignored_fails_its_claim_once_and_three_times_at_most(cluster):
    cluster.machine(power_on="lie")
    granted = cluster.keep_asking(1, 1200)
    assert granted == 3
    assert cluster.commands().count("on") == 3
    assert cluster.slot().status.last_claim.attempt == 3
    assert cluster.condition(cluster.slot(), SlotCondition.EXHAUSTED)


def test_a_node_whose_state_cannot_be_read_is_neither_off_nor_gone(cluster):
    """The API server is the source of power: while it answers with errors nothing is concluded."""
    cluster.machine()
    claim = cluster.ready()
    cluster.operator.client.transport.before = _refuse
    cluster.operator.resync()
    cluster.run(600)
    assert cluster.phase(claim) == "ready"
    assert cluster.commands() == ["on"]
    cluster.operator.client.transport.before = lambda *_: None
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")


def _refuse(method, target, _body):
    if "/leases/" in target or method != "GET":
        raise TransportError(f"{method} {target}: nobody answers", sent=False)


def test_a_slot_whose_power_script_has_lost_its_credentials_parks_and_says_so(cluster):
    cluster.machine()
    cluster.ready()
    cluster.script("off", "m", sends=0, code=1)
    cluster.client.delete(Node, "m", "lab")
    cluster.run(1700)
    slot = cluster.slot()
    assert cluster.condition(slot, SlotCondition.NEEDS_HUMAN)
    assert slot.status.phase != "off"
    assert cluster.reasons().count("ShutdownJobFailed") == 3
    assert cluster.power() == "up"


def test_boots_that_fail_at_once_grow_rare(cluster):
    cluster.machine()
    cluster.script("on", "m", sends=1, code=1)
    cluster.keep_asking(1, 3600, every=5)
    entries = cluster.plane.ledger.entries("m")
    on = [datetime.fromisoformat(entry.time) for entry in entries if entry.command == "on"]
    assert len(on) == 6, "two streaks in the hour"
    assert on[3] - on[2] >= timedelta(seconds=1700)


def test_a_claim_made_while_its_machine_is_being_switched_off_waits_its_turn_and_is_charged_nothing(cluster):
    cluster.machine(stop_seconds=20)
    first = cluster.ready()
    cluster.script("off", "m", seconds=30)
    cluster.unclaim(first)
    cluster.until("the shutdown runs", lambda: "off" in cluster.commands())
    second = cluster.claim_by_hand("again")
    cluster.until("ready", lambda: cluster.phase(second) == "ready")
    assert cluster.commands() == ["on", "off", "on"]
    assert cluster.fresh(second).status.attempt == 1
    assert _never_two_at_once(cluster)


def _never_two_at_once(cluster):
    released, ended = {}, set()
    for write in cluster.writes():
        if not write.resource.endswith("jobs"):
            continue
        if write.verb == "patch" and not write.subresource:
            assert set(released) <= ended, f"{write.name} released beside {set(released) - ended}"
            released[write.name] = True
        if write.subresource == "status" or write.verb == "delete":
            ended.update(job.name for job in cluster.jobs() if job.finished)
    return True


@pytest.mark.parametrize("adopt", [False, True])
def test_a_machine_switched_on_by_hand_is_cordoned_and_drained_before_it_is_switched_off(cluster, adopt):
    cluster.group(adoptRunningMachines=adopt)
    cluster.machine()
    cluster.ready()
    claim = cluster.claims()[0]
    cluster.unclaim(claim)
    cluster.until("off", lambda: cluster.phase(claim) == "gone")
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("it joins and gets a pod", lambda: cluster.node() is not None)
    cluster.pod("app")
    cluster.until("off again", lambda: cluster.power() == "off", within=600)
    order = [str(write) for write in cluster.writes() if "eviction" in str(write) or "node-m" in str(write)]
    assert any("eviction" in line for line in order), order
    assert cluster.commands() == ["on", "off", "on", "off"]
    cluster.until("clean", lambda: cluster.get(CoreNode, "node-m", None) is None)


def test_a_machine_that_a_person_woke_in_time_tells_job_and_start_apart(cluster):
    cluster.machine()
    cluster.script("on", "m", sends=0)
    claim = cluster.claim()
    cluster.run(10)
    cluster.in_loop(cluster.at("m").press_button)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    senders = [entry.sender for entry in cluster.plane.ledger.entries("m")]
    assert senders == ["hand"]
    found = cluster.fresh(claim)
    assert found.status.power_requested_at < found.status.ready_at
    assert found.status.job_name


def test_a_machine_that_needs_its_packet_more_than_once_wakes_by_a_script_that_repeats_it(cluster):
    cluster.machine(power_on="lie")
    cluster.script("on", "m", sends=4, seconds=40)
    claim = cluster.claim()
    cluster.run(20)
    cluster.behave("m", power_on="obey")
    cluster.in_loop(lambda: cluster.at("m").command("on", "m-startup"))
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.fresh(claim).status.attempt == 1


def test_a_machine_that_does_not_wake_after_our_shutdown_leaves_the_work_to_another_slot(cluster):
    cluster.machine("a", slot={"pricing": {"hourlyRate": "0.01"}})
    cluster.machine("b", slot={"pricing": {"hourlyRate": "0.02"}})
    claim = cluster.ready("a")
    cluster.unclaim(claim)
    cluster.until("off", lambda: cluster.phase(claim) == "gone")
    cluster.behave("a", power_on="lie")
    cluster.keep_asking(1, 300)
    assert cluster.power("b") == "up", "the first failure is enough"
    cluster.keep_asking(2, 1200)
    assert cluster.commands("a").count("on") == 1 + 3
    said = cluster.condition(cluster.slot("a"), SlotCondition.EXHAUSTED)
    assert "3 boots failed in a row" in said.message


def test_a_management_controller_that_hangs_delays_no_other_slot(cluster):
    cluster.machine("a")
    cluster.machine("b")
    cluster.script("on", "a", hangs=True)
    hanging = cluster.claim("a")
    healthy = cluster.claim("b")
    assert cluster.until("b is ready", lambda: cluster.phase(healthy) == "ready") < 120
    cluster.until("a failed", lambda: cluster.phase(hanging) == "failed", within=400)
    assert cluster.reason(hanging) == "StartupJobTimeout"
    cluster.until(
        "no pod of it is left",
        lambda: not [pod for pod in cluster.pods() if "startup" in pod.name and pod.status.phase == "Running"],
        within=60,
    )
    assert cluster.commands("b") == ["on"]
