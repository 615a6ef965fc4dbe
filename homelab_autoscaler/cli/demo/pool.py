"""The objects of the demo's day: a pool, its slots, and pods that need machines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from homelab_api import names

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

NAMESPACE: Final = "default"
GROUP: Final = "rack"
_API: Final = f"{names.GROUP}/v2alpha1"
MACHINE: Final = {"cpu": "4", "memory": "8Gi", "pods": "110"}
_POD_CPU: Final = "3"
"""More than half a machine: each pod needs one of its own."""


def slot_name(number: int) -> str:
    """`rack-1` is the first."""
    return f"{GROUP}-{number}"


def machines(count: int) -> list[JsonObject]:
    """The simulated metal: small computers that are off and boot in well under a minute."""
    behaviour = {"boot_seconds": 40.0, "stop_seconds": 5.0}
    return [{"name": slot_name(number), "capacity": MACHINE, "behaviour": behaviour} for number in range(1, count + 1)]


def group(machines: int, time_factor: float) -> JsonObject:
    """The pool.

    It sets none of the autoscaler's scaling options: an autoscaler from 1.35 on that is told options forgets how long a
    node may take to start, and asks for one machine too many when it looks while a node is registered but not ready.
    """
    return {
        "apiVersion": _API,
        "kind": "Group",
        "metadata": {"name": GROUP, "namespace": NAMESPACE},
        "spec": {
            "minSize": 0,
            "maxSize": machines,
            "nodeReadinessTaints": [],
            "template": {"capacity": MACHINE, "labels": {"kubernetes.io/os": "linux"}},
            "drain": {"timeout": _seconds(300 / time_factor), "force": True},
        },
    }


def slot(number: int) -> JsonObject:
    """A slot whose Jobs really run: each is a process on this machine that talks to the simulated BMC."""
    name = slot_name(number)
    return {
        "apiVersion": _API,
        "kind": "Node",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.LABEL_GROUP: GROUP}},
        "spec": {
            "kubernetesNodeName": name,
            "startupPodSpec": _power("on", name),
            "shutdownPodSpec": _power("off", name),
            "pricing": {"hourlyRate": f"0.0{number}"},
        },
    }


def _power(command: str, machine: str) -> JsonObject:
    return {
        "image": "local/power",
        "command": [sys.executable, "-m", "homelab_autoscaler.sandbox.power"],
        "args": [command, machine],
    }


def pod(number: int) -> JsonObject:
    """A pod that fits on a machine of the pool and nowhere else."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"work-{number}", "namespace": NAMESPACE, "labels": {"app": "work"}},
        "spec": {
            "nodeSelector": {names.LABEL_GROUP: GROUP},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "work",
                    "image": "local/work",
                    "command": ["sleep", "infinity"],
                    "resources": {"requests": {"cpu": _POD_CPU, "memory": "1Gi"}},
                }
            ],
        },
    }


def _seconds(value: float) -> str:
    """A duration as the API writes it; the API knows milliseconds."""
    return f"{max(1, round(value * 1000))}ms"
