"""A provider as a manager runs it: with the real client and informers, over an API server."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from homelab_api import names
from homelab_api.core import Secret
from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.server import ProviderOptions, ProviderServer
from homelab_autoscaler.runtime.cache import Cache
from homelab_autoscaler.runtime.client import Client
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.config import load_config
from homelab_autoscaler.runtime.patch import MergePatch
from homelab_autoscaler.runtime.stop import StopSignal
from homelab_autoscaler.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

POD = {"image": "busybox"}


class Cluster:
    """A pool on an API server with our kinds, and a client that plays everybody else."""

    def __init__(self, kubeconfig: Path, pool: str, system: str) -> None:
        """Take namespaces that exist: the pool's, and the provider's own."""
        self.kubeconfig = kubeconfig
        self.pool = pool
        self.system = system
        self.admin = Client(load_config(str(kubeconfig)), SystemClock())

    def group(self, name="lab", slots=0, **spec):
        self.admin.create(Group.from_json({"metadata": {"name": name, "namespace": self.pool}, "spec": spec}))
        for number in range(slots):
            self.slot(f"{name}-{number}", name)

    def slot(self, name, group="lab", **spec):
        body = {
            "metadata": {"name": name, "namespace": self.pool, "labels": {names.LABEL_GROUP: group}},
            "spec": {"kubernetesNodeName": name, "startupPodSpec": POD, "shutdownPodSpec": POD, **spec},
        }
        return self.admin.create(Node.from_json(body))

    def claims(self):
        return self.admin.list(NodeClaim, self.pool).items

    def commit(self, claim, phase="booting"):
        """What the claim's controller does when a boot begins."""
        finalizer = MergePatch({"metadata": {"finalizers": [names.FINALIZER_MACHINE]}})
        claim = self.admin.patch(NodeClaim, claim.name, self.pool, finalizer)
        return self.admin.patch_status(claim, {"phase": phase, "nodeName": claim.slot_name})

    @contextmanager
    def provider(self):
        """A provider with its own client and cache, as a manager would run it."""
        clock = SystemClock()
        client = Client(load_config(str(self.kubeconfig)), clock, field_manager=names.FIELD_MANAGER)
        cache = Cache(client.transport, clock)
        options = ProviderOptions(address="127.0.0.1:0", secrets_namespace=self.system)
        server = ProviderServer(client, cache, clock, Settings(), None, self.pool, options)
        stop = StopSignal()
        threads = [threading.Thread(target=part.run, args=(stop,), daemon=True) for part in (cache, server)]
        for thread in threads:
            thread.start()
        try:
            assert server.wait_serving(90)
            secret = self.admin.get(Secret, f"{options.service}-client", self.system)
            credentials = grpc.ssl_channel_credentials(
                secret.entry("ca.crt"), secret.entry("tls.key"), secret.entry("tls.crt")
            )
            with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
                yield Provider(server, pb_grpc.CloudProviderStub(channel), secret)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
            client.close()


class Provider:
    """A running provider, asked as Cluster Autoscaler asks."""

    def __init__(self, server, stub, secret):
        self.server = server
        self.stub = stub
        self.secret = secret

    def target(self, group="lab"):
        return self.stub.NodeGroupTargetSize(pb.NodeGroupTargetSizeRequest(id=group), timeout=5).targetSize

    def increase(self, delta, group="lab"):
        self.stub.NodeGroupIncreaseSize(pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta), timeout=5)

    def decrease(self, delta, group="lab"):
        self.stub.NodeGroupDecreaseTargetSize(pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta), timeout=5)

    def delete(self, *ids, group="lab"):
        nodes = [pb.ExternalGrpcNode(name=one, providerID=one) for one in ids]
        self.stub.NodeGroupDeleteNodes(pb.NodeGroupDeleteNodesRequest(id=group, nodes=nodes), timeout=5)

    def instances(self, group="lab"):
        return list(self.stub.NodeGroupNodes(pb.NodeGroupNodesRequest(id=group), timeout=5).instances)
