"""The world of a fault test: a control plane with machines, our kinds installed, one namespace per story."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

import structlog
import yaml
from pydantic import Field

from homelab_api import names
from homelab_api.core import Secret
from homelab_api.meta import JsonObject, KubeObject, ResourceInfo
from homelab_autoscaler.runtime import Client, SystemClock, load_config
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.hosted import HostedControlPlane
from homelab_autoscaler.sandbox.timings import Timings
from homelab_autoscaler.settings import Settings
from lab import telling
from lab.pool import Pool
from lab.real import AttachedCluster, real_assets
from lab.record import Recorder, WatchedChanges
from lab.run import CANARY

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_autoscaler.sandbox.machines.ledger import LedgerEntry
    from lab.interposer import Fault, Place
    from lab.run import Run
    from lab.stories import Story

FACTOR = 30.0
CRDS = Path(__file__).parents[3] / "config" / "crd" / "bases"


class Namespace(KubeObject):
    """core/v1."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Namespace", "namespaces", namespaced=False)


class Definition(KubeObject):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )
    spec: JsonObject = Field(default_factory=dict)


def quick_settings() -> Settings:
    """Short waits, generous deadlines: a busy test machine makes a story longer, never different."""
    return (
        Settings()
        .scaled(FACTOR)
        .model_copy(
            update={
                "job_timeout": 60.0,
                "registration_wait": 60.0,
                "gate_timeout": 60.0,
                "deadline_slack": 60.0,
                "off_settle": 30.0,
                "lease_silence": 4.0,
                "job_failure_target_grace": 20.0,
                # Longer than any story: what a busy machine takes longer over must not be collected meanwhile.
                "claim_ttl": 900.0,
            }
        )
    )


class World:
    """Runs from `with` to its end; shared by all tests of a worker."""

    side_by_side = True

    def __init__(self, folder: Path, cluster: AttachedCluster | HostedControlPlane | None = None) -> None:
        self._folder = folder
        # A kubelet of a busy test machine may be late by seconds, which is minutes of a true one: not yet silent.
        timings = replace(Timings().scaled(FACTOR), node_grace=4.0)
        assets, simulators = real_assets(), SimulatorOptions(timings=timings)
        self._cluster = cluster or (
            AttachedCluster(assets, simulators)
            if assets
            else HostedControlPlane(ControlPlaneOptions(simulators=simulators))
        )
        self._numbers = itertools.count(1)
        self.recorder = Recorder()
        self.settings = quick_settings()
        self.leaks: list[str] = []
        self._logging = structlog.get_config()
        self._watched: WatchedChanges | None = None
        self.kubeconfig = ""

    def __enter__(self) -> Self:
        # A line is neither rendered nor printed: thousands of them would cost more than what they tell of.
        structlog.configure(processors=[structlog.contextvars.merge_contextvars, self._listen])
        self._cluster.start()
        self.kubeconfig = str(self._cluster.write_kubeconfig(self._folder / "kubeconfig"))
        self.client = Client(load_config(self.kubeconfig), SystemClock())
        for path in sorted(CRDS.glob("*.yaml")):
            for body in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                self.client.create_json(Definition, body, None)
        self._record()
        return self

    def _listen(self, _logger: object, _method: str, event: structlog.types.EventDict) -> NoReturn:
        if event.get("exc_info"):
            event = structlog.processors.format_exc_info(_logger, _method, event)
        line = repr(event)
        if CANARY in line:
            self.leaks.append(line)
        raise structlog.DropEvent

    def _record(self) -> None:
        if isinstance(self._cluster, HostedControlPlane):
            self._cluster.call(lambda plane: plane.server.writes.subscribe(self.recorder.wrote))
            return
        self._watched = WatchedChanges(self.client, self.recorder)

    def __exit__(self, *_: object) -> None:
        if self._watched is not None:
            self._watched.close()
        self.client.close()
        self._cluster.stop()
        structlog.configure(**self._logging)

    def tell(self, story: Story, fault: Fault | None = None, at: int | Place = 0) -> Run:
        """Tell a story to a manager of its own; see Teller."""
        return telling.tell(self, story, fault, at)

    def give_secret(self, namespace: str) -> None:
        """The secret that a pool's Jobs mount, and that nobody may repeat."""
        data = Secret.encode({"password": CANARY.encode()})
        secret = {"metadata": {"name": "bmc", "namespace": namespace}, "data": data}
        self.client.create_json(Secret, secret, namespace)

    def pool(
        self, *, settings: Settings | None = None, group: JsonObject | None = None, recorded: bool = False
    ) -> Pool:
        """A namespace with a group.

        Args:
            settings: of its managers.
            group: what its group declares.
            recorded: what happens in it is recorded from its first object on. A watch tells of an object some time
                after it was made: of a record that was opened later, nobody could say whether it has the group.
        """
        namespace = f"lab-{next(self._numbers)}"
        if recorded:
            self.recorder.open(namespace)
        self.client.create(Namespace.from_json({"metadata": {"name": namespace}}))
        self.give_secret(namespace)
        pool = Pool(self.kubeconfig, namespace, settings or self.settings)
        pool.create_group(**(group or {}))
        return pool

    def machine(
        self, pool: Pool, name: str = "m", *, on: bool = False, slot: JsonObject | None = None, **behaviour
    ) -> str:
        """A machine and its slot; returns the name of both. Times of the behaviour are true seconds."""
        machine = f"{pool.namespace}-{name}"
        timing = {"boot_seconds": 0.7, "stop_seconds": 0.2, "firmware_delay": 0.05, **behaviour}
        # The kubelet brings the group label, as docs advise: no Job of another pool lands on a machine that just came.
        node = NodeSpec(f"node-{machine}", labels={names.LABEL_GROUP: "pool"})
        spec = MachineSpec(machine, node, Behaviour(**timing), initially_on=on)
        self._cluster.call(lambda plane: plane.fleet.add(spec) and None)
        pool.create_slot(machine, f"node-{machine}", **(slot or {}))
        return machine

    def behave(self, machine: str, **values: object) -> None:
        """Change how a machine behaves."""
        self.on_machine(machine, lambda found: found.change(replace(found.behaviour, **values)))

    def on_machine(self, machine: str, action) -> object:
        """Call something on the machine, in its own loop."""
        return self._cluster.call(lambda plane: action(plane.fleet[machine]))

    def power(self, machine: str) -> str:
        """True power."""
        return self._cluster.call(lambda plane: plane.fleet[machine].power.value)

    def powers(self, machine: str) -> list[tuple[datetime, str]]:
        """Changes of true power, in order."""
        found = self._cluster.call(lambda plane: plane.fleet[machine].history)
        return [(at, power.value) for at, power in found]

    def ledger(self, machine: str) -> list[LedgerEntry]:
        """Power commands that reached the machine, in order."""
        return self._cluster.call(lambda plane: plane.ledger.entries(machine))

    def commands(self, machine: str) -> list[str]:
        """The same, as words."""
        return [entry.command for entry in self.ledger(machine)]
