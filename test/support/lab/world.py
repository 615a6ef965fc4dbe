"""The world of a fault test: a control plane with machines, our kinds installed, one namespace per story."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import yaml
from pydantic import Field

from homelab_api import names
from homelab_api.meta import JsonObject, KubeObject, ResourceInfo
from homelab_autoscaler.runtime import Client, SystemClock, load_config
from homelab_autoscaler.sandbox.controlplane import ControlPlaneOptions
from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.sandbox.testing.hosted import HostedControlPlane
from homelab_autoscaler.sandbox.timings import Timings
from homelab_autoscaler.settings import Settings
from lab.pool import Pool
from lab.real import AttachedCluster, real_assets

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.machines.ledger import LedgerEntry

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
            }
        )
    )


class World:
    """Runs from `with` to its end; shared by all tests of a worker."""

    def __init__(self, folder: Path, cluster: AttachedCluster | HostedControlPlane | None = None) -> None:
        self._folder = folder
        assets, simulators = real_assets(), SimulatorOptions(timings=Timings().scaled(FACTOR))
        self._cluster = cluster or (
            AttachedCluster(assets, simulators)
            if assets
            else HostedControlPlane(ControlPlaneOptions(simulators=simulators))
        )
        self._numbers = itertools.count(1)
        self.settings = quick_settings()
        self.kubeconfig = ""

    def __enter__(self) -> Self:
        self._cluster.start()
        self.kubeconfig = str(self._cluster.write_kubeconfig(self._folder / "kubeconfig"))
        self.client = Client(load_config(self.kubeconfig), SystemClock())
        for path in sorted(CRDS.glob("*.yaml")):
            for body in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                self.client.create_json(Definition, body, None)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._cluster.stop()

    def pool(self, *, settings: Settings | None = None, group: JsonObject | None = None) -> Pool:
        """A namespace with a group."""
        namespace = f"lab-{next(self._numbers)}"
        self.client.create(Namespace.from_json({"metadata": {"name": namespace}}))
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

    def ledger(self, machine: str) -> list[LedgerEntry]:
        """Power commands that reached the machine, in order."""
        return self._cluster.call(lambda plane: plane.ledger.entries(machine))

    def commands(self, machine: str) -> list[str]:
        """The same, as words."""
        return [entry.command for entry in self.ledger(machine)]
