"""The node side of a kubelet: registration, Lease, status."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api.meta import JsonObject, format_micro_time
from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH, STRATEGIC_PATCH, ApiClient
from homelab_autoscaler.sandbox.events import EventRecorder
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from homelab_autoscaler.sandbox.clock import SandboxClock

log = structlog.get_logger(__name__)

_DEFAULT_CAPACITY: Final = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_HEALTHY: Final = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """How a kubelet registers its node.

    Attributes:
        name: Name of the Node object.
        labels: As `--node-labels`; hostname, arch and os are added.
        annotations: Annotations at registration.
        taints: As `--register-with-taints`.
        provider_id: As `--provider-id`; empty for none.
        capacity: Resource name to quantity.
        allocatable: The same for pods; the capacity if empty.
        address: InternalIP.
    """

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[JsonObject, ...] = ()
    provider_id: str = ""
    capacity: dict[str, str] = field(default_factory=lambda: dict(_DEFAULT_CAPACITY))
    allocatable: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class KubeletTimings:
    """Seconds, with kubelet's own defaults; `scaled` makes everything faster by one factor.

    Attributes:
        lease_renew: Between renewals of the Lease.
        lease_duration: leaseDurationSeconds (rounded up to whole seconds: the API takes nothing else).
        status_check: Between looks at the own node.
        status_report: Between reports of an unchanged status, which move the heartbeat times.
        ready_after: From registration until Ready=True (runtime and network come up).
        register_retry: Between attempts to register.
        restart_backoff: First pause before a container is restarted; doubles up to 30 times that.
        prepare_retry: Between attempts to start a pod that lacks a Secret or ConfigMap.
    """

    lease_renew: float = 10.0
    lease_duration: float = 40.0
    status_check: float = 10.0
    status_report: float = 300.0
    ready_after: float = 3.0
    register_retry: float = 2.0
    restart_backoff: float = 10.0
    prepare_retry: float = 2.0

    def scaled(self, factor: float) -> KubeletTimings:
        """Every time divided by the factor."""
        return replace(self, **{item.name: getattr(self, item.name) / factor for item in fields(self)})


class NodeAgent:
    """Registers a node and speaks for it.

    Like a real kubelet it registers once per start: a Node that is deleted while it runs is not made again, and
    neither is its Lease. An existing Node is taken over as it is, with its labels, taints and providerID.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: SandboxClock,
        node: NodeSpec,
        timings: KubeletTimings,
        *,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        """Prepare an agent.

        Args:
            client: Under the node's own user name.
            clock: Measures time.
            node: How to register.
            timings: Its pace.
            wall: What the machine believes to be the time; the clock's by default.
        """
        self._client = client
        self._clock = clock
        self.node = node
        self._timings = timings
        self._wall = wall or clock.now
        self._events = EventRecorder(client, clock, "kubelet", node.name)
        self._boot_id = secrets.token_hex(16)
        self._path = resources.path(resources.NODES, name=node.name)
        self._ready: tuple[bool, str, str] = (False, "KubeletNotReady", "container runtime network not ready")
        self.registered = False
        self.became_ready = asyncio.Event()
        self._reported = clock.monotonic()

    async def register(self) -> None:
        """Make the Node, or take over the one that is there; repeats until it succeeds."""
        while not self.registered:
            try:
                await self._register()
            except (ApiStatusError, OSError) as error:
                log.info("registration failed", node=self.node.name, error=str(error))
                await self._clock.sleep(self._timings.register_retry)

    async def _register(self) -> None:
        spec: JsonObject = {}
        if self.node.provider_id:
            spec["providerID"] = self.node.provider_id
        if self.node.taints:
            spec["taints"] = list(self.node.taints)
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.node.name,
                "labels": {**self._default_labels(), **self.node.labels},
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    **self.node.annotations,
                },
            },
            "spec": spec,
            "status": self._status(None),
        }
        try:
            await self._client.create(resources.path(resources.NODES), body)
        except ApiStatusError as error:
            if error.code != 409:
                raise
            await self._client.patch(self._path, {"metadata": {"labels": self._default_labels()}}, STRATEGIC_PATCH)
            await self.post_status()
        self.registered = True
        await self._events.record(
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": self.node.name, "uid": self.node.name}},
            "Normal",
            "Starting",
            "Starting kubelet.",
        )

    def _default_labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": self.node.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
        }

    def set_ready(self, *, ready: bool, reason: str = "", message: str = "") -> None:
        """What the next status says."""
        defaults = ("KubeletReady", "kubelet is posting ready status") if ready else ("KubeletNotReady", "not ready")
        self._ready = (ready, reason or defaults[0], message or defaults[1])

    def _status(self, live: JsonObject | None) -> JsonObject:
        """The status as this kubelet sees it; transition times of an unchanged condition are kept."""
        now = objects.stamp(self._wall())
        ready, reason, message = self._ready
        texts = {kind: ("False", *text) for kind, text in _HEALTHY.items()}
        texts["Ready"] = ("True" if ready else "False", reason, message)
        conditions: list[JsonObject] = []
        for kind, (value, why, text) in texts.items():
            known = objects.condition(live, kind) if live is not None else None
            moved = known["lastTransitionTime"] if known is not None and known.get("status") == value else now
            entry = {"type": kind, "status": value, "reason": why, "message": text}
            conditions.append({**entry, "lastHeartbeatTime": now, "lastTransitionTime": moved})
        return {
            "addresses": [
                {"type": "InternalIP", "address": self.node.address},
                {"type": "Hostname", "address": self.node.name},
            ],
            "capacity": self.node.capacity,
            "allocatable": self.node.allocatable or self.node.capacity,
            "conditions": conditions,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": self._boot_id,
                "containerRuntimeVersion": "sandbox://1",
                "kernelVersion": "6.1.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.2",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "sandbox machine",
                "systemUUID": "",
            },
        }

    async def post_status(self) -> None:
        """Write the status if it differs from what the server has; heartbeat times alone are no difference."""
        live = await self._client.get(self._path)
        wanted = self._status(live)
        present = objects.status(live)
        booted = (present.get("nodeInfo") or {}).get("bootID")
        if booted and booted != self._boot_id:
            text = f"Node {self.node.name} has been rebooted, boot id: {self._boot_id}"
            await self._events.record(live, "Warning", "Rebooted", text)
        due = self._clock.monotonic() - self._reported >= self._timings.status_report
        if (
            not due
            and all(present.get(name) == wanted[name] for name in ("capacity", "allocatable", "nodeInfo"))
            and all(_says(present, item) for item in wanted["conditions"])
        ):
            return
        await self._client.patch(f"{self._path}/status", {"status": wanted}, STRATEGIC_PATCH)
        self._reported = self._clock.monotonic()

    async def keep_status(self) -> None:
        """Post a status at once, again when the node is ready, and then whenever it differs."""
        await self._try(self.post_status)
        await self._clock.sleep(self._timings.ready_after)
        self.set_ready(ready=True)
        while True:
            if await self._try(self.post_status):
                self.became_ready.set()
            await self._clock.sleep(self._timings.status_check)

    async def keep_lease(self) -> None:
        """Renew the Lease for ever; make it once, with the Node as owner."""
        while True:
            await self._try(self._renew)
            await self._clock.sleep(self._timings.lease_renew)

    async def _renew(self) -> None:
        target = resources.path(resources.LEASES, resources.NODE_LEASES, self.node.name)
        renewed = format_micro_time(self._wall())
        try:
            await self._client.patch(target, {"spec": {"renewTime": renewed}}, MERGE_PATCH)
        except ApiStatusError as error:
            if error.code != 404:
                raise
        else:
            return
        # Without its Node a Lease would have no owner: then none is made (the answer is 404, and tried again later).
        node = await self._client.get(self._path)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node.name, "uid": objects.uid(node)}
        body: JsonObject = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.node.name,
                "namespace": resources.NODE_LEASES,
                "ownerReferences": [owner],
            },
            "spec": {
                "holderIdentity": self.node.name,
                "leaseDurationSeconds": max(1, round(self._timings.lease_duration)),
                "renewTime": renewed,
            },
        }
        await self._client.create(resources.path(resources.LEASES, resources.NODE_LEASES), body)

    async def _try(self, action: Callable[[], Awaitable[None]]) -> bool:
        """Whether it worked: a kubelet outlives an API server that is away or refuses."""
        try:
            await action()
        except (ApiStatusError, OSError) as error:
            log.debug("node agent", node=self.node.name, error=str(error))
            return False
        return True


def _says(present: JsonObject, wanted: JsonObject) -> bool:
    return any(
        all(item.get(name) == wanted[name] for name in ("type", "status", "reason", "message"))
        for item in present.get("conditions") or []
    )
