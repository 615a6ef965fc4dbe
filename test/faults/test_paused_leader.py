"""A leader's process that is stopped (SIGSTOP) in the middle of a boot until another one leads, and then goes on."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

import pytest
from lab import steps
from lab.process import LEASE

from homelab_api.core import Lease

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.fixture
def process_of(scene, tmp_path):
    """Starts managers as installations do: `process_of(proxy)`. Killed at the end, stopped or not."""
    with contextlib.ExitStack() as stack:

        def start(proxy):
            log = stack.enter_context((tmp_path / "managers.log").open("ab"))
            times = {name: getattr(scene.pool.settings, name) for name in TIMES}
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "homelab_autoscaler.cli",
                    "manager",
                    f"--kubeconfig={proxy.kubeconfig}",
                    f"--namespace={scene.pool.namespace}",
                    f"--own-namespace={scene.pool.namespace}",
                    f"--lease-name={LEASE}",
                    "--lease-duration=2s",
                    "--renew-deadline=1500ms",
                    "--retry-period=200ms",
                    "--grpc-address=",
                    "--health-address=",
                    "--metrics-address=",
                    *(f"--{name.replace('_', '-')}={seconds}" for name, seconds in times.items()),
                ],
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait, 20)
            stack.callback(process.kill)
            return process

        yield start


TIMES = (
    "job_timeout",
    "monitor_poll",
    "registration_wait",
    "gate_timeout",
    "deadline_slack",
    "lock_timeout",
    "off_settle",
    "lease_silence",
    "finalizer_poll",
    "drain_pass",
)


def transitions(scene):
    return scene.pool.client.get(Lease, LEASE, scene.pool.namespace).spec.lease_transitions or 0


@pytest.mark.parametrize(
    "reply",
    [pytest.param(steps.commits, id="of the finalizer"), pytest.param(steps.creates_job("startup"), id="of the Job")],
)
def test_a_leader_that_was_stopped_until_another_one_led_writes_nothing_when_it_goes_on(scene, process_of, reply):
    """It is stopped before it reads the reply, so it goes on exactly between that write and the next."""
    first = scene.proxy()
    stopped = process_of(first)
    held = first.hold(reply, answered=True)
    held.on_reach = lambda: stopped.send_signal(signal.SIGSTOP)
    claim = scene.pool.claim(scene.machine)
    held.wait()
    held.let_go()
    before = transitions(scene)
    process_of(scene.proxy())
    scene.pool.until("another one leads", lambda: transitions(scene) > before)
    scene.until_phase(claim, "ready")
    assert scene.commands == ["on"]
    asked = len(first.asked)

    stopped.send_signal(signal.SIGCONT)

    scene.pool.until("it has ended", lambda: stopped.poll() is not None)
    assert stopped.returncode != 0, "a lead that was lost is no clean end"
    late = [
        entry for entry in first.asked[asked:] if entry.method != "GET" and entry.plural not in {"leases", "events"}
    ]
    assert [f"{entry.method} {entry.target}" for entry in late] == []
    scene.pool.unclaim(claim)
    scene.until_at_rest()
    assert scene.commands == ["on", "off"]
