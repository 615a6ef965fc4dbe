"""Everything around an API server: controllers, scheduler, the host node that runs Jobs, machines and their BMC.

Works against the embedded server and against a real kube-apiserver alike: it only needs clients. Where the real
controllers run, ours stay away (`controllers=False`).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from homelab_autoscaler.sandbox.controllers.disruption import DisruptionController
from homelab_autoscaler.sandbox.controllers.garbage_collector import GarbageCollector
from homelab_autoscaler.sandbox.controllers.job import JobController
from homelab_autoscaler.sandbox.controllers.namespace import NamespaceController
from homelab_autoscaler.sandbox.controllers.node_lifecycle import NodeLifecycleController
from homelab_autoscaler.sandbox.controllers.pod_gc import PodGarbageCollector
from homelab_autoscaler.sandbox.controllers.replicas import DeploymentController, ReplicaSetController
from homelab_autoscaler.sandbox.controllers.taint_eviction import TaintEvictionController
from homelab_autoscaler.sandbox.controllers.ttl import TtlController
from homelab_autoscaler.sandbox.informer import InformerSet
from homelab_autoscaler.sandbox.kubelet.kubelet import Kubelet
from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.machines.bmc import BmcServer
from homelab_autoscaler.sandbox.machines.fleet import Fleet
from homelab_autoscaler.sandbox.machines.ledger import PowerLedger
from homelab_autoscaler.sandbox.machines.machine import Surroundings
from homelab_autoscaler.sandbox.podrunner.logs import LogStore
from homelab_autoscaler.sandbox.podrunner.runtime import ProcessRuntime
from homelab_autoscaler.sandbox.scheduling.scheduler import Scheduler
from homelab_autoscaler.sandbox.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.controllers.controller import Controller
    from homelab_autoscaler.sandbox.machines.spec import MachineSpec

log = structlog.get_logger(__name__)

HOST_NODE: Final = "sandbox-host"
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class SimulatorOptions:
    """What runs around the API server.

    Attributes:
        machines: The machines; names must differ.
        timings: The pace; machines' own behaviour is scaled by its factor too.
        controllers: Run the controllers of a cluster. Off where real ones run, or where a test plays their part.
        scheduler: Run the scheduler-lite.
        host_node: Run the node that executes pods as local processes.
        ledger_path: Keep the power ledger in this file as well.
        bmc_host: Address of the BMC endpoint.
        bmc_port: Its port; 0 for a free one.
    """

    machines: tuple[MachineSpec, ...] = ()
    timings: Timings = field(default_factory=Timings)
    controllers: bool = True
    scheduler: bool = True
    host_node: bool = True
    ledger_path: Path | None = None
    bmc_host: str = "127.0.0.1"
    bmc_port: int = 0


class Simulators:
    """Runs what the options ask for on the present event loop, from `start` to `close`.

    Guarantee: after `close` no task and no process that was started here is left.
    """

    def __init__(self, client: Callable[[str], ApiClient], clock: SandboxClock, options: SimulatorOptions) -> None:
        """Prepare everything; nothing runs yet.

        Args:
            client: Makes a client for a user name, so that the server's write log tells who wrote.
            clock: Sandbox time.
            options: What to run.
        """
        self._client = client
        self._clock = clock
        self._options = options
        self._tasks: list[asyncio.Task[None]] = []
        self._root: Path | None = None
        self._logs: LogStore | None = None
        self._runtimes: list[ProcessRuntime] = []
        ledger = PowerLedger(clock.now, options.ledger_path)
        timings = options.timings
        around = Surroundings(clock, ledger, client, timings.kubelet, timings.factor, self._processes)
        self.fleet = Fleet(around, options.machines)
        self.bmc = BmcServer(self.fleet)

    def _processes(self, client: ApiClient, node: str) -> ProcessRuntime:
        """A runtime for the pods of one node's present boot."""
        assert self._root is not None, "nodes run between start and close only"
        root = self._root / "nodes" / f"{node}-{len(self._runtimes)}"
        environment = {"SANDBOX_BMC": self.bmc.url}
        runtime = ProcessRuntime(client, self._clock, root, self.logs, environment=environment)
        self._runtimes.append(runtime)
        return runtime

    @property
    def ledger(self) -> PowerLedger:
        """The power ledger."""
        return self.fleet.ledger

    @property
    def logs(self) -> LogStore:
        """The output of pods that ran as processes; there from `start` on."""
        assert self._logs is not None, "start first"
        return self._logs

    async def start(self) -> None:
        """Start everything; returns when the BMC endpoint is open.

        Raises:
            OSError: the BMC port is in use.
        """
        self._root = Path(tempfile.mkdtemp(prefix="homelab-sandbox-"))
        self._logs = LogStore(self._root / "logs", self._clock.now)
        await self.bmc.start(self._options.bmc_host, self._options.bmc_port)
        informers = InformerSet(self._client("system:kube-controller-manager"), self._clock)
        if self._options.controllers:
            for controller in self._controllers(informers):
                self._spawn(controller.component, controller.run)
        if self._options.scheduler:
            scheduler = Scheduler(self._client("system:kube-scheduler"), self._clock, informers)
            self._spawn(scheduler.component, scheduler.run)
        self._spawn("informers", informers.run)
        if self._options.host_node:
            self._spawn("host node", self._host_node().run)
        self.fleet.start()

    def _controllers(self, informers: InformerSet) -> tuple[Controller[Any], ...]:
        timings = self._options.timings

        def client(name: str) -> ApiClient:
            return self._client(f"system:serviceaccount:kube-system:{name}")

        shared = (self._clock, informers)
        return (
            GarbageCollector(client("generic-garbage-collector"), *shared),
            NamespaceController(client("namespace-controller"), *shared, retry=timings.namespace_retry),
            JobController(client("job-controller"), *shared),
            TtlController(client("ttl-after-finished-controller"), *shared),
            NodeLifecycleController(
                client("node-controller"),
                *shared,
                grace=timings.node_grace,
                startup_grace=timings.node_startup_grace,
            ),
            TaintEvictionController(client("taint-eviction-controller"), *shared),
            PodGarbageCollector(client("pod-garbage-collector"), *shared, quarantine=timings.pod_gc_quarantine),
            DisruptionController(client("disruption-controller"), *shared),
            ReplicaSetController(client("replicaset-controller"), *shared),
            DeploymentController(client("deployment-controller"), *shared),
        )

    def _host_node(self) -> Kubelet:
        client = self._client(f"system:node:{HOST_NODE}")
        node = NodeSpec(
            HOST_NODE,
            labels={CONTROL_PLANE: ""},
            taints=({"key": CONTROL_PLANE, "effect": "NoSchedule"},),
            provider_id=f"sandbox://{HOST_NODE}",
        )
        timings = replace(self._options.timings.kubelet, ready_after=0.0)
        return Kubelet(client, self._clock, node, self._processes(client, HOST_NODE), timings)

    def _spawn(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep_running(name, work), name=name))

    async def _keep_running(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """A part that ends by itself is a defect: say so and start it again; the cluster must not fall silent."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("a part of the sandbox failed", part=name)
            await self._clock.sleep(1.0)

    async def close(self) -> None:
        """End everything."""
        await self.fleet.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for runtime in self._runtimes:
            await runtime.close()
        await self.bmc.close()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
