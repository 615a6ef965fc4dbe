"""Our runtime beside kopf: the same task, each as a process of its own, against the same API server.

Four clients create 2,000 objects; the operator gives each one status patch when it sees it. Measured: CPU seconds of
the operator's process per object, time from the first create to the last status, latency of an object (from the moment
a watcher sees it to the moment it sees its status), and peak memory. Each operator gets a server started for it.

Ours runs with 1, 4 and 16 workers; kopf with as many tasks as there are objects, since it has no pool of workers.

Environment: BENCH_OBJECTS (2000), BENCH_WORKERS ("1,4,16"), KUBEBUILDER_ASSETS for a real kube-apiserver.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "operators"))

from widget import CRD, Widget  # noqa: E402

from homelab_api.meta import KubeObject, ResourceInfo  # noqa: E402
from homelab_autoscaler.runtime import AlreadyExistsError, ApiError, Client, SystemClock, load_config  # noqa: E402
from homelab_autoscaler.runtime.cache import ApiListWatch  # noqa: E402
from homelab_autoscaler.runtime.client import Transport  # noqa: E402
from homelab_autoscaler.sandbox.testing.control_plane import ASSETS, real_control_plane  # noqa: E402

OBJECTS = int(os.environ.get("BENCH_OBJECTS", "2000"))
WORKERS = [int(text) for text in os.environ.get("BENCH_WORKERS", "1,4,16").split(",")]
CREATORS = 4
DEADLINE = 180.0
TICKS = os.sysconf("SC_CLK_TCK")


class Definition(KubeObject):
    """apiextensions CustomResourceDefinition."""

    resource = ResourceInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )


@contextlib.contextmanager
def server():
    """A kubeconfig of a fresh API server in a process of its own."""
    if os.environ.get(ASSETS):
        with real_control_plane(Path(os.environ[ASSETS])) as plane:
            yield str(plane.kubeconfig)
        return
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        command = [sys.executable, "-m", "homelab_autoscaler.sandbox.apiserver", "--kubeconfig", kubeconfig]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline().startswith("http")
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


class Watcher:
    """Sees every Widget and its status, with the times."""

    def __init__(self, config):
        self.seen, self.done = {}, {}
        self._transport = Transport(config, SystemClock())
        self._source = ApiListWatch(self._transport, SystemClock(), Widget.resource)
        self._version = self._source.list(resource_version="", limit=0, continue_token="").resource_version
        self._closed = False
        self._open()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _open(self):
        self._watch = self._source.watch(resource_version=self._version, timeout_seconds=600, initial_events=False)

    def _run(self):
        while not self._closed:
            try:
                for event in self._watch:
                    self._take(event)
                why = "ended"
            except ApiError as error:
                why = str(error)
            if not self._closed:  # a server cuts a watch that does not keep up
                print(f"the bench's own watch is opened again: {why}", file=sys.stderr)
                self._open()

    def _take(self, event):
        now = time.perf_counter()
        metadata = event.object["metadata"]
        self._version = metadata["resourceVersion"]
        if event.type in {"ADDED", "MODIFIED"}:
            self.seen.setdefault(metadata["name"], now)
            if (event.object.get("status") or {}).get("seen"):
                self.done.setdefault(metadata["name"], now)

    def close(self):
        self._closed = True
        self._watch.close()
        self._thread.join(5)
        self._transport.close()


def cpu_seconds(pid):
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid):
    """Highest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def wait_until(condition, what):
    """Poll until true."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


def create(client, names):
    """Create widgets one after the other."""
    for name in names:
        body = {
            "apiVersion": "bench.example/v1",
            "kind": "Widget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"size": 3, "color": "blue", "note": "x" * 200},
        }
        client.create_json(Widget, body, "default")


def prepare(client):
    """Install the kind."""
    with contextlib.suppress(AlreadyExistsError):
        client.create_json(Definition, CRD, None)

    def served():
        try:
            return client.list(Widget) is not None
        except ApiError:
            return False

    wait_until(served, "the kind being served")


def measure(script, workers):
    """One run of one operator."""
    with server() as kubeconfig:
        config = load_config(kubeconfig)
        clients = [Client(config, SystemClock()) for _ in range(CREATORS)]
        prepare(clients[0])
        command = [sys.executable, str(HERE / "operators" / script), kubeconfig, str(workers)]
        operator = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        watcher = Watcher(config)
        try:
            create(clients[0], ["warm-up"])
            wait_until(lambda: "warm-up" in watcher.done, f"{script} starting")
            before, started = cpu_seconds(operator.pid), time.perf_counter()
            with ThreadPoolExecutor(CREATORS) as pool:
                names = [[f"w{index}" for index in range(number, OBJECTS, CREATORS)] for number in range(CREATORS)]
                for _ in pool.map(create, clients, names):
                    pass  # a client that failed raises here
            wait_until(lambda: len(watcher.done) == OBJECTS + 1, f"{script} seeing all")
            ended = max(watcher.done.values())
            time.sleep(0.5)  # the echo of the last writes belongs to the work
            latencies = sorted(watcher.done[name] - watcher.seen[name] for name in watcher.seen if name != "warm-up")
            return {
                "operator": script.removesuffix(".py"),
                "workers": workers,
                "cpu_ms_per_object": round((cpu_seconds(operator.pid) - before) / OBJECTS * 1000, 2),
                "end_to_end_s": round(ended - started, 2),
                "p50_ms": round(latencies[len(latencies) // 2] * 1000, 1),
                "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 1),
                "peak_mib": round(peak_mib(operator.pid), 1),
            }
        finally:
            watcher.close()
            operator.terminate()
            try:
                operator.wait(20)
            except subprocess.TimeoutExpired:
                operator.kill()
                operator.wait(20)
            for client in clients:
                client.close()


def main() -> int:
    """Run ours with each number of workers, then kopf, and print."""
    cores = len(os.sched_getaffinity(0))
    where = "kube-apiserver" if os.environ.get(ASSETS) else "embedded"
    print(json.dumps({"bench": "comparison with kopf", "objects": OBJECTS, "server": where, "cores": cores}))
    for workers in WORKERS:
        print(json.dumps(measure("ours.py", workers)), flush=True)
    print(json.dumps(measure("with_kopf.py", "unlimited")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
