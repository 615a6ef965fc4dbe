"""Whatever happens to a machine in whatever order, power, kubelet and ledger stay consistent."""

import asyncio
import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings
from homelab_autoscaler.sandbox.machines.fleet import Fleet
from homelab_autoscaler.sandbox.machines.ledger import PowerLedger
from homelab_autoscaler.sandbox.machines.machine import Surroundings
from homelab_autoscaler.sandbox.machines.spec import Behaviour, Firmware, MachineSpec, Power

STEPS = st.one_of(
    st.sampled_from(["on", "off", "press", "cut", "crash", "reboot"]),
    st.sampled_from([0.5, 1.0, 3.0, 61.0]),
    st.sampled_from(
        [{"dead": True}, {"dead": False}, {"kubelet_hung": True}, {"power_off": "lie"}, {"power_on": "refuse"}]
    ),
)


def consistent(machine):
    alive = machine.kubelet is not None
    assert not (alive and machine.power in (Power.OFF, Power.BOOTING, Power.CRASHED)), machine.power
    assert alive or machine.power is not Power.UP, machine.power
    assert machine.is_on == (machine.power is not Power.OFF)
    powers = [power for _, power in machine.history]
    assert all(one is not other for one, other in itertools.pairwise(powers)), "history holds changes only"
    if powers:
        assert powers[-1] is machine.power


@example(steps=[61.0, "off", "on", 1.0], initially_on=True)
@example(steps=[61.0, "off", 1.0, "on", 1.0], initially_on=True)
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEPS, max_size=25), initially_on=st.booleans())
def test_every_order_of_events_leaves_a_consistent_machine(steps, initially_on):
    async def story():
        clock = ManualSandboxClock()
        ledger = PowerLedger(clock.now)
        around = Surroundings(clock, ledger, lambda user: None, KubeletTimings())
        spec = MachineSpec("m1", behaviour=Behaviour(join_refused=True), initially_on=initially_on)
        fleet = Fleet(around, [spec])
        fleet.start()
        machine = fleet["m1"]
        sent = 0
        for step in steps:
            match step:
                case "on" | "off":
                    machine.command(step, "job")
                    sent += 1
                case "press":
                    machine.press_button()
                    sent += 1
                case "cut":
                    machine.cut_power()
                case "crash":
                    machine.crash()
                case "reboot":
                    machine.reboot()
                case float():
                    await clock.advance(step)
                case _:
                    machine.change(machine.behaviour.changed(step))
            consistent(machine)
            assert len(ledger.entries()) == sent
        machine.change(Behaviour(join_refused=True, power_off=Firmware.OBEY))
        machine.command("off", "last")
        await clock.advance(100)
        consistent(machine)
        assert machine.power is Power.OFF, "an obeying machine that is turned off is off in the end"
        await fleet.close()

    asyncio.run(story())
