"""Jobs that really run: the Job controller, the scheduler and the host node together, on a manual clock."""

import base64
from dataclasses import replace

import pytest

from homelab_autoscaler.sandbox import resources
from homelab_autoscaler.sandbox.apiserver import Fault
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.spec import Behaviour, Firmware, MachineSpec
from homelab_autoscaler.sandbox.resources import CONFIG_MAPS, EVENTS, JOBS, PODS, SECRETS, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.world import run_story

ON = ["python", "-m", "homelab_autoscaler.sandbox.power", "on", "m1"]


def run(story, *machines):
    run_story(story, ControlPlaneOptions(simulators=SimulatorOptions(machines=machines)))


def container(command, **more):
    return {"name": "main", "image": "ignored", "command": command, **more}


def job(command, name="j", containers=None, volumes=None, **spec):
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "containers": containers or [container(command)],
        "volumes": volumes or [],
    }
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": pod}, **spec}}


def conditions(found):
    return {item["type"]: item for item in found["status"].get("conditions", []) if item["status"] == "True"}


async def finished(world, name="j"):
    """The Job once it is Complete or Failed."""

    async def check():
        found = await world.get(JOBS, name)
        return found if {"Complete", "Failed"} & set(conditions(found)) else None

    return await world.eventually(check, f"Job {name} has ended", within=600)


async def logs(world, **query):
    pods = await world.items(PODS)
    name = pods[0]["metadata"]["name"]
    answer = await world.admin.request("GET", path(PODS, "default", name, "log"), query={"container": "main", **query})
    assert answer.status == 200, answer.text
    return answer.text


def test_a_job_runs_its_command_and_completes():
    async def story(world):
        await world.create(JOBS, job(["sh", "-c", "echo hello"]))
        found = await finished(world)
        assert set(conditions(found)) == {"SuccessCriteriaMet", "Complete"}
        assert found["status"]["succeeded"] == 1
        assert found["status"]["uncountedTerminatedPods"] == {}
        assert await logs(world) == "hello\n"
        pod = (await world.items(PODS))[0]
        assert pod["spec"]["nodeName"] == "sandbox-host"
        assert pod["status"]["phase"] == "Succeeded"
        assert "finalizers" not in pod["metadata"]

    run(story)


def test_a_job_whose_command_fails_has_failed_and_says_with_which_code():
    async def story(world):
        await world.create(JOBS, job(["sh", "-c", "echo broken >&2; exit 7"]))
        found = await finished(world)
        assert conditions(found)["Failed"]["reason"] == "BackoffLimitExceeded"
        assert (found["status"]["failed"], found["status"].get("active", 0)) == (1, 0)
        state = (await world.items(PODS))[0]["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (7, "Error")
        assert await logs(world) == "broken\n"

    run(story)


@pytest.mark.parametrize(
    ("containers", "reason", "message"),
    [
        ([container(["no-such-command"])], "StartError", 'exec: "no-such-command": executable file not found in $PATH'),
        ([{"name": "main", "image": "x"}], "NoCommand", 'container "main" has no command'),
    ],
)
def test_a_command_that_cannot_start_fails_the_job_with_a_clear_reason(containers, reason, message):
    async def story(world):
        await world.create(JOBS, job(None, containers=containers))
        assert "Failed" in conditions(await finished(world))
        state = (await world.items(PODS))[0]["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["reason"] == reason
        assert message in state["message"]
        assert any(message in event["message"] for event in await world.items(EVENTS))

    run(story)


def test_a_suspended_job_waits_and_runs_when_it_is_released():
    async def story(world):
        await world.create(JOBS, job(["true"], suspend=True))

        async def suspended():
            return "Suspended" in conditions(await world.get(JOBS, "j"))

        await world.eventually(suspended, "the Job is suspended")
        await world.advance(60)
        assert await world.items(PODS) == []
        await world.admin.patch(path(JOBS, "default", "j"), {"spec": {"suspend": False}})
        assert "Complete" in conditions(await finished(world))

    run(story)


def test_a_job_past_its_deadline_fails_and_its_process_is_killed(tmp_path):
    alive = tmp_path / "alive"

    async def story(world):
        script = f"trap '' TERM; while :; do touch {alive}; sleep 0.02; done"
        await world.create(JOBS, job(["sh", "-c", script], activeDeadlineSeconds=30))
        await world.eventually(alive.exists, "the process runs")
        found = await finished(world)
        assert conditions(found)["Failed"]["reason"] == "DeadlineExceeded"

        async def quiet():
            return not await world.items(PODS)

        await world.eventually(quiet, "the pod is gone")
        alive.unlink()
        await world.advance(5)
        assert not alive.exists()

    run(story)


def test_a_deleted_job_takes_its_pod_and_its_process_with_it(tmp_path):
    alive = tmp_path / "alive"

    async def story(world):
        await world.create(JOBS, job(["sh", "-c", f"while :; do touch {alive}; sleep 0.02; done"]))
        await world.eventually(alive.exists, "the process runs")
        await world.admin.delete(path(JOBS, "default", "j"), {"propagationPolicy": "Background"})

        async def gone():
            return not await world.items(PODS)

        await world.eventually(gone, "the pod is gone")
        alive.unlink()
        await world.advance(5)
        assert not alive.exists()

    run(story)


def test_a_finished_job_goes_with_its_pods_when_its_time_is_over():
    async def story(world):
        await world.create(JOBS, job(["true"], ttlSecondsAfterFinished=600))
        await finished(world)
        await world.advance(595)
        assert len(await world.items(JOBS)) == 1

        async def gone():
            return not await world.items(JOBS) and not await world.items(PODS)

        await world.eventually(gone, "Job and pod are gone", within=30)

    run(story)


def test_secrets_and_config_maps_reach_the_process_as_files_and_variables():
    async def story(world):
        secret = {"user": base64.b64encode(b"admin").decode(), "password": base64.b64encode(b"s3cret").decode()}
        await world.create(SECRETS, {"metadata": {"name": "bmc"}, "data": secret})
        await world.create(
            CONFIG_MAPS, {"metadata": {"name": "scripts"}, "data": {"go.sh": '#!/bin/sh\necho "script $1"\n'}}
        )
        mounts = [{"name": "bmc", "mountPath": "/etc/bmc"}, {"name": "scripts", "mountPath": "/scripts"}]
        env = [
            {"name": "BMC_USER", "valueFrom": {"secretKeyRef": {"name": "bmc", "key": "user"}}},
            {"name": "PASSWORD_FILE", "value": "/etc/bmc/password"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
        script = """
        echo "$BMC_USER"; cat "$PASSWORD_FILE"; echo; /scripts/go.sh "$1"; ls "$SANDBOX_ROOT/etc/bmc"
        test "$POD" = "$POD_NAME"
        """
        volumes = [
            {"name": "bmc", "secret": {"secretName": "bmc"}},
            {"name": "scripts", "configMap": {"name": "scripts", "defaultMode": 0o755}},
        ]
        main = container(["sh", "-c", script, "sh"], args=["$(BMC_USER)"], env=env, volumeMounts=mounts)
        await world.create(JOBS, job(None, containers=[main], volumes=volumes))
        assert "Complete" in conditions(await finished(world)), await logs(world)
        assert await logs(world) == "admin\ns3cret\nscript admin\npassword\nuser\n"

    run(story)


def test_a_job_waits_for_a_secret_that_comes_later():
    async def story(world):
        main = container(["cat", "/etc/bmc/token"], volumeMounts=[{"name": "bmc", "mountPath": "/etc/bmc"}])
        await world.create(
            JOBS, job(None, containers=[main], volumes=[{"name": "bmc", "secret": {"secretName": "late"}}])
        )

        async def told():
            return [event for event in await world.items(EVENTS) if event["reason"] == "FailedMount"]

        events = await world.eventually(told, "the missing secret is told")
        assert 'secret "late" not found' in events[0]["message"]
        assert (await world.items(PODS))[0]["status"]["phase"] == "Pending"
        await world.create(SECRETS, {"metadata": {"name": "late"}, "stringData": {"token": "now"}})
        assert "Complete" in conditions(await finished(world))
        assert await logs(world) == "now" + "\n"

    run(story)


def test_a_job_powers_a_machine_and_stands_in_the_ledger_as_the_sender():
    async def story(world):
        await world.create(JOBS, job(ON, name="m1-startup"))
        found = await finished(world, "m1-startup")
        assert "Complete" in conditions(found), await logs(world)
        assert [
            (entry.machine, entry.command, entry.sender, entry.result) for entry in world.plane.ledger.entries()
        ] == [("m1", "on", "m1-startup", "accepted")]
        assert await logs(world) == "power on m1: accepted\n"

    run(story, MachineSpec("m1"))


def test_a_job_fails_when_the_firmware_refuses():
    async def story(world):
        await world.create(JOBS, job(ON))
        assert "Failed" in conditions(await finished(world))
        assert await logs(world) == 'power on m1: machine "m1" did not confirm "on"\n'

    run(story, MachineSpec("m1", behaviour=Behaviour(power_on=Firmware.REFUSE)))


def test_output_can_be_read_in_part():
    async def story(world):
        await world.create(JOBS, job(["sh", "-c", "echo a; echo b; echo c"]))
        await finished(world)
        assert await logs(world, tailLines=1) == "c\n"
        assert (await logs(world, timestamps=True)).startswith("2026-01-01T00:00:")
        assert await logs(world, limitBytes=3) == "a\nb"

    run(story)


def test_a_failed_pod_is_tried_again_within_the_limit():
    async def story(world):
        await world.create(JOBS, job(["false"], backoffLimit=1))
        found = await finished(world)
        assert found["status"]["failed"] == 2
        assert world.clock.monotonic() >= 10

    run(story)


def test_a_job_of_another_manager_is_left_alone():
    async def story(world):
        await world.create(JOBS, job(["true"], managedBy="example.dev/other"))
        await world.advance(60)
        assert (await world.get(JOBS, "j"))["status"] == {}
        assert await world.items(PODS) == []

    run(story)


def test_a_job_orphans_its_pod_when_it_is_told_to():
    async def story(world):
        await world.create(JOBS, job(["sh", "-c", "while :; do sleep 0.1; done"]))

        async def pods():
            return [pod for pod in await world.items(PODS) if pod["status"]["phase"] == "Running"]

        await world.eventually(pods, "the pod runs")
        await world.admin.delete(path(JOBS, "default", "j"), {"propagationPolicy": "Orphan"})

        async def freed():
            pod = (await world.items(PODS))[0]["metadata"]
            return not await world.items(JOBS) and "ownerReferences" not in pod and "finalizers" not in pod

        await world.eventually(freed, "the pod belongs to nobody")
        assert (await world.items(PODS))[0]["status"]["phase"] == "Running"

    run(story)


def test_no_process_and_no_file_outlives_the_control_plane(tmp_path):
    alive = tmp_path / "alive"
    roots = []

    async def story(world):
        await world.create(JOBS, job(["sh", "-c", f"trap '' TERM; while :; do touch {alive}; sleep 0.02; done"]))
        await world.eventually(alive.exists, "the process runs")
        roots.append(world.plane.simulators._root)
        assert roots[0].exists()

    run(story)
    alive.unlink()
    assert not roots[0].exists()

    async def later(world):
        await world.advance(1)

    run(later)
    assert not alive.exists()


def test_writes_of_the_simulators_carry_their_names():
    async def story(world):
        await world.create(JOBS, job(["true"]))
        await finished(world)
        users = {write.user for write in world.plane.server.writes}
        assert "system:serviceaccount:kube-system:job-controller" in users
        assert "system:kube-scheduler" in users
        assert "system:node:sandbox-host" in users

    run(story)


def test_resources_have_the_paths_of_their_groups():
    assert path(JOBS, "default", "j", "status") == "/apis/batch/v1/namespaces/default/jobs/j/status"
    assert path(resources.NODES, "ignored", "n1") == "/api/v1/nodes/n1"
    assert path(PODS) == "/api/v1/pods"


FAULTS = {
    "watches are cut": Fault(kind="watch-cut", events=2, count=60),
    "revisions expire": Fault(kind="watch-expired", events=1, count=40),
    "writes conflict": Fault(kind="conflict", probability=0.3, count=60),
    "replies are lost": Fault(kind="drop-reply", probability=0.2, count=60),
    "the server is overloaded": Fault(kind="too-many-requests", probability=0.3, count=60),
    "the server is ill": Fault(kind="error", code=503, probability=0.3, count=60),
    "events come twice": Fault(kind="duplicate-event"),
}


@pytest.mark.parametrize("title", FAULTS)
def test_one_job_is_one_pod_and_one_power_command_although(title):
    async def story(world):
        await world.advance(5)
        await world.create(JOBS, job(ON, suspend=True))
        world.plane.server.faults.add(replace(FAULTS[title], user="system:[kns]*"))
        await world.advance(5)
        await world.admin.patch(path(JOBS, "default", "j"), {"spec": {"suspend": False}})
        found = await finished(world)
        assert "Complete" in conditions(found)
        assert found["status"]["succeeded"] == 1
        pods = [write for write in world.plane.server.writes if write.resource == "pods" and write.type == "ADDED"]
        assert len(pods) == 1
        assert [entry.sender for entry in world.plane.ledger.entries()] == ["j"]

    run(story, MachineSpec("m1"))


def test_a_job_that_lands_on_a_machine_runs_there_and_ends_with_the_machines_power(tmp_path):
    alive = tmp_path / "alive"

    async def story(world):
        body = job(["sh", "-c", f"echo here; while :; do touch {alive}; sleep 0.02; done"])
        body["spec"]["template"]["spec"]["nodeName"] = "m1"
        await world.create(JOBS, body)
        await world.eventually(alive.exists, "the process runs")
        assert await logs(world) == "here\n"
        world.plane.fleet["m1"].cut_power()
        await world.advance(1)
        alive.unlink()
        await world.advance(5)
        assert not alive.exists()
        assert (await world.items(PODS))[0]["status"]["phase"] == "Running", "nobody is left to say otherwise"

    quick = Behaviour(boot_seconds=1.0, firmware_delay=0.0)
    run(story, MachineSpec("m1", behaviour=quick, initially_on=True))


def test_a_job_on_the_machine_that_it_turns_off_ends_with_it():
    async def story(world):
        body = job(["sh", "-c", "python -m homelab_autoscaler.sandbox.power off m1; sleep 600"])
        body["spec"]["template"]["spec"]["nodeName"] = "m1"
        await world.create(JOBS, body)
        await world.eventually(lambda: not world.plane.fleet["m1"].is_on and world.plane.ledger.entries(), "it is off")
        assert [entry.command for entry in world.plane.ledger.entries()] == ["off"]

    quick = Behaviour(boot_seconds=1.0, firmware_delay=0.0, stop_seconds=0.0)
    run(story, MachineSpec("m1", behaviour=quick, initially_on=True))
