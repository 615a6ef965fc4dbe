import asyncio
import json

import pytest

from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings
from homelab_autoscaler.sandbox.machines.declare import machine_from_json, machines_from_file
from homelab_autoscaler.sandbox.machines.fleet import Fleet
from homelab_autoscaler.sandbox.machines.ledger import PowerLedger
from homelab_autoscaler.sandbox.machines.machine import Surroundings
from homelab_autoscaler.sandbox.machines.spec import Behaviour, Firmware, MachineSpec, Power


def scenario(story, *specs, path=None):
    """Run a story with a fleet whose kubelets are not let in, so that no server is needed."""

    async def run():
        clock = ManualSandboxClock()
        ledger = PowerLedger(clock.now, path)
        around = Surroundings(clock, ledger, lambda user: None, KubeletTimings())
        fleet = Fleet(around, specs or [spec()])
        fleet.start()
        try:
            await story(clock, fleet)
        finally:
            await fleet.close()

    asyncio.run(run())


def spec(name="m1", *, initially_on=False, **behaviour):
    return MachineSpec(name, behaviour=Behaviour(join_refused=True, **behaviour), initially_on=initially_on)


def commands(fleet):
    return [(entry.command, entry.sender, entry.result) for entry in fleet.ledger.entries()]


def test_a_machine_comes_up_after_firmware_delay_and_boot():
    async def story(clock, fleet):
        machine = fleet["m1"]
        assert machine.command("on", "job-1").acknowledged
        assert machine.power is Power.OFF
        await clock.advance(1)
        assert machine.power is Power.BOOTING
        await clock.advance(59)
        assert machine.power is Power.BOOTING
        await clock.advance(1)
        assert machine.power is Power.UP
        assert commands(fleet) == [("on", "job-1", "accepted")]

    scenario(story)


def test_a_machine_goes_down_after_its_system_has_stopped():
    async def story(clock, fleet):
        machine = fleet["m1"]
        await clock.advance(61)
        machine.command("off", "job-2")
        await clock.advance(1)
        assert machine.power is Power.STOPPING
        assert machine.is_on
        await clock.advance(5)
        assert machine.power is Power.OFF
        assert machine.kubelet is None

    scenario(story, spec(initially_on=True))


def test_a_machine_that_is_off_already_says_so():
    async def story(clock, fleet):
        fleet["m1"].command("off", "job")
        await clock.advance(100)
        assert fleet["m1"].history == []
        assert commands(fleet) == [("off", "job", "unchanged")]

    scenario(story)


def test_a_second_on_during_the_boot_changes_nothing_but_is_in_the_ledger():
    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        await clock.advance(30)
        fleet["m1"].command("on", "b")
        await clock.advance(31)
        assert fleet["m1"].power is Power.UP
        assert commands(fleet) == [("on", "a", "accepted"), ("on", "b", "unchanged")]

    scenario(story)


def test_off_during_the_boot_turns_the_machine_back():
    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        await clock.advance(30)
        fleet["m1"].command("off", "b")
        await clock.advance(1)
        assert fleet["m1"].power is Power.OFF
        await clock.advance(600)
        assert fleet["m1"].power is Power.OFF

    scenario(story)


def test_a_lying_firmware_confirms_and_does_nothing():
    async def story(clock, fleet):
        assert fleet["m1"].command("on", "a").acknowledged
        await clock.advance(600)
        assert fleet["m1"].power is Power.OFF
        assert commands(fleet) == [("on", "a", "ignored")]

    scenario(story, MachineSpec("m1", behaviour=Behaviour(power_on=Firmware.LIE)))


def test_a_refusing_firmware_does_nothing_and_says_so():
    async def story(clock, fleet):
        assert not fleet["m1"].command("on", "a").acknowledged
        await clock.advance(600)
        assert fleet["m1"].power is Power.OFF
        assert commands(fleet) == [("on", "a", "refused")]

    scenario(story, MachineSpec("m1", behaviour=Behaviour(power_on=Firmware.REFUSE)))


def test_a_lost_reply_is_no_lost_command():
    async def story(clock, fleet):
        assert not fleet["m1"].command("on", "a").acknowledged
        await clock.advance(61)
        assert fleet["m1"].power is Power.UP
        assert commands(fleet) == [("on", "a", "accepted")]

    scenario(story, MachineSpec("m1", behaviour=Behaviour(power_on=Firmware.LATE, join_refused=True)))


def test_a_dead_machine_draws_power_and_never_comes_up():
    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        await clock.advance(3600)
        assert fleet["m1"].power is Power.BOOTING
        fleet["m1"].command("off", "b")
        await clock.advance(1)
        assert fleet["m1"].power is Power.OFF

    scenario(story, spec(dead=True))


def test_a_crashed_machine_stays_on_until_it_is_turned_off():
    async def story(clock, fleet):
        await clock.advance(61)
        fleet["m1"].crash()
        assert fleet["m1"].power is Power.CRASHED
        assert fleet["m1"].kubelet is None
        fleet["m1"].command("off", "a")
        await clock.advance(1)
        assert fleet["m1"].power is Power.OFF

    scenario(story, spec(initially_on=True))


def test_a_reboot_starts_another_kubelet_without_a_power_command():
    async def story(clock, fleet):
        await clock.advance(61)
        first = fleet["m1"].kubelet
        fleet["m1"].reboot()
        assert fleet["m1"].power is Power.BOOTING
        await clock.advance(60)
        assert fleet["m1"].power is Power.UP
        assert fleet["m1"].kubelet not in (None, first)
        assert commands(fleet) == []

    scenario(story, spec(initially_on=True))


def test_pulling_the_plug_ends_everything_between_two_instants():
    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        await clock.advance(30)
        fleet["m1"].cut_power()
        assert fleet["m1"].power is Power.OFF
        await clock.advance(600)
        assert fleet["m1"].power is Power.OFF
        fleet["m1"].command("on", "b")
        await clock.advance(61)
        assert fleet["m1"].power is Power.UP

    scenario(story)


def test_the_button_turns_a_machine_on_and_off_and_leaves_its_own_trace():
    async def story(clock, fleet):
        fleet["m1"].press_button()
        await clock.advance(61)
        assert fleet["m1"].power is Power.UP
        fleet["m1"].press_button()
        await clock.advance(6)
        assert fleet["m1"].power is Power.OFF
        assert [sender for _, sender, _ in commands(fleet)] == ["hand", "hand"]

    scenario(story)


def test_an_unknown_command_is_refused_and_not_written():
    async def story(clock, fleet):
        with pytest.raises(ValueError, match='send "on" or "off"'):
            fleet["m1"].command("explode", "a")
        assert commands(fleet) == []

    scenario(story)


def test_changed_behaviour_counts_from_the_next_boot():
    async def story(clock, fleet):
        machine = fleet["m1"]
        machine.change(machine.behaviour.changed({"boot_seconds": 5, "firmware_delay": 0}))
        machine.command("on", "a")
        await clock.advance(5)
        assert machine.power is Power.UP

    scenario(story)


def test_listeners_hear_every_change_of_power():
    async def story(clock, fleet):
        heard = []
        fleet["m1"].on_change(lambda machine: heard.append(machine.power))
        fleet["m1"].command("on", "a")
        await clock.advance(61)
        fleet["m1"].command("off", "b")
        await clock.advance(6)
        assert heard == [Power.BOOTING, Power.UP, Power.STOPPING, Power.OFF]
        assert [power for _, power in fleet["m1"].history] == heard

    scenario(story)


def test_two_machines_of_one_name_are_refused():
    with pytest.raises(ValueError, match='"m1" is declared twice'):
        scenario(None, spec(), spec())


def test_an_unknown_machine_is_named_with_those_that_are_there():
    async def story(clock, fleet):
        with pytest.raises(KeyError, match='no machine "m9": there is m1'):
            fleet["m9"]

    scenario(story)


def test_the_ledger_is_on_disk_before_the_answer_and_goes_on_after_a_restart(tmp_path):
    path = tmp_path / "ledger.jsonl"

    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[-1] | {"time": ""} == {
            "time": "",
            "machine": "m1",
            "command": "on",
            "sender": "a",
            "result": "accepted",
        }

    scenario(story, path=path)
    scenario(story, path=path)
    assert len(path.read_text().splitlines()) == 2


def test_ledger_entries_can_be_chosen_by_machine_and_command():
    async def story(clock, fleet):
        fleet["m1"].command("on", "a")
        fleet["m2"].command("on", "b")
        fleet["m2"].command("off", "c")
        assert [entry.sender for entry in fleet.ledger.entries("m2")] == ["b", "c"]
        assert [entry.sender for entry in fleet.ledger.entries(command="on")] == ["a", "b"]

    scenario(story, spec("m1"), spec("m2"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"boots": 1}, 'unknown behaviour "boots"'),
        ({"power_on": "maybe"}, 'power_on: "maybe" is not one of obey, lie, refuse, late'),
        ({"dead": 1}, 'dead: "1" must be true or false'),
        ({"boot_seconds": "5"}, 'boot_seconds: "5" must be a number of seconds'),
        ({"boot_seconds": -1}, "boot_seconds: -1 must not be negative"),
        ({"startup_taints": [{"key": "a"}]}, "startup_taints: must be a list of taints"),
    ],
)
def test_impossible_behaviour_is_refused_with_the_field_and_the_fix(values, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Behaviour().changed(values)


def test_a_scaled_behaviour_is_faster_and_otherwise_the_same():
    fast = Behaviour(clock_skew=3600, startup_taints_clear=10, dead=True).scaled(20)
    assert (fast.boot_seconds, fast.firmware_delay, fast.stop_seconds) == (3.0, 0.05, 0.25)
    assert fast.startup_taints_clear == 0.5
    assert (fast.clock_skew, fast.dead) == (3600, True)


def test_a_declared_machine_has_what_was_declared():
    found = machine_from_json(
        {
            "name": "blade",
            "nodeName": "blade.lan",
            "labels": {"disk": "ssd"},
            "providerID": "metal://blade",
            "capacity": {"cpu": 8},
            "behaviour": {"boot_seconds": 90},
            "initiallyOn": True,
        },
        "machines[0]",
    )
    assert (found.name, found.node_spec.name, found.initially_on) == ("blade", "blade.lan", True)
    assert found.node_spec.capacity == {"pods": "110", "cpu": "8"}
    assert found.behaviour.boot_seconds == 90


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("m1", "machines.0.: must be a mapping"),
        ({}, "machines.0..name: every machine needs a name"),
        ({"name": "a", "nam": "b"}, "machines.0..nam: unknown field"),
        ({"name": "a", "capacity": {"memory": "16 cores"}}, 'machines.0..capacity.memory: quantity "16 cores"'),
        ({"name": "a", "behaviour": {"power_on": 1}}, "machines.0..behaviour: power_on"),
        ({"name": "a", "taints": [{"effect": "NoSchedule"}]}, "machines.0..taints"),
        ({"name": "a", "labels": ["x"]}, "machines.0..labels: must be a mapping"),
    ],
)
def test_a_bad_declaration_names_field_and_fix(entry, message):
    with pytest.raises(ValueError, match=message):
        machine_from_json(entry, "machines[0]")


def test_machines_are_read_from_a_file(tmp_path):
    path = tmp_path / "machines.yaml"
    path.write_text("machines:\n- name: a\n- name: b\n  initiallyOn: true\n")
    assert [(found.name, found.initially_on) for found in machines_from_file(path)] == [("a", False), ("b", True)]


@pytest.mark.parametrize(
    ("text", "message"), [("a: [", "not YAML"), ("x: 1", "must hold a list"), (None, "No such file")]
)
def test_an_unreadable_file_is_named(tmp_path, text, message):
    path = tmp_path / "machines.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        machines_from_file(path)
    assert str(path) in str(caught.value)
