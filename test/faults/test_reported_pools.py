"""Whole pools under stress: kinds throttle, mass-failure, ca-interplay, self-host, and power cuts (webhook)."""

from dataclasses import replace

import pytest

from homelab_api.v2alpha1 import SlotCondition
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.sandbox.apiserver import Fault


def pool(cluster, count, **behaviour):
    names = [f"m{number}" for number in range(count)]
    for name in names:
        cluster.machine(name, **behaviour)
    return names


def all_ready(cluster, names):
    claims = [cluster.claim(name) for name in names]
    cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims), step=5)
    return claims


def test_half_of_all_requests_refused_for_five_minutes_doubles_nothing(cluster):
    names = pool(cluster, 8)
    fault = Fault(kind="too-many-requests", user="*manager*", probability=0.5)
    number = cluster.plane.server.faults.add(fault)
    claims = [cluster.claim(name) for name in names[:4]]
    cluster.run(300)
    cluster.plane.server.faults.remove(number)
    cluster.until("ready", lambda: all(cluster.phase(claim) == "ready" for claim in claims), step=5)
    created = [w.name for w in cluster.writes() if w.verb == "create" and w.resource.endswith("jobs")]
    assert len(created) == len(set(created)) == 4
    assert [cluster.commands(name) for name in names] == [["on"]] * 4 + [[]] * 4


@pytest.mark.parametrize("failure", ["429", "409", "500", "no answer", "reply lost"])
def test_a_status_write_that_fails_once_is_made_again_from_a_fresh_read(cluster, failure):
    cluster.machine()
    struck = set()
    kinds = {"429": "too-many-requests", "409": "conflict", "500": "error"}

    def strike(method, target, body):
        asked = (target.partition("?")[0], body.split(b'"phase":"')[1].split(b'"')[0] if b'"phase":"' in body else b"")
        if method != "PATCH" or "/status" not in target or asked in struck:
            return
        struck.add(asked)
        if failure in kinds:
            cluster.plane.server.faults.add(Fault(kind=kinds[failure], verb="patch", subresource="status", count=1))
        else:
            raise TransportError(f"{target}: {failure}", sent=failure == "reply lost")

    wire = cluster.operator.client.transport
    setattr(wire, "after" if failure == "reply lost" else "before", strike)
    claim = cluster.claim()
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert len(struck) >= 5
    assert cluster.commands() == ["on", "off"]
    assert cluster.slot().status.last_claim.phase == "completed"
    assert cluster.slot().status.activations_total == 1


def test_a_whole_pool_that_goes_silent_for_twenty_minutes_loses_nothing(cluster):
    names = pool(cluster, 4)
    claims = all_ready(cluster, names)
    for name in names:
        cluster.behave(name, kubelet_hung=True)
    cluster.run(1200)
    assert [cluster.phase(claim) for claim in claims] == ["ready"] * 4
    for name in names:
        cluster.behave(name, kubelet_hung=False)
    cluster.run(600)
    assert [cluster.phase(claim) for claim in claims] == ["ready"] * 4
    assert [cluster.commands(name) for name in names] == [["on"]] * 4
    assert [cluster.slot(name).status.phase for name in names] == ["ready"] * 4


def test_a_machine_that_was_cut_off_for_long_is_seen_when_it_returns_and_switched_off(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", kubelet_hung=True)
    cluster.run(1320)
    assert cluster.phase(claim) == "failed"
    assert cluster.power() == "up"
    assert cluster.commands() == ["on"], "nobody withdrew anything: no command without a sign of life"
    assert cluster.node() is not None
    cluster.behave("m", kubelet_hung=False)
    cluster.until("off", lambda: cluster.power() == "off", within=300)
    cluster.until("forgotten", lambda: cluster.node() is None, within=300)
    assert cluster.commands() == ["on", "off"]


def test_a_hung_machine_whose_claim_is_withdrawn_is_told_to_go_off(cluster):
    """Off, hung and cut off look alike. Only the first one needs no command, and takes no harm from one."""
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", kubelet_hung=True)
    cluster.run(120)
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("off", lambda: cluster.power() == "off", within=60)
    assert cluster.commands() == ["on", "off"]


@pytest.mark.parametrize("script", [{"code": 1, "sends": 0}, {"image_missing": True}], ids=["fails", "never runs"])
def test_a_machine_that_cannot_be_reached_is_told_once_and_holds_its_withdrawn_claim_no_longer(cluster, script):
    cluster.machine()
    claim = cluster.ready()
    cluster.in_loop(cluster.at("m").cut_power)
    cluster.script("off", "m", **script)
    cluster.run(120)
    cluster.unclaim(claim)
    took = cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert took <= cluster.settings.job_timeout + 60
    assert len([name for name in created_jobs(cluster) if "shutdown" in name]) == 1
    assert cluster.increase(), "the slot is free"


def created_jobs(cluster):
    return [write.name for write in cluster.writes() if write.verb == "create" and write.resource.endswith("jobs")]


def test_a_hung_machine_that_is_asked_for_again_is_brought_back_by_way_of_off(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.behave("m", kubelet_hung=True)
    cluster.until("given up", lambda: cluster.reason(claim) == "MachineGone", within=1200, step=10)
    cluster.keep_asking(1, 300)
    assert cluster.commands()[:3] == ["on", "on", "off"]
    cluster.behave("m", kubelet_hung=False)
    cluster.keep_asking(1, 300)
    assert [str(entry.phase) for entry in cluster.claims() if entry.live] == ["ready"]


@pytest.mark.parametrize("return_after", [120, 600])
def test_a_power_cut_of_everything_with_the_operator_last_causes_no_storm(cluster, return_after):
    names = pool(cluster, 4)
    claims = all_ready(cluster, names)
    for name in names:
        cluster.in_loop(cluster.at(name).cut_power)
    cluster.kill()
    cluster.run(return_after)
    for name in names:
        cluster.in_loop(cluster.at(name).press_button)
    cluster.run(30)
    cluster.start()
    cluster.run(1200)
    assert [cluster.phase(claim) for claim in claims] == ["ready"] * 4
    senders = {entry.sender for name in names for entry in cluster.plane.ledger.entries(name)[1:]}
    assert senders == {"hand"}
    assert [cluster.power(name) for name in names] == ["up"] * 4


def test_a_machine_that_reboots_by_itself_keeps_its_claim_and_hears_no_command(cluster):
    cluster.machine("a")
    cluster.machine("b")
    claim = cluster.ready("a")
    cluster.behave("a", boot_seconds=240)
    cluster.in_loop(cluster.at("a").reboot)
    granted = cluster.keep_asking(1, 600)
    assert granted == 0, "the target already counts the machine that is on its way back"
    assert cluster.phase(claim) == "ready"
    assert cluster.slot("a").status.phase == "ready"
    assert cluster.commands("a") == ["on"]
    assert cluster.commands("b") == []


def test_the_machine_that_the_operator_runs_on_is_switched_off_only_after_it_has_moved(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.kill()
    cluster.assembly = replace(cluster.assembly, own_node="node-m")
    cluster.start()
    cluster.unclaim(claim)
    cluster.run(900)
    assert cluster.commands() == ["on"]
    assert not cluster.node().spec.unschedulable
    assert "runs this manager" in cluster.condition(cluster.slot(), SlotCondition.PROTECTED).message
    cluster.kill()
    cluster.assembly = replace(cluster.assembly, own_node="host")
    cluster.start()
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands() == ["on", "off"]
    assert not cluster.condition(cluster.slot(), SlotCondition.PROTECTED)
