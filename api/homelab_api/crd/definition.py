"""The CustomResourceDefinitions of this product: names, columns and the schema of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from homelab_api.crd.openapi import model_description, object_schema
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject, KubeObject

CATEGORY: Final = "homelab"
"""`kubectl get homelab` lists everything of ours."""


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column. Columns with priority above 0 show with `-o wide`."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0

    def to_json(self) -> JsonObject:
        """As the CRD wants it."""
        body: JsonObject = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return body | ({"priority": self.priority} if self.priority else {})


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind: its model, how people call it, and how it is listed."""

    model: type[KubeObject]
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    """JSON paths that a field selector may name (Kubernetes 1.31; older servers leave them out)."""

    def to_json(self) -> JsonObject:
        """The CustomResourceDefinition."""
        info = self.model.resource
        fields = {"selectableFields": [{"jsonPath": path} for path in self.selectable]} if self.selectable else {}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": info.group_resource},
            "spec": {
                "group": info.group,
                "names": {
                    "kind": info.kind,
                    "listKind": f"{info.kind}List",
                    "plural": info.plural,
                    "singular": info.kind.lower(),
                    "shortNames": list(self.short_names),
                    "categories": [CATEGORY],
                },
                "scope": "Namespaced" if info.namespaced else "Cluster",
                "versions": [
                    {
                        "name": info.version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": self._schema()},
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [column.to_json() for column in self.columns],
                        **fields,
                    }
                ],
            },
        }

    def _schema(self) -> JsonObject:
        root = object_schema(self.model, skip=frozenset({"metadata", "status"}))
        status = object_schema(self.model.model_fields["status"].annotation, defaults=False)  # type: ignore[arg-type] # every kind of ours has a status model
        properties = {
            "apiVersion": {"type": "string", "description": f"`{self.model.resource.api_version}`."},
            "kind": {"type": "string", "description": f"`{self.model.resource.kind}`."},
            "metadata": {"type": "object"},
            **root.pop("properties"),
            "status": status,
        }
        required = sorted({"spec", *root.pop("required", [])})
        return root | {"description": model_description(self.model), "properties": properties, "required": required}


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since the object was created.", type="date")

DEFINITIONS: Final = (
    Definition(
        Group,
        ("pool", "pools"),
        (
            Column("Slots", ".status.slots", "Slots of the pool.", type="integer"),
            Column("On", ".status.on", "Machines observed on.", type="integer"),
            Column("Off", ".status.off", "Machines observed off.", type="integer"),
            Column("Target", ".status.target", "Machines that are wanted.", type="integer"),
            Column("Health", ".status.health", "Health of the pool."),
            Column("Last-Action", ".status.lastScaleAction", "The last change of the target."),
            _AGE,
        ),
    ),
    Definition(
        Node,
        ("slot", "slots"),
        (
            Column("Phase", ".status.phase", "What the slot reports."),
            Column("Power", ".status.powerState", "Observed power of the machine."),
            Column("Group", r".metadata.labels.infra\.homecluster\.dev/group", "The pool."),
            Column("Claim", ".status.claim", "The live claim that wants the machine."),
            Column("Since", ".status.lastTransitionTime", "Time since the phase changed.", type="date"),
            Column("24h", ".status.activationsLast24H", "Boots in the last 24 hours.", type="integer"),
            _AGE,
            Column("Node", ".spec.kubernetesNodeName", "Name of the machine's Kubernetes node.", priority=1),
            Column("Last-Claim", ".status.lastClaim.name", "The claim that ended last.", priority=1),
            Column("Reason", ".status.lastClaim.reason", "Why that claim ended.", priority=1),
        ),
    ),
    Definition(
        NodeClaim,
        ("claim", "claims"),
        (
            Column("Slot", ".spec.slotRef.name", "The slot whose machine is wanted."),
            Column("Phase", ".status.phase", "How far the request is."),
            Column("Attempt", ".status.attempt", "Which consecutive attempt this is.", type="integer"),
            Column("Reason", ".status.reason", "Why the claim is in its phase."),
            # Not of type date: that prints the time since, and an instant to come would print as invalid.
            Column("Deadline", ".spec.deadlineAt", "When the boot must be done."),
            _AGE,
            Column("Call", ".spec.call", "Who asked.", priority=1),
            Column("Node", ".status.nodeName", "The machine's Kubernetes node.", priority=1),
            Column("Job", ".status.jobName", "The startup Job.", priority=1),
            Column("Message", ".status.message", "Why, in words.", priority=1),
        ),
        selectable=(".spec.slotRef.name",),
    ),
    Definition(
        NodeReclaim,
        ("reclaim", "reclaims"),
        (
            Column("Phase", ".status.phase", "How far the reclaim is."),
            Column("Source", ".spec.source", "Who took the machine back."),
            Column("Reason", ".spec.reason", "Why."),
            _AGE,
        ),
    ),
)


def definitions() -> list[JsonObject]:
    """Every CustomResourceDefinition, ready to be applied."""
    return [entry.to_json() for entry in DEFINITIONS]
