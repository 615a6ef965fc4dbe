"""A pool in a namespace of its own: group, slots with real scripts, and what a person or an autoscaler does to it."""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.core import CoreNode, Job, Lease, Pod
from homelab_api.meta import JsonObject, KubeObject, ResourceInfo, format_time
from homelab_api.v2alpha1 import Call, Group, Node, NodeClaim
from homelab_autoscaler.claim.create import ClaimFactory
from homelab_autoscaler.claim.create import Request as ClaimRequest
from homelab_autoscaler.runtime import Client, ConflictError, MergePatch, NotFoundError, SystemClock, load_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from homelab_autoscaler.runtime import Clock
    from homelab_autoscaler.settings import Settings

# What a machine's owner would write: one request to the machine's controller, and its answer is the exit code.
POWER_SCRIPT = (
    "import json,os,sys,urllib.request as u;"
    "u.urlopen(u.Request(os.environ['SANDBOX_BMC']+'/machines/'+sys.argv[2]+'/power',method='POST',"
    "headers={'Content-Type':'application/json'},"
    "data=json.dumps({'command':sys.argv[1],'sender':os.environ['JOB_NAME']}).encode()),timeout=30)"
)

# One that fails as badly as a script can: it prints the password while it does. It takes the time that a manager needs
# to start and to report the boot: how often a machine was booted is compared, and a shorter boot may pass unreported.
FAILS = ["sh", "-c", 'sleep 1; cat "$SANDBOX_ROOT/etc/bmc/password" >&2; exit 1']


class RawPod(KubeObject):
    """core/v1 Pod with its whole status, for what a failing test says."""

    resource: ClassVar[ResourceInfo] = Pod.resource
    status: JsonObject = Field(default_factory=dict)


class Pool:
    """Objects of one namespace, with waits that end as soon as they can."""

    def __init__(self, kubeconfig: str, namespace: str, settings: Settings) -> None:
        self.clock: Clock = SystemClock()
        self.client = Client(load_config(kubeconfig), self.clock)
        self.namespace = namespace
        self.settings = settings

    def close(self) -> None:
        """Drop idle connections."""
        self.client.close()

    def create_group(self, **spec) -> None:
        body = {"metadata": {"name": "pool", "namespace": self.namespace}, "spec": spec}
        self.client.create_json(Group, body, self.namespace)

    def create_slot(self, machine: str, node: str, *, startup=None, shutdown=None, **spec) -> Node:
        def pod(command):
            script = [sys.executable, "-SEc", POWER_SCRIPT, command, machine]
            volumes = [{"name": "bmc", "mountPath": "/etc/bmc", "secretName": "bmc"}]
            return {"image": "local", "command": FAILS if command == "fails" else script, "volumes": volumes}

        body = {
            "metadata": {"name": machine, "namespace": self.namespace, "labels": {names.LABEL_GROUP: "pool"}},
            "spec": {
                "kubernetesNodeName": node,
                "startupPodSpec": startup if isinstance(startup, dict) else pod(startup or "on"),
                "shutdownPodSpec": shutdown if isinstance(shutdown, dict) else pod(shutdown or "off"),
                **spec,
            },
        }
        return self.client.create_json(Node, body, self.namespace)

    def claim(self, slot: str, call: Call = Call.INCREASE_SIZE) -> NodeClaim:
        factory = ClaimFactory(self.client, self.clock, self.settings)
        found = self.client.get(Node, slot, self.namespace)
        return factory.create(found, ClaimRequest(call=call), read_at=self.clock.monotonic())

    def claim_by_hand(self, slot: str, name: str, **metadata) -> NodeClaim:
        """A claim as a person writes it: no labels, no owner, a name of their own."""
        body = {
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": {"slotRef": {"name": slot}, "call": "Manual", "group": "pool"},
        }
        return self.client.create_json(NodeClaim, body, self.namespace)

    def delete_slot(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            self.client.delete(Node, name, self.namespace)

    def unclaim(self, claim: NodeClaim, reason: str = "NodeDeleted") -> None:
        with contextlib.suppress(NotFoundError):
            annotations = {names.ANNOTATION_END_REASON: reason}
            patch = MergePatch({"metadata": {"annotations": annotations}})
            self.client.patch(NodeClaim, claim.name, self.namespace, patch)
            self.client.delete(NodeClaim, claim.name, self.namespace)

    def lock_by_hand(self, slot: str) -> None:
        """The lock of an operation that is not the manager's."""
        now = self.clock.now()
        marks = {
            names.ANNOTATION_LOCK: "scale-down",
            names.ANNOTATION_LOCK_OWNER: "somebody-else/7",
            names.ANNOTATION_LOCK_TIMESTAMP: format_time(now),
            names.ANNOTATION_LOCK_TIMEOUT: "600",
        }
        self.client.patch(Node, slot, self.namespace, MergePatch({"metadata": {"annotations": marks}}))

    def unlock_by_hand(self, slot: str) -> None:
        """Its owner gives it back."""
        marks = (
            names.ANNOTATION_LOCK,
            names.ANNOTATION_LOCK_OWNER,
            names.ANNOTATION_LOCK_TIMESTAMP,
            names.ANNOTATION_LOCK_TIMEOUT,
        )
        patch = MergePatch({"metadata": {"annotations": dict.fromkeys(marks)}})
        self.client.patch(Node, slot, self.namespace, patch)

    def untaint(self, node: str, key: str) -> None:
        """Take a taint off a node, as the agent that put it there."""
        while True:
            present = self.client.get(CoreNode, node)
            taints = [taint.to_json() for taint in present.spec.taints if taint.key != key]
            metadata = {"resourceVersion": present.metadata.resource_version}
            with contextlib.suppress(ConflictError):
                self.client.patch(CoreNode, node, None, MergePatch({"metadata": metadata, "spec": {"taints": taints}}))
                return

    def now(self) -> datetime:
        """The time that everybody here has."""
        return self.clock.now()

    # --- looking ------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> Node:
        return self.client.get(Node, name, self.namespace)

    def slot_or_none(self, name: str) -> Node | None:
        with contextlib.suppress(NotFoundError):
            return self.slot(name)
        return None

    def claims(self) -> list[NodeClaim]:
        return self.client.list(NodeClaim, self.namespace).items

    def is_older_than_a_second(self, claim: NodeClaim) -> bool:
        """Creation times have whole seconds: only then is another claim surely newer."""
        return self.clock.now() > claim.metadata.creation_timestamp + timedelta(seconds=1.1)

    def phase(self, claim: NodeClaim) -> str:
        with contextlib.suppress(NotFoundError):
            found = self.client.get(NodeClaim, claim.name, self.namespace)
            return f"{found.phase}" if found.uid == claim.uid else "gone"
        return "gone"

    def jobs(self) -> list[Job]:
        return self.client.list(Job, self.namespace).items

    def node(self, name: str) -> CoreNode | None:
        with contextlib.suppress(NotFoundError):
            return self.client.get(CoreNode, name)
        return None

    def is_node_ready(self, name: str) -> bool:
        found = self.node(name)
        return found is not None and any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)

    def last_claim(self, slot: str) -> tuple[str, str] | None:
        """Uid and reason of the claim that the slot remembers."""
        last = self.slot(slot).status.last_claim
        return (last.uid, f"{last.reason}") if last else None

    def until(self, what: str, holds: Callable[[], bool], limit: float = 90) -> None:
        """Wait for a state of the world; fail with what it is instead."""
        end = time.monotonic() + limit
        pause = StepPause()
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"{self.namespace}: not within {limit:g} s: {what}\n{self.describe()}")
            pause.step()

    def rest(self) -> None:
        """Wait until the manager has nothing to do; whoever knows the manager fills this in."""

    def describe(self) -> str:
        lines = [
            f"slot {slot.name}: {slot.status.phase} {slot.status.power_state} {slot.metadata.annotations}"
            for slot in self.client.list(Node, self.namespace).items
        ]
        lines += [
            f"claim {claim.name}: {claim.phase} {claim.status.reason} marked={claim.marked} "
            f"committed={claim.committed} shutdowns={claim.status.shutdown_attempts} {claim.status.message}"
            for claim in self.claims()
        ]
        lines += [
            f"job {job.name}: suspended={job.suspended} finished={job.finished} marked={job.marked}"
            for job in self.jobs()
        ]
        lines += [f"pod {pod.name}: {pod.status}" for pod in self.client.list(RawPod, self.namespace).items]
        return "\n".join(lines)

    def hand_over_lease(self, lease: str) -> None:
        """What the lease duration does for a dead leader, without the wait: nobody holds the Lease any more."""
        with contextlib.suppress(NotFoundError):
            self.client.patch(Lease, lease, self.namespace, MergePatch({"spec": {"holderIdentity": ""}}))


class StepPause:
    """The pause between two looks at the world."""

    def __init__(self, seconds: float = 0.05) -> None:
        self._clock = SystemClock()
        self._seconds = seconds

    def step(self) -> None:
        self._clock.sleep(self._seconds)
