"""Lifecycle Jobs that vanish, lose their pods, never end, or would sit on the wrong machine: kind job."""

import pytest

from homelab_api.core import CoreNode, Job, Pod
from homelab_api.v2alpha1 import SlotCondition
from homelab_autoscaler.runtime import MergePatch
from homelab_autoscaler.sandbox.apiserver import Fault


def sweep(cluster, *, finished_only=True):
    """What a TTL, a person or a sweep of the namespace does."""
    for job in cluster.jobs():
        if job.finished or not finished_only:
            cluster.client.delete(Job, job.name, "lab", propagation="Background")


@pytest.mark.parametrize("when", ["during the boot", "when ready", "during the shutdown"])
def test_a_finished_job_that_was_swept_away_is_not_run_again(cluster, when):
    cluster.machine(stop_seconds=20)
    claim = cluster.claim()
    if when == "during the boot":
        cluster.until("the Job is over", lambda: any(job.succeeded for job in cluster.jobs()))
        sweep(cluster)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    if when == "when ready":
        sweep(cluster)
        cluster.operator.resync()
        cluster.run(900)
    cluster.unclaim(claim)
    if when == "during the shutdown":
        cluster.until("it is over", lambda: any(job.succeeded and "shutdown" in job.name for job in cluster.jobs()))
        cluster.run(1)
        sweep(cluster)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.run(1800)
    offs = cluster.commands().count("off")
    assert cluster.commands().count("on") == 1
    assert offs == 1 if when != "during the shutdown" else offs <= 2
    assert cluster.power() == "off"


@pytest.mark.parametrize("command", ["on", "off"])
def test_a_pod_that_is_lost_after_its_command_was_sent_is_not_replaced(cluster, command):
    cluster.machine()
    claim = cluster.claim()
    cluster.script(command, "m", seconds=60)
    if command == "off":
        cluster.until("ready", lambda: cluster.phase(claim) == "ready")
        cluster.unclaim(claim)
    cluster.until("the command was sent", lambda: command in cluster.commands())
    pod = next(entry for entry in cluster.pods() if entry.status.phase == "Running")
    cluster.client.delete(Pod, pod.name, "lab", grace_period=0)
    cluster.scripts.scripts.clear()
    cluster.until("an end", lambda: cluster.phase(claim) in {"failed", "gone"})
    cluster.until("off", lambda: cluster.power() == "off", within=300)
    cluster.run(900)
    runs = [run[2] for run in cluster.scripts.runs]
    assert len(runs) == len(set(runs)), "no Job ran twice"
    again = cluster.ready()
    cluster.run(900)
    assert cluster.phase(again) == "ready"
    assert cluster.commands()[-1] == "on", "nothing of the shutdown before was left to switch it off again"


def test_a_shutdown_job_never_runs_on_a_machine_of_a_pool_even_if_there_is_no_other_node(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.client.patch(CoreNode, "host", None, MergePatch({"spec": {"unschedulable": True}}))
    cluster.unclaim(claim)
    cluster.run(1700)
    assert cluster.commands() == ["on"]
    assert cluster.condition(cluster.slot(), SlotCondition.NEEDS_HUMAN)
    cluster.client.patch(CoreNode, "host", None, MergePatch({"spec": {"unschedulable": None}}))
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert cluster.commands() == ["on", "off"]


def test_a_job_that_nobody_ends_at_its_deadline_is_ended_by_our_own_clock(cluster):
    cluster.machine()
    cluster.script("on", "m", hangs=True)
    claim = cluster.claim()
    cluster.until("it runs", lambda: cluster.commands() == ["on"])
    cluster.plane.server.faults.add(Fault(kind="error", user="*job-controller*"))
    cluster.until("failed", lambda: cluster.phase(claim) == "failed", within=400)
    assert cluster.reason(claim) == "StartupJobTimeout"
    cluster.plane.server.faults.clear()
    cluster.until("reversed", lambda: cluster.phase(claim) == "failed" and cluster.power() == "off", within=300)
    assert not [pod for pod in cluster.pods() if "startup" in pod.name]
    assert cluster.phase(claim) == "failed"
    assert cluster.commands() == ["on", "off"]
