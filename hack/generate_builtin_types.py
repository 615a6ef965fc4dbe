"""Writes the field tables of the embedded API server's built-in kinds.

    python hack/generate_builtin_types.py DEFINITIONS.json

DEFINITIONS.json is the file `_definitions.json` of one Kubernetes version from the package `kubernetes-validate`.
Only shapes are kept: field names, scalar types, list and map merge rules. The result is
homelab_autoscaler/sandbox/apiserver/builtin/types.json; its size follows from KINDS.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "homelab_autoscaler/sandbox/apiserver/builtin/types.json"
API = "io.k8s.api."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
KINDS = {
    f"{API}core.v1.": "Namespace Node Pod ConfigMap Secret Event ServiceAccount Service Binding ResourceQuota "
    "LimitRange PersistentVolumeClaim",
    f"{API}apps.v1.": "Deployment ReplicaSet DaemonSet StatefulSet",
    f"{API}batch.v1.": "Job CronJob",
    f"{API}rbac.v1.": "Role RoleBinding ClusterRole ClusterRoleBinding",
    f"{API}authorization.v1.": "SelfSubjectAccessReview SubjectAccessReview LocalSubjectAccessReview "
    "SelfSubjectRulesReview",
    f"{API}authentication.v1.": "SelfSubjectReview TokenReview",
    f"{API}coordination.v1.": "Lease",
    f"{API}events.v1.": "Event",
    f"{API}policy.v1.": "PodDisruptionBudget Eviction",
    f"{API}autoscaling.v1.": "Scale",
    f"{API}networking.v1.": "NetworkPolicy",
    f"{API}scheduling.v1.": "PriorityClass",
    f"{API}admissionregistration.v1.": "ValidatingWebhookConfiguration",
    EXTENSIONS: "CustomResourceDefinition",
    META: "DeleteOptions ObjectMeta",
}
# Types whose JSON form is not their structure.
SCALARS = {
    f"{META}Time": "time",
    f"{META}MicroTime": "microtime",
    f"{META}FieldsV1": "any",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    f"{EXTENSIONS}JSON": "any",
    f"{EXTENSIONS}JSONSchemaPropsOrBool": "any",
    f"{EXTENSIONS}JSONSchemaPropsOrArray": "any",
    f"{EXTENSIONS}JSONSchemaPropsOrStringArray": "any",
}


def short(name: str) -> str:
    """`core.v1.Pod` for `io.k8s.api.core.v1.Pod`; meta types keep `meta.v1.`."""
    for prefix, put in ((API, ""), (META, "meta.v1."), (EXTENSIONS, "apiextensions.v1.")):
        if name.startswith(prefix):
            return put + name.removeprefix(prefix)
    raise ValueError(f"unexpected type name {name}")


def first(kind: str | list[str] | None) -> str | None:
    """The type proper: older tools write `[type, "null"]`."""
    return kind if isinstance(kind, str) or kind is None else kind[0]


class Table:
    """The types reached so far."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self.types: dict[str, Any] = {}

    def add(self, name: str) -> str:
        """Add a type and everything that it reaches; return its key."""
        key = short(name)
        if key not in self.types:
            self.types[key] = {}
            definition = self._definitions[name]
            fields = {field: self.shape(shape) for field, shape in sorted(definition.get("properties", {}).items())}
            self.types[key] = {"fields": fields}
            if definition.get("required"):
                self.types[key]["required"] = sorted(definition["required"])
        return key

    def shape(self, shape: dict[str, Any]) -> dict[str, Any]:
        """One field's shape in the table's own words."""
        if reference := shape.get("$ref"):
            name = reference.removeprefix("#/$defs/")
            definition = self._definitions[name]
            if name in SCALARS:
                result: dict[str, Any] = {"scalar": SCALARS[name]}
            elif "properties" in definition:
                result = {"ref": self.add(name)}
            else:
                result = self.shape(definition)
            if definition.get("x-kubernetes-map-type") == "atomic":
                result["atomic"] = True
        elif first(shape.get("type")) == "array":
            result = {"items": self.shape(shape["items"])}
        elif "additionalProperties" in shape:
            result = {"values": self.shape(shape["additionalProperties"])}
        else:
            kind = first(shape.get("type")) or "any"
            result = {"scalar": "bytes" if shape.get("format") == "byte" else "any" if kind == "object" else kind}
        keys = shape.get("x-kubernetes-list-map-keys")
        if shape.get("x-kubernetes-list-type") == "map" and keys:
            result["keys"] = keys
        elif shape.get("x-kubernetes-list-type") == "set":
            result["set"] = True
        if shape.get("x-kubernetes-map-type") == "atomic":
            result["atomic"] = True
        if "merge" in shape.get("x-kubernetes-patch-strategy", ""):
            result["merge"] = shape.get("x-kubernetes-patch-merge-key", "")
        return result


def main() -> None:
    """Read the definitions named on the command line and write the table."""
    table = Table(json.loads(Path(sys.argv[1]).read_text())["$defs"])
    for prefix, kinds in KINDS.items():
        for kind in kinds.split():
            table.add(prefix + kind)
    lines = [f'"{name}": {json.dumps(table.types[name], separators=(",", ":"))}' for name in sorted(table.types)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(table.types)} types, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
