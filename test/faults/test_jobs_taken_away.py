"""Lifecycle Jobs that somebody else takes away or keeps from running. On virtual time, with true numbers."""

import pytest
from virtual.rest import at_rest
from virtual.scripts import Script

from homelab_api.core import Job, Pod
from homelab_autoscaler.sandbox.apiserver import Fault

pytestmark = pytest.mark.faults


def delete_jobs(cluster, *, running=True):
    """What a hand does, or a sweep of the namespace: Jobs with their pods."""
    for job in cluster.jobs():
        if not running or not job.finished:
            cluster.client.delete(Job, job.name, "lab", propagation="Background")
    for pod in cluster.pods():
        cluster.client.delete(Pod, pod.name, "lab", grace_period=0)


def test_a_startup_job_deleted_while_it_runs_is_no_verdict_and_is_not_run_again(cluster):
    cluster.machine()
    cluster.script("on", "m", hangs=True)
    claim = cluster.claim()
    cluster.until("asked", lambda: cluster.commands() == ["on"], step=0.2)
    delete_jobs(cluster)
    cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    assert cluster.commands() == ["on"], "the machine came: what became of the Job does not matter"


def test_a_startup_job_deleted_before_it_sent_anything_fails_its_claim_at_its_deadline(cluster):
    cluster.machine()
    cluster.script("on", "m", sends=0, hangs=True)
    claim = cluster.claim()
    cluster.until("running", lambda: any(job.status.start_time for job in cluster.jobs()))
    cluster.run(5)
    delete_jobs(cluster)
    cluster.until("failed", lambda: cluster.phase(claim) == "failed")
    assert cluster.reason(claim) == "DeadlineExceeded"
    cluster.until("free", lambda: at_rest(cluster))
    assert set(cluster.commands()) <= {"off"}


def test_a_shutdown_job_deleted_while_it_runs_is_made_again_as_another_attempt(cluster):
    cluster.machine()
    claim = cluster.ready()
    cluster.script("off", "m", sends=0, hangs=True)
    cluster.unclaim(claim)
    cluster.until("running", lambda: any(not job.finished for job in cluster.jobs()))
    cluster.run(5)
    cluster.scripts.scripts.clear()
    delete_jobs(cluster)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands() == ["on", "off"]


@pytest.mark.parametrize("when", ["booting", "ready", "off"])
def test_a_sweep_of_all_jobs_of_the_namespace_repeats_no_command(cluster, when):
    cluster.machine()
    claim = cluster.claim()
    cluster.until("asked", lambda: any(job.succeeded for job in cluster.jobs()))
    if when != "booting":
        cluster.until("ready", lambda: cluster.phase(claim) == "ready")
    if when == "off":
        cluster.unclaim(claim)
        cluster.until("free", lambda: at_rest(cluster))
    delete_jobs(cluster, running=False)
    cluster.run(1800)
    assert cluster.commands() == (["on", "off"] if when == "off" else ["on"])
    if when != "off":
        assert cluster.phase(claim) == "ready"


@pytest.mark.parametrize("when", ["boot", "shutdown"])
def test_a_pod_that_quota_or_admission_refuses_ends_its_operation_in_time_and_says_so(cluster, when):
    cluster.machine()
    claim = cluster.ready() if when == "shutdown" else None
    refusal = Fault(kind="error", verb="create", resource="pods", namespace="lab", code=403, message="exceeded quota")
    rule = cluster.in_loop(lambda: cluster.plane.server.faults.add(refusal))
    if when == "boot":
        claim = cluster.claim()
        ended = cluster.until("failed", lambda: cluster.phase(claim) == "failed")
        assert ended <= cluster.settings.boot_budget
        assert cluster.reason(claim) == "StartupJobTimeout"
        assert cluster.commands() == []
    else:
        cluster.unclaim(claim)
        cluster.until("said", lambda: "ShutdownJobTimeout" in cluster.reasons("m"))
        assert cluster.power() == "up"
        assert cluster.phase(claim) == "ready", "marked, and its machine is on"
        assert cluster.commands() == ["on"]
    cluster.in_loop(lambda: cluster.plane.server.faults.remove(rule))
    cluster.until("free", lambda: at_rest(cluster), within=2 * 3600)
    assert cluster.commands().count("on") == (when == "shutdown")
    assert cluster.commands()[-1] == "off"


@pytest.mark.parametrize("when", ["boot", "shutdown"])
def test_an_image_that_cannot_be_pulled_ends_the_operation_in_time(cluster, when):
    cluster.machine()
    claim = cluster.ready() if when == "shutdown" else None
    cluster.scripts.scripts["on" if when == "boot" else "off", "m"] = Script(image_missing=True)
    if when == "boot":
        claim = cluster.claim()
        ended = cluster.until("failed", lambda: cluster.phase(claim) == "failed")
        assert ended <= cluster.settings.boot_budget
        assert cluster.reason(claim) == "StartupJobTimeout"
        cluster.until("free", lambda: at_rest(cluster), within=2 * 3600)
        assert "on" not in cluster.commands()
        return
    cluster.unclaim(claim)
    cluster.until("said", lambda: "ShutdownAttemptLimitReached" in cluster.reasons(claim.name))
    assert cluster.condition(cluster.slot(), "NeedsHuman")
    assert (cluster.power(), cluster.phase(claim)) == ("up", "ready")
    cluster.scripts.scripts.clear()
    cluster.until("free", lambda: at_rest(cluster), within=2 * 3600)
    assert cluster.commands() == ["on", "off"]
