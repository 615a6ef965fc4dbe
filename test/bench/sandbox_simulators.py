"""What the simulators around the API server cost: how fast a Job runs, and what a hundred idle machines take."""

import asyncio
import json
import resource
import statistics
import sys
import time

import structlog

from homelab_autoscaler.sandbox.controlplane import ControlPlane, ControlPlaneOptions
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.resources import JOBS, NODES, path
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.timings import Timings

JOBS_RUN = 20
MACHINES = 100
IDLE_SECONDS = 10.0


def job(name):
    container = {"name": "main", "image": "x", "command": ["true"]}
    tolerations = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
    pod = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


async def seen(client, collection, check):
    async for event in client.watch(collection):
        if check(event["object"]):
            return


def is_ready(node):
    return any(item["type"] == "Ready" and item["status"] == "True" for item in node["status"].get("conditions", []))


async def job_seconds():
    """Create → Complete of single Jobs whose command is `true`."""
    async with ControlPlane(ControlPlaneOptions()) as plane:
        client = plane.server.local()
        await seen(client, path(NODES), is_ready)
        times = []
        for number in range(JOBS_RUN):
            name = f"job-{number}"
            started = time.perf_counter()
            await client.create(path(JOBS, "default"), job(name))
            await seen(
                client,
                path(JOBS, "default"),
                lambda found, name=name: found["metadata"]["name"] == name and found["status"].get("completionTime"),
            )
            times.append(time.perf_counter() - started)
        return times


async def idle_share():
    """CPU share of a whole control plane with many machines that are up, at their real pace."""
    quick = Behaviour(boot_seconds=0.5, firmware_delay=0.0)
    machines = tuple(MachineSpec(f"m{number}", behaviour=quick, initially_on=True) for number in range(MACHINES))
    options = SimulatorOptions(machines=machines, timings=Timings())
    async with ControlPlane(ControlPlaneOptions(simulators=options)) as plane:
        client = plane.server.local()
        ready = set()

        def all_ready(node):
            if is_ready(node):
                ready.add(node["metadata"]["name"])
            return len(ready) == MACHINES + 1

        await seen(client, path(NODES), all_ready)
        before = time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        return (time.process_time() - before) / IDLE_SECONDS


def main() -> int:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    times = asyncio.run(job_seconds())
    share = asyncio.run(idle_share())
    result = {
        "bench": "sandbox simulators",
        "job_create_to_complete_ms": {
            "median": round(statistics.median(times) * 1000, 1),
            "worst": round(max(times) * 1000, 1),
        },
        "idle_cpu_percent_100_machines": round(share * 100, 1),
        "resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
