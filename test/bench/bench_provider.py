"""Latency of the provider's calls over loopback with mTLS, at 10, 100 and 1,000 slots in 20 groups.

Run: python test/bench/bench_provider.py [slots ...]. The client is a process of its own, so that the two do not share
one interpreter lock; it calls one after another, as the autoscaler mostly does. Prints a table; asserts nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc

from homelab_api import names
from homelab_api.core import CoreNode, Secret
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.claim.names import placeholder_id
from homelab_autoscaler.claim.testing import MemoryStore
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.testing import serve
from homelab_autoscaler.provider.testing.harness import NAMESPACE
from homelab_autoscaler.runtime.clock import SystemClock

GROUPS = 20
ROUNDS = 400


def declare(store: MemoryStore, slots: int) -> None:
    """A pool in which every second machine is up."""
    for number in range(GROUPS):
        store.put(Group.from_json({"metadata": {"name": f"g{number}", "namespace": "pool"}, "spec": {}}))
    for number in range(slots):
        name = f"w{number:04}"
        slot = store.put(
            Node.from_json(
                {
                    "metadata": {
                        "name": name,
                        "namespace": "pool",
                        "labels": {names.LABEL_GROUP: f"g{number % GROUPS}"},
                    },
                    "spec": {
                        "kubernetesNodeName": name,
                        "startupPodSpec": {"image": "wol"},
                        "shutdownPodSpec": {"image": "ssh"},
                        "capacity": {"cpu": "8", "memory": "32Gi"},
                    },
                }
            )
        )
        if number % 2:
            continue
        claim = store.put(
            NodeClaim.from_json(
                {
                    "metadata": {"name": f"{name}-c", "namespace": "pool", "finalizers": [names.FINALIZER_MACHINE]},
                    "spec": {"slotRef": {"name": name}, "call": "IncreaseSize", "group": slot.group},
                    "status": {"phase": "ready", "nodeName": name},
                }
            )
        )
        store.put(
            CoreNode.from_json(
                {
                    "metadata": {"name": name},
                    "spec": {"providerID": placeholder_id(claim)},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                }
            )
        )


def client(address: str, folder: str, slots: int) -> dict[str, list[float]]:
    """Call everything, round after round; seconds per call and RPC."""
    read = {name: (Path(folder) / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")}
    credentials = grpc.ssl_channel_credentials(read["ca.crt"], read["tls.key"], read["tls.crt"])
    seconds: dict[str, list[float]] = {}
    with grpc.secure_channel(address, credentials) as channel:
        stub = pb_grpc.CloudProviderStub(channel)
        stub.Refresh(pb.RefreshRequest(), timeout=10)
        for number in range(ROUNDS):
            group = f"g{number % GROUPS}"
            node = f"w{(number * 2) % slots:04}"
            calls = {
                "Refresh": pb.RefreshRequest(),
                "NodeGroups": pb.NodeGroupsRequest(),
                "NodeGroupForNode": pb.NodeGroupForNodeRequest(node=pb.ExternalGrpcNode(name=node, providerID="x")),
                "NodeGroupTargetSize": pb.NodeGroupTargetSizeRequest(id=group),
                "NodeGroupNodes": pb.NodeGroupNodesRequest(id=group),
                "NodeGroupTemplateNodeInfo": pb.NodeGroupTemplateNodeInfoRequest(id=group),
                "GPULabel": pb.GPULabelRequest(),
                "Cleanup": pb.CleanupRequest(),
            }
            for name, request in calls.items():
                begun = time.perf_counter()
                getattr(stub, name)(request, timeout=5)
                seconds.setdefault(name, []).append(time.perf_counter() - begun)
    return seconds


def main() -> None:
    """Measure each size and print milliseconds."""
    if sys.argv[1:2] == ["client"]:
        print(json.dumps(client(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
        return
    print(f"{'slots':>6} {'call':<28}{'median':>9}{'p95':>9}{'p99':>9}   ms")
    for slots in [int(text) for text in sys.argv[1:]] or [10, 100, 1000]:
        store = MemoryStore(SystemClock())
        declare(store, slots)
        with serve(store) as served, tempfile.TemporaryDirectory() as folder:
            secret = store.get(Secret, f"{served.server.options.service}-client", NAMESPACE)
            for entry in secret.data:
                (Path(folder) / entry).write_bytes(secret.entry(entry))
            command = [sys.executable, __file__, "client", served.address, folder, str(slots)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        for name, values in json.loads(answer.stdout).items():
            cuts = statistics.quantiles(values, n=100)
            print(f"{slots:>6} {name:<28}" + "".join(f"{cut * 1000:9.3f}" for cut in (cuts[49], cuts[94], cuts[98])))


if __name__ == "__main__":
    main()
