"""The node that a machine of a group will be, for scaling from zero.

Source: the contract's sections 2 and 5. A template is never missing and never empty: one group without a usable
template keeps the autoscaler from scaling any group, and an answer without a node ends its process.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.meta import QUANTITY_PATTERN
from homelab_autoscaler.provider.pb import corenode_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from homelab_api.core import CoreNode, Taint
    from homelab_api.v2alpha1 import Group, Node

LABEL_OS: Final = "kubernetes.io/os"
LABEL_ARCH: Final = "kubernetes.io/arch"
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
_DEFAULT_LABELS: Final = {LABEL_OS: "linux", LABEL_ARCH: "amd64"}
DEFAULT_PODS: Final = "110"
"""A kubelet's own default. Without an entry for pods, no pod fits the template."""

_QUANTITY: Final = re.compile(QUANTITY_PATTERN)
_NUMBER: Final = re.compile(r"^([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]))?$")
_BINARY: Final = {f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {
    prefix: Decimal(10) ** power for prefix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_PASSING_TAINTS: Final = frozenset(
    {
        names.TAINT_TO_BE_DELETED,
        names.TAINT_DELETION_CANDIDATE,
        names.TAINT_DRAINING,
        names.TAINT_RECLAIMED,
        names.TAINT_RETURNING,
    }
)


def template_node(group: Group, slots: Sequence[Node], nodes: Sequence[CoreNode]) -> pb.Node:
    """The node to simulate with.

    Resources come from the group's `template`; where that says nothing, from the slots' `capacity`, the least of each
    resource (the autoscaler knows one template per group, so unlike machines must all hold what it promises); where no
    slot says any, from the smallest node that is registered. If nothing is known the template offers no resources:
    valid, and nothing that asks for some is believed to fit.

    Args:
        group: the group.
        slots: its slots.
        nodes: the nodes of its machines that are registered now.
    """
    promised = group.spec.template
    capacity = _valid(promised.capacity) if promised else {}
    allocatable = _valid(promised.allocatable) if promised else {}
    if not capacity and not allocatable:
        capacity = _least([_valid(slot.spec.capacity) for slot in slots if slot.spec.capacity])
    if not capacity and not allocatable:
        capacity = _least([_valid(node.status.capacity) for node in nodes])
        allocatable = _least([_valid(node.status.allocatable) for node in nodes])
    capacity = {**allocatable, **capacity}
    allocatable = {"pods": DEFAULT_PODS, "cpu": "0", "memory": "0", **capacity, **allocatable}
    capacity = {**{name: allocatable[name] for name in ("pods", "cpu", "memory")}, **capacity}
    labels = {
        **_DEFAULT_LABELS,
        **_shared_labels(slots, nodes),
        **group.spec.node_labels,
        **(promised.labels if promised else {}),
        names.LABEL_GROUP: group.name,
    }
    name = f"{group.name}-template"
    labels[LABEL_HOSTNAME] = name
    return pb.Node(
        metadata=pb.ObjectMeta(name=name, labels=labels),
        spec=pb.NodeSpec(taints=[_taint(taint) for taint in lasting_taints(group, slots)]),
        status=pb.NodeStatus(
            capacity=_quantities(capacity),
            allocatable=_quantities(allocatable),
            conditions=[pb.NodeCondition(type="Ready", status="True", reason="Template")],
            nodeInfo=pb.NodeSystemInfo(operatingSystem=labels[LABEL_OS], architecture=labels[LABEL_ARCH]),
        ),
    )


def lasting_taints(group: Group, slots: Sequence[Node]) -> list[Taint]:
    """Taints that stay on a machine's node once it is usable: pods must tolerate them to be worth a machine.

    Readiness taints are left out, as the machine sheds them, and the marks of operations too.
    """
    sheds = {(taint.key, taint.effect) for taint in group.spec.node_readiness_taints}
    sheds |= {(taint.key, taint.effect) for slot in slots for taint in slot.spec.taints_to_remove}
    promised = group.spec.template.taints if group.spec.template else []
    found: dict[tuple[str, str], Taint] = {}
    for taint in (*promised, *group.spec.node_taints, *(taint for slot in slots for taint in slot.spec.node_taints)):
        identity = (taint.key, taint.effect)
        if identity not in sheds and taint.key not in _PASSING_TAINTS:
            found.setdefault(identity, taint)
    return list(found.values())


def quantity(text: str) -> Decimal:
    """The number that a Kubernetes quantity stands for.

    Raises:
        ValueError: the text is no quantity.
    """
    match = _NUMBER.match(text) if _QUANTITY.match(text) else None
    if match is None:
        raise ValueError(f'"{text}" is no quantity: write a number with an optional unit, like "16", "3900m" or "64Gi"')
    number, exponent, unit = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * (_BINARY.get(unit) or _DECIMAL.get(unit) or Decimal(1))


def _valid(resources: Mapping[str, str]) -> dict[str, str]:
    """Only what decodes: one bad quantity makes the autoscaler refuse the whole node. Admission reports bad ones."""
    return {name: text for name, text in resources.items() if _QUANTITY.match(text)}


def _least(machines: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Of each resource that all machines have, the smallest amount."""
    if not machines:
        return {}
    shared = set(machines[0]).intersection(*machines[1:])
    return {name: min((machine[name] for machine in machines), key=quantity) for name in sorted(shared)}


def _shared_labels(slots: Sequence[Node], nodes: Iterable[CoreNode]) -> dict[str, str]:
    """Labels that every slot gives its node; os and architecture as registered nodes have them."""
    labels: dict[str, str] = {}
    for node in nodes:
        seen = {key: node.metadata.labels[key] for key in _DEFAULT_LABELS if key in node.metadata.labels}
        labels = {**seen, **labels}
    if slots:
        first = slots[0].spec.node_labels
        rest = [slot.spec.node_labels for slot in slots[1:]]
        labels |= {key: value for key, value in first.items() if all(other.get(key) == value for other in rest)}
    return labels


def _quantities(resources: Mapping[str, str]) -> dict[str, pb.Quantity]:
    return {name: pb.Quantity(string=text) for name, text in resources.items()}


def _taint(taint: Taint) -> pb.Taint:
    return pb.Taint(key=taint.key, value=taint.value or "", effect=taint.effect)
