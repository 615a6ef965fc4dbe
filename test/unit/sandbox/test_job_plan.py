from datetime import UTC, datetime, timedelta

import pytest

from homelab_autoscaler.sandbox.controllers.job_plan import TRACKING_FINALIZER, Plan, finished_at, is_finished, plan

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"


def job(status=None, *, deleting=False, **spec):
    body = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "suspend": False, **spec}
    meta = {"name": "j", "namespace": "n", "uid": "job-uid"}
    if deleting:
        meta["deletionTimestamp"] = STAMP
    return {"metadata": meta, "spec": body, "status": status or {}}


def pod(name="j-1", phase="Pending", *, tracked=True, deleting=False, ready=False, ended=None, node="n1"):
    meta = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
    if tracked:
        meta["finalizers"] = [TRACKING_FINALIZER]
    if deleting:
        meta["deletionTimestamp"] = STAMP
    status = {"phase": phase}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    if ended:
        status["containerStatuses"] = [{"name": "c", "state": {"terminated": {"finishedAt": ended}}}]
    return {"metadata": meta, "spec": {"nodeName": node}, "status": status}


def types(status):
    return [(item["type"], item["status"]) for item in status.get("conditions", [])]


def after(current, found: Plan):
    """The Job after a step was stored."""
    status = found.settled or found.noted or current["status"]
    return {**current, "status": status}


def test_a_new_job_starts_its_clock_and_asks_for_one_pod():
    found = plan(job(), [], NOW)
    assert found.create == 1
    assert found.noted["active"] == 1
    assert found.noted["startTime"] == STAMP
    assert found.settled is None


def test_a_job_whose_pods_are_as_noted_needs_nothing():
    current = job()
    current = after(current, plan(current, [], NOW))
    assert plan(current, [pod()], NOW) == Plan()


def test_a_running_ready_pod_is_counted_as_ready():
    current = after(job(), plan(job(), [], NOW))
    assert plan(current, [pod(phase="Running", ready=True)], NOW).noted["ready"] == 1


def test_success_is_noted_first_then_counted_then_final():
    current = after(job(), plan(job(), [], NOW))
    found = plan(current, [pod(phase="Succeeded")], NOW + timedelta(seconds=5))
    assert found.noted["uncountedTerminatedPods"] == {"succeeded": ["uid-j-1"]}
    assert types(found.noted) == [("SuccessCriteriaMet", "True")]
    assert [item["metadata"]["name"] for item in found.release] == ["j-1"]
    assert found.settled["succeeded"] == 1
    assert found.settled["uncountedTerminatedPods"] == {}
    assert types(found.settled) == [("SuccessCriteriaMet", "True"), ("Complete", "True")]
    assert found.settled["completionTime"] == "2026-01-01T12:00:05Z"
    assert "active" not in found.settled


def test_a_pod_that_was_noted_before_a_crash_is_counted_once():
    current = after(job(), plan(job(), [], NOW))
    noted = plan(current, [pod(phase="Succeeded")], NOW).noted
    again = plan({**current, "status": noted}, [pod(phase="Succeeded")], NOW)
    assert again.noted is None
    assert again.settled["succeeded"] == 1
    released = plan({**current, "status": noted}, [pod(phase="Succeeded", tracked=False)], NOW)
    assert released.settled["succeeded"] == 1
    assert released.release == ()


def test_a_failed_pod_beyond_the_limit_fails_the_job():
    current = after(job(), plan(job(), [], NOW))
    found = plan(current, [pod(phase="Failed")], NOW)
    assert found.create == 0
    assert types(found.noted) == [("FailureTarget", "True")]
    assert types(found.settled) == [("FailureTarget", "True"), ("Failed", "True")]
    assert found.settled["conditions"][1]["reason"] == "BackoffLimitExceeded"
    assert found.settled["failed"] == 1
    assert "completionTime" not in found.settled


def test_a_failed_pod_within_the_limit_is_replaced_after_a_pause():
    current = job(backoffLimit=2)
    current = after(current, plan(current, [], NOW))
    failed = pod(phase="Failed", ended=STAMP)
    found = plan(current, [failed], NOW + timedelta(seconds=4))
    assert (found.create, found.requeue) == (0, pytest.approx(6.0))
    current = after(current, found)
    found = plan(
        current, [{**failed, "metadata": {**failed["metadata"], "finalizers": []}}], NOW + timedelta(seconds=10)
    )
    assert found.create == 1
    assert found.noted["failed"] == 1


def test_a_job_past_its_deadline_deletes_its_pods_and_fails_when_they_are_gone():
    current = job(activeDeadlineSeconds=10)
    first = plan(current, [], NOW)
    assert first.requeue == pytest.approx(10.0)
    current = after(current, first)
    late = NOW + timedelta(seconds=10)
    found = plan(current, [pod(phase="Running")], late)
    assert [item["metadata"]["name"] for item in found.delete] == ["j-1"]
    assert types(found.settled or found.noted) == [("FailureTarget", "True")]
    current = after(current, found)
    found = plan(current, [pod(phase="Running", tracked=False, deleting=True)], late)
    assert found == Plan()
    found = plan(current, [], late + timedelta(seconds=1))
    last = found.settled or found.noted
    assert types(last) == [("FailureTarget", "True"), ("Failed", "True")]
    assert last["conditions"][1]["reason"] == "DeadlineExceeded"
    assert last["failed"] == 1


def test_a_suspended_job_has_no_pods_and_no_clock():
    found = plan(job(suspend=True, activeDeadlineSeconds=1), [], NOW)
    assert found.create == 0
    assert types(found.noted) == [("Suspended", "True")]
    assert "startTime" not in found.noted


def test_resuming_starts_the_clock_anew():
    current = job(suspend=True)
    current = after(current, plan(current, [], NOW))
    later = NOW + timedelta(hours=1)
    found = plan({**current, "spec": {**current["spec"], "suspend": False}}, [], later)
    assert found.create == 1
    assert types(found.noted) == [("Suspended", "False")]
    assert found.noted["startTime"] == "2026-01-01T13:00:00Z"


def test_suspending_withdraws_pods_without_counting_them():
    current = after(job(), plan(job(), [], NOW))
    current = {**current, "spec": {**current["spec"], "suspend": True}}
    found = plan(current, [pod(phase="Running")], NOW)
    assert [item["metadata"]["name"] for item in found.withdraw] == ["j-1"]
    status = found.settled or found.noted
    assert status["terminating"] == 1
    assert "failed" not in status
    assert "startTime" not in status
    assert "active" not in status


def test_a_deleted_running_pod_counts_as_failed():
    current = after(job(), plan(job(), [], NOW))
    found = plan(current, [pod(phase="Running", deleting=True)], NOW)
    assert types(found.noted) == [("FailureTarget", "True")]
    assert types(found.settled) == [("FailureTarget", "True")]
    assert found.settled["terminating"] == 1


def test_a_job_that_is_being_deleted_makes_no_pods_and_frees_those_it_has():
    found = plan(job(deleting=True), [pod(phase="Running")], NOW)
    assert found.create == 0
    assert len(found.release) == 1


def test_several_pods_run_at_a_time_up_to_the_completions():
    current = job(parallelism=3, completions=4)
    found = plan(current, [], NOW)
    assert found.create == 3
    current = after(current, found)
    pods = [pod("j-1", "Succeeded"), pod("j-2", "Succeeded"), pod("j-3", "Running")]
    found = plan(current, pods, NOW)
    assert found.create == 1
    assert (found.settled["succeeded"], found.settled["active"]) == (2, 2)


def test_lowering_the_parallelism_withdraws_what_is_too_much():
    current = after(job(parallelism=2, completions=4), plan(job(parallelism=2, completions=4), [], NOW))
    current = {**current, "spec": {**current["spec"], "parallelism": 1}}
    found = plan(current, [pod("j-1", "Running"), pod("j-2", "Running")], NOW)
    assert [item["metadata"]["name"] for item in found.withdraw] == ["j-2"]


def test_a_finished_job_only_frees_its_pods():
    done = job(status={"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": STAMP}]})
    assert is_finished(done)
    assert finished_at(done) == NOW
    found = plan(done, [pod(phase="Succeeded")], NOW)
    assert len(found.release) == 1
    assert (found.noted, found.settled, found.create) == (None, None, 0)
