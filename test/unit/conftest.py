"""Objects for unit tests: a slot, a claim, a store and a clock that stands still until told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lab.objects import Builders

from homelab_api import names
from homelab_api.core import Job
from homelab_api.meta import ObjectMeta
from homelab_api.v2alpha1 import Node, NodeClaim
from homelab_autoscaler.claim.testing import MemoryStore
from homelab_autoscaler.settings import Settings

NOON = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)


class StillClock:
    """A clock that moves only when someone sleeps or steps; sleeping runs `on_sleep` first."""

    def __init__(self):
        self.elapsed = 0.0
        self.on_sleep = []

    def now(self):
        return NOON + timedelta(seconds=self.elapsed)

    def monotonic(self):
        return 1000.0 + self.elapsed

    def step(self, seconds):
        self.elapsed += seconds

    def sleep(self, seconds, stop=None):
        for action in self.on_sleep:
            action()
        self.elapsed += seconds
        return bool(stop and stop.is_set())

    def wait(self, condition, timeout):
        return condition.wait(0)


@pytest.fixture
def clock():
    return StillClock()


@pytest.fixture
def settings():
    return Settings()


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


def _slot(name, group="lab", *, uid=None, namespace="pool", status=None, annotations=None, **spec):
    return Node.from_json(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-of-{name}",
                "labels": {names.LABEL_GROUP: group} if group else {},
                "annotations": annotations or {},
            },
            "spec": {
                "kubernetesNodeName": spec.pop("kubernetesNodeName", name),
                "startupPodSpec": spec.pop("startupPodSpec", {"image": "wol"}),
                "shutdownPodSpec": {"image": "ssh"},
                **spec,
            },
            "status": status or {},
        }
    )


@pytest.fixture
def slot_of():
    return _slot


def _claim(
    slot,
    *,
    uid="",
    name=None,
    call="IncreaseSize",
    phase=None,
    reason=None,
    committed=None,
    marked=False,
    created=NOON,
    version="",
    annotations=None,
    node_name="",
    **status,
):
    live = phase in {None, "pending"}
    committed = (not live) if committed is None else committed
    metadata = {
        "name": name or f"{slot.name}-claim",
        "namespace": slot.namespace,
        "uid": uid,
        "resourceVersion": version,
        "creationTimestamp": created,
        "finalizers": [names.FINALIZER_MACHINE] if committed else [],
        "annotations": annotations or {},
    }
    if marked:
        metadata["deletionTimestamp"] = created
    body = {
        "metadata": metadata,
        "spec": {"slotRef": {"name": slot.name}, "call": call, "group": slot.group, "requestedAt": created},
        "status": {"phase": phase, "reason": reason, "nodeName": node_name, **status},
    }
    return NodeClaim.from_json(body)


@pytest.fixture
def claim_of():
    return _claim


def _job(slot, kind, *, name="job", owner=None, done=None, created=NOON):
    conditions = [{"type": done, "status": "True"}] if done else []
    owners = [slot.owner_reference()]
    if owner is not None:
        owners.insert(0, owner.owner_reference(controller=True))
    return Job(
        metadata=ObjectMeta(
            name=name,
            namespace=slot.namespace,
            uid=f"uid-of-{name}",
            labels={"type": kind},
            owner_references=owners,
            creation_timestamp=created,
        ),
        status={"conditions": conditions},
    )


@pytest.fixture
def job_of():
    return _job


@pytest.fixture
def make():
    """Builders of objects, see lab.objects."""
    return Builders()
