"""What the README states of one manager and a few machines: start, memory, reaction, writes.

Starts the embedded control plane and the manager as processes, as the demo does, and boots machines by claims made by
hand. Everything is read from the outside: /proc, the Lease, the server's log of writes. Reaction times hold no network
and no disk of a real cluster.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from homelab_api.core import Lease
from homelab_api.crd import definitions
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.cli.cluster import cluster_config
from homelab_autoscaler.cli.demo import pool
from homelab_autoscaler.cli.demo.day import peak_memory
from homelab_autoscaler.cli.demo.processes import Children
from homelab_autoscaler.cli.kinds import CustomResourceDefinition
from homelab_autoscaler.runtime import Client, NotFoundError, SystemClock
from homelab_autoscaler.runtime.client.transport import Transport

FACTOR = 20
STARTS = 5
ROUNDS = 3
MACHINES = 3


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, Children(Path(name)) as children:
        bench = Bench(Path(name), children)
        bench.prepare()
        starts = [bench.start_manager() for _ in range(STARTS)]
        for _ in range(ROUNDS):
            bench.boot_and_stop()
        peak = peak_memory(children.named("manager").pid)
        writes = [json.loads(line) for line in bench.writes.read_text().splitlines()]
        cycles = ROUNDS * MACHINES
        show("manager: process start -> leading", starts, 1, "s")
        show("node usable (Job ended before) -> claim ready", list(readiness(writes)), 1000, "ms")
        show("claim created -> startup Job released", list(releases(writes)), 1000, "ms")
        print(f"{'manager: resident memory, highest':48} {peak:7.1f} MiB")
        for kind, count in by_phase(writes).items():
            print(f"{'API writes per ' + kind:48} {count / cycles:7.1f}")
    return 0


class Bench:
    """A control plane, and a manager that can be started again and again."""

    def __init__(self, directory: Path, children: Children) -> None:
        self.directory = directory
        self.children = children
        self.writes = directory / "writes.jsonl"
        self.client: Client

    def prepare(self) -> None:
        """Control plane, kinds, and a pool that is off."""
        machines = self.directory / "machines.yaml"
        machines.write_text(json.dumps(pool.machines(MACHINES)))
        flags = [f"--data-dir={self.directory}", f"--machines={machines}", f"--time-factor={FACTOR}"]
        self.children.start("control plane", ["sandbox", *flags])
        until((self.directory / "sandbox.json").exists)
        config = cluster_config(str(self.directory / "kubeconfig"))
        clock = SystemClock()
        self.client = Client(config, clock, transport=Transport(config, clock, user_agent="bench"))
        for body in definitions():
            self.client.create_json(CustomResourceDefinition, body, None)
        until(lambda: all(crd.established for crd in self.client.list(CustomResourceDefinition).items))
        self.client.create_json(Group, pool.group(MACHINES, FACTOR), pool.NAMESPACE)
        for number in range(1, MACHINES + 1):
            self.client.create_json(Node, pool.slot(number), pool.NAMESPACE)

    def start_manager(self) -> float:
        """Start a manager, the one before it stopped; seconds until it leads."""
        self.children.stop_named("manager")
        before = self._holder()
        flags = [f"--kubeconfig={self.directory / 'kubeconfig'}", f"--time-factor={FACTOR}", "--namespace=default"]
        quiet = ["--grpc-address=", "--health-address=", "--metrics-address="]
        child = self.children.start("manager", ["manager", *flags, *quiet])
        until(lambda: self._holder() not in ("", before))
        lease = self.client.get(Lease, "homelab-autoscaler", pool.NAMESPACE)
        assert lease.spec.acquire_time is not None
        return lease.spec.acquire_time.timestamp() - child.started_at

    def _holder(self) -> str:
        try:
            return self.client.get(Lease, "homelab-autoscaler", pool.NAMESPACE).spec.holder_identity or ""
        except NotFoundError:
            return ""

    def boot_and_stop(self) -> None:
        """All machines on, then all off."""
        until(lambda: all(slot.status.phase == "off" for slot in self.client.list(Node, pool.NAMESPACE).items))
        for number in range(1, MACHINES + 1):
            body = {
                "metadata": {"name": f"bench-{time.monotonic_ns()}", "namespace": pool.NAMESPACE},
                "spec": {"slotRef": {"name": pool.slot_name(number)}, "call": "Manual", "group": pool.GROUP},
            }
            self.client.create_json(NodeClaim, body, pool.NAMESPACE)
        until(lambda: all(slot.status.phase == "ready" for slot in self.client.list(Node, pool.NAMESPACE).items))
        for claim in self.client.list(NodeClaim, pool.NAMESPACE).items:
            self.client.delete(NodeClaim, claim.name, pool.NAMESPACE)
        until(lambda: not self.client.list(NodeClaim, pool.NAMESPACE).items)


def until(reached, within: float = 120.0) -> None:
    """Wait for it."""
    end = time.monotonic() + within
    while not reached():
        if time.monotonic() > end:
            sys.exit("the bench did not get on; is the computer busy?")
        time.sleep(0.02)


def instant(write: dict) -> float:
    """When it was committed."""
    return datetime.fromisoformat(write["time"]).timestamp()


def is_ours(write: dict) -> bool:
    """A counted write of the manager."""
    return write["agent"] == "homelab-autoscaler" and write["resource"] not in {"leases", "events"}


def readiness(writes: list[dict]):
    """From the last thing that a claim waited for to its being ready.

    That is the latest change of its node that was not the manager's: the kubelet's Ready, or the node controller
    taking its not-ready taint away. The startup Job has long ended then.
    """
    slots = {}
    changed = {}
    for write in writes:
        if write["resource"] == "nodeclaims" and write["verb"] == "create":
            slots[write["name"]] = f"rack-{len(slots) % MACHINES + 1}"
        if write["resource"] == "nodes" and not write["group"] and write["agent"] != "homelab-autoscaler":
            changed[write["name"]] = instant(write)
        if write["resource"] == "nodeclaims" and "status.readyAt" in write["fields"]:
            yield instant(write) - changed[slots[write["name"]]]


def releases(writes: list[dict]):
    """From a claim's creation to the release of its startup Job."""
    created = {}
    for write in writes:
        if write["resource"] == "nodeclaims" and write["verb"] == "create":
            created[write["name"]] = instant(write)
        if write["resource"] == "jobs" and "spec.suspend" in write["fields"] and write["name"].endswith("-startup"):
            yield instant(write) - created[write["name"].removesuffix("-startup")]


def by_phase(writes: list[dict]) -> dict[str, int]:
    """Counted writes between a claim's creation and its being ready, and between its delete and its end."""
    counts = {"boot": 0, "shutdown": 0}
    booting = stopping = 0
    for write in writes:
        claim = write["resource"] == "nodeclaims"
        if claim and write["verb"] == "create":
            booting += 1
        elif claim and write["verb"] == "delete":
            stopping += 1
        elif is_ours(write) and not (write["resource"] == "groups" and write["subresource"]):
            if stopping:
                counts["shutdown"] += 1
            elif booting:
                counts["boot"] += 1
        if claim and "metadata.finalizers" in write["fields"] and stopping and write["type"] == "DELETED":
            stopping = booting = 0
    return counts


def show(title: str, values: list[float], scale: float, unit: str) -> None:
    """Median and worst."""
    found = sorted(values)
    print(f"{title:48} {statistics.median(found) * scale:7.1f} {unit}, worst of {len(found)}: {found[-1] * scale:.1f}")


if __name__ == "__main__":
    sys.exit(main())
