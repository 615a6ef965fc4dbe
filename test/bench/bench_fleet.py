"""The quality bars of a manager over 10, 100 and 1,000 slots: start, quiet, reaction, writes, the provider.

Run: python test/bench/bench_fleet.py [slots ...]. Starts the embedded control plane and the manager as processes and
asks over gRPC as an autoscaler does; everything is read from the outside: /proc, the Lease, the server's log of writes.
Half of the machines serve, the other half is off; heartbeats and every wait of the manager go at their real pace, only
the machines boot faster than metal does. There is no network and no disk of a real cluster in these numbers. Prints a
table with a bar beside each figure; asserts nothing.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from wire.caller import GrpcCaller

from homelab_api import names
from homelab_api.core import Lease, Secret
from homelab_api.crd import definitions
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.cli.cluster import cluster_config
from homelab_autoscaler.cli.demo import pool
from homelab_autoscaler.cli.demo.processes import Children
from homelab_autoscaler.cli.kinds import CustomResourceDefinition
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.runtime import Client, NotFoundError, SystemClock
from homelab_autoscaler.runtime.client.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (10, 100, 1000)
STARTS = 5
BOOTS = 20
IDLE_SECONDS = 30.0
PROVIDER_ROUNDS = 400
BEHAVIOUR = {"boot_seconds": 1.0, "firmware_delay": 0.05, "stop_seconds": 0.2, "announce_shutdown": True}
SERVICE = f"/{pb.DESCRIPTOR.services_by_name['CloudProvider'].full_name}/"
GRPC_SERVICE = "homelab-autoscaler-grpc"
READS = ("NodeGroups", "NodeGroupForNode", "NodeGroupTargetSize", "NodeGroupNodes", "NodeGroupTemplateNodeInfo")


@dataclass(frozen=True)
class Bar:
    """A figure, how it is written, and the most it should be."""

    title: str
    most: float | None
    unit: str


BARS = {
    "start": Bar("process start until leading with synced caches, median", 2.0, "s"),
    "memory": Bar("resident memory, highest", 120.0, "MiB"),
    "idle_cpu": Bar("processor while idle, heartbeats arriving", 1.0, "%"),
    "idle_writes": Bar("writes while idle, without Leases", 0, ""),
    "release": Bar("IncreaseSize answered -> startup Job released, p95", 150.0, "ms"),
    "ready": Bar("node usable, Job over -> claim ready, p95", 200.0, "ms"),
    "boot_writes": Bar("writes per boot: claim created -> ready, mean", 16, ""),
    "shutdown_writes": Bar("writes per shutdown: DeleteNodes -> claim gone, mean", 15, ""),
    "reads": Bar("provider, calls answered from memory, median", None, "ms"),
    "reads_p95": Bar("provider, calls answered from memory, p95", 0.7, "ms"),
    "refresh": Bar("provider, Refresh (it reads the API server), median", None, "ms"),
}


def main() -> int:
    """Measure each size, then print one table."""
    sizes = [int(text) for text in sys.argv[1:]] or SIZES
    results = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="bench-") as name, Children(Path(name)) as children:
            results[size] = Fleet(size, Path(name), children).measure()
            print(f"measured {size} slots", file=sys.stderr)
    print(f"{'':56}" + "".join(f"{f'{size:,} slots':>14}" for size in sizes) + f"{'bar':>14}")
    for key, bar in BARS.items():
        cells = "".join(f"{number(results[size][key], bar.unit):>14}" for size in sizes)
        print(f"{bar.title:56}{cells}{'-' if bar.most is None else f'<= {number(bar.most, bar.unit)}':>14}")
    return 0


def number(value: float, unit: str) -> str:
    """For the table."""
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


@dataclass
class Slot:
    """What happened to a slot that was booted: wall-clock seconds."""

    answered: float
    released: float = 0.0
    usable: float = 0.0
    ready: float = 0.0
    writes: int = 0


class Fleet:
    """One control plane, one manager, and what they do."""

    def __init__(self, size: int, directory: Path, children: Children) -> None:
        self.size = size
        self.groups = min(20, max(1, size // 10))
        self.directory = directory
        self.children = children
        self.client: Client
        self.ports = {"health": 0, "grpc": 0}

    def measure(self) -> dict[str, float]:
        """Every figure of the table."""
        self._declare()
        found = {"start": statistics.median([self._start_manager() for _ in range(STARTS)])}
        until(self._settled, 600)
        idle = self._idle()
        caller = GrpcCaller(f"127.0.0.1:{self.ports['grpc']}", self._credentials())
        calls = self._calls(caller)
        booted = self._boot(caller)
        waits = [slot.ready - max(slot.usable, slot.released) for slot in booted.values()]
        found |= {
            "idle_cpu": idle[0],
            "idle_writes": idle[1],
            "release": p95([slot.released - slot.answered for slot in booted.values()]) * 1000,
            "ready": p95(waits) * 1000,
            "boot_writes": statistics.mean(slot.writes for slot in booted.values()),
            "shutdown_writes": self._shut_down(caller, list(booted)),
            "reads": statistics.median(calls["reads"]) * 1000,
            "reads_p95": p95(calls["reads"]) * 1000,
            "refresh": statistics.median(calls["refresh"]) * 1000,
            "memory": self._status("VmHWM") / 1024,
        }
        return found

    # --- the fleet ----------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Control plane, kinds, groups and slots; every second machine is on."""
        machines = [
            {"name": slot(n), "initiallyOn": n % 2 == 0, "capacity": pool.MACHINE, "behaviour": BEHAVIOUR}
            for n in range(self.size)
        ]
        file = self.directory / "machines.yaml"
        file.write_text(json.dumps({"machines": machines}))
        self.children.start("control plane", ["sandbox", f"--data-dir={self.directory}", f"--machines={file}"])
        until((self.directory / "sandbox.json").exists)
        config = cluster_config(str(self.directory / "kubeconfig"))
        clock = SystemClock()
        self.client = Client(config, clock, transport=Transport(config, clock, user_agent="bench"))
        for body in definitions():
            self.client.create_json(CustomResourceDefinition, body, None)
        until(lambda: all(crd.established for crd in self.client.list(CustomResourceDefinition).items))
        for number_ in range(self.groups):
            body = pool.group(self.size, 1.0)
            body["metadata"]["name"] = group(number_)
            body["spec"]["adoptRunningMachines"] = True
            self.client.create_json(Group, body, pool.NAMESPACE)
        for number_ in range(self.size):
            body = pool.slot(1)
            body["metadata"] |= {"name": slot(number_), "labels": {names.LABEL_GROUP: group(number_ % self.groups)}}
            body["spec"]["kubernetesNodeName"] = slot(number_)
            for key in ("startupPodSpec", "shutdownPodSpec"):
                body["spec"][key]["args"][1] = slot(number_)
            self.client.create_json(Node, body, pool.NAMESPACE)

    def _start_manager(self) -> float:
        """Start a manager, the one before it stopped; seconds until it leads and its caches are filled."""
        self.children.stop_named("manager")
        before = self._lease().spec.acquire_time if self._lease() else None
        self.ports = {name: free_port() for name in self.ports}
        flags = [f"--kubeconfig={self.directory / 'kubeconfig'}", "--namespace=default", "--metrics-address="]
        ports = [f"--health-address=127.0.0.1:{self.ports['health']}", f"--grpc-address=127.0.0.1:{self.ports['grpc']}"]
        host = ["--grpc-host=127.0.0.1", f"--grpc-service={GRPC_SERVICE}", "--log-level=warning"]
        child = self.children.start("manager", ["manager", *flags, *ports, *host])

        def leads() -> bool:
            lease = self._lease()
            return lease is not None and bool(lease.spec.holder_identity) and lease.spec.acquire_time != before

        until(leads)
        until(self._synced)
        return time.time() - child.started_at

    def _lease(self) -> Lease | None:
        try:
            return self.client.get(Lease, "homelab-autoscaler", pool.NAMESPACE)
        except NotFoundError:
            return None

    def _synced(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['health']}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _settled(self) -> bool:
        phases = [str(found.status.phase) for found in self.client.list(Node, pool.NAMESPACE).items]
        return sorted(phases) == sorted(["ready", "off"] * (self.size // 2))

    def _status(self, key: str) -> float:
        """A figure of the manager's process, KiB."""
        text = Path(f"/proc/{self.children.named('manager').pid}/status").read_text()
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{key}:")))

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.children.named('manager').pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # --- what is measured ---------------------------------------------------------------------------------------

    def _idle(self) -> tuple[float, int]:
        """Share of a processor in percent, and writes, while nothing happens."""
        until(lambda: not self._writes_within(5.0), 300)
        revision, cpu, begun = self._revision(), self._cpu_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (self._cpu_seconds() - cpu) / (time.monotonic() - begun)
        return share * 100, len([write for write in self._writes(revision) if is_ours(write)])

    def _writes_within(self, seconds: float) -> bool:
        revision = self._revision()
        time.sleep(seconds)
        return any(is_ours(write) for write in self._writes(revision))

    def _calls(self, caller: GrpcCaller) -> dict[str, list[float]]:
        """Seconds per call."""
        seconds: dict[str, list[float]] = {"reads": [], "refresh": []}
        for turn in range(PROVIDER_ROUNDS):
            id_ = group(turn % self.groups)
            node = pb.ExternalGrpcNode(name=slot(turn * 2 % self.size), providerID="x")
            requests = {
                "NodeGroupForNode": pb.NodeGroupForNodeRequest(node=node),
                "NodeGroupTargetSize": pb.NodeGroupTargetSizeRequest(id=id_),
                "NodeGroupNodes": pb.NodeGroupNodesRequest(id=id_),
                "NodeGroupTemplateNodeInfo": pb.NodeGroupTemplateNodeInfoRequest(id=id_),
                "NodeGroups": pb.NodeGroupsRequest(),
            }
            for method in READS:
                seconds["reads"].append(timed(caller, method, requests[method]))
            if turn % 10 == 0:
                seconds["refresh"].append(timed(caller, "Refresh", pb.RefreshRequest()))
        return seconds

    def _boot(self, caller: GrpcCaller) -> dict[str, Slot]:
        """Buy machines one after another; what became of each, by slot."""
        booted = {}
        for turn in range(min(BOOTS, self.size // 2)):
            revision, known = self._revision(), self._claimed()
            timed(caller, "NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id=self._roomy(turn), delta=1))
            answered = time.time()
            (name,) = self._claimed() - known
            until(lambda name=name: str(self.client.get(Node, name, pool.NAMESPACE).status.phase) == "ready")
            booted[name] = self._story(name, Slot(answered), revision)
        return booted

    def _roomy(self, turn: int) -> str:
        """A group that has a machine to offer: slots of even number are on, and `groups` may be even."""
        off = [number_ for number_ in range(self.size) if number_ % 2]
        return group(off[turn] % self.groups)

    def _story(self, name: str, found: Slot, revision: int) -> Slot:
        for write in self._writes(revision):
            if write["resource"] == "nodes" and not write["group"] and write["name"] == name and not ours(write):
                found.usable = instant(write)
            if not is_ours(write) or not write["name"].startswith(name):
                continue
            if write["resource"] != "nodeclaims" or write["verb"] != "create":
                found.writes += 1
            if write["resource"] == "jobs" and "spec.suspend" in write["fields"]:
                found.released = instant(write)
            if write["resource"] == "nodeclaims" and "status.readyAt" in write["fields"]:
                found.ready = instant(write)
                break
        return found

    def _shut_down(self, caller: GrpcCaller, slots: list[str]) -> float:
        """Give them back one by one; the mean number of writes."""
        revision = self._revision()
        for name in slots:
            id_ = self.client.get(Node, name, pool.NAMESPACE).metadata.labels[names.LABEL_GROUP]
            node = pb.ExternalGrpcNode(name=name, providerID="x")
            timed(caller, "NodeGroupDeleteNodes", pb.NodeGroupDeleteNodesRequest(id=id_, nodes=[node]))

        until(lambda: not self._claimed() & set(slots), 600)
        counted = 0
        for name in slots:
            marked = False
            for write in self._writes(revision):
                if not is_ours(write) or not write["name"].startswith(name):
                    continue
                counted += marked
                marked = marked or (write["resource"] == "nodeclaims" and write["verb"] == "delete")
        return counted / len(slots)

    def _claimed(self) -> set[str]:
        return {claim.slot_name for claim in self.client.list(NodeClaim, pool.NAMESPACE).items}

    def _credentials(self) -> Path:
        folder = self.directory / "client"
        folder.mkdir()
        secret = self.client.get(Secret, f"{GRPC_SERVICE}-client", pool.NAMESPACE)
        for entry in secret.data:
            (folder / entry).write_bytes(secret.entry(entry))
        return folder

    def _revision(self) -> int:
        return int(self.client.list(Group, pool.NAMESPACE).resource_version)

    def _writes(self, since: int) -> list[dict]:
        answer = self.client.transport.request("GET", f"/sandbox/writes?since={since}")
        return json.loads(answer.body)["writes"]


def ours(write: dict) -> bool:
    """A write of the manager."""
    return write["agent"] == "homelab-autoscaler"


def is_ours(write: dict) -> bool:
    """One that counts."""
    report = write["resource"] == "groups" and write["subresource"]
    return ours(write) and write["resource"] not in {"leases", "events"} and not report


def timed(caller: GrpcCaller, method: str, request: object) -> float:
    """Seconds that a call took."""
    message = request.SerializeToString()
    begun = time.perf_counter()
    caller.call(SERVICE + method, message)
    return time.perf_counter() - begun


def slot(number_: int) -> str:
    """A name that is no other's beginning."""
    return f"w{number_:04}"


def group(number_: int) -> str:
    """Of a pool."""
    return f"rack{number_}"


def free_port() -> int:
    """One that nobody listens on."""

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def p95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return statistics.quantiles(values, n=20)[18] if len(values) > 1 else values[0]


def instant(write: dict) -> float:
    """When it was committed."""
    return datetime.fromisoformat(write["time"]).timestamp()


def until(reached: Callable[[], bool], within: float = 120.0) -> None:
    """Wait for it."""
    end = time.monotonic() + within
    while not reached():
        if time.monotonic() > end:
            sys.exit("the bench did not get on; is the computer busy?")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
