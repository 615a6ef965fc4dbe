"""What is there before the first request."""

from __future__ import annotations

import uuid

from homelab_autoscaler.sandbox.apiserver.semantics.plane import SYSTEM_NAMESPACES, Plane
from homelab_autoscaler.sandbox.apiserver.store import Key

_RBAC = "rbac.authorization.k8s.io"
_DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
]
# What every known user may do: look around, and ask about themselves.
_ROLES = {
    "cluster-admin": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:basic-user": [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ],
    "system:public-info-viewer": [
        {"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}
    ],
}
_BINDINGS = {
    "cluster-admin": ["system:masters"],
    "system:discovery": ["system:authenticated"],
    "system:basic-user": ["system:authenticated"],
    "system:public-info-viewer": ["system:authenticated", "system:unauthenticated"],
}
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def bootstrap(plane: Plane) -> None:
    """Create the system namespaces, the roles that everybody has, and the priority classes of system Pods.

    Objects that are there already, from an earlier run, stay as they are. The event log starts after this, so that the
    first revisions are out of reach, as they are on any cluster that has been up for a while.
    """
    now = plane.now()

    def put(
        collection: str, api_version: str, kind: str, name: str, rest: dict[str, object], labels: dict[str, str]
    ) -> None:
        key = Key("", name)
        if plane.store.collection(collection).get(key) is not None:
            return
        metadata: dict[str, object] = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now}
        if labels:
            metadata["labels"] = labels
        plane.store.put(collection, key, {"kind": kind, "apiVersion": api_version, "metadata": metadata, **rest})

    for name in SYSTEM_NAMESPACES:
        rest = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        put("/namespaces", "v1", "Namespace", name, rest, {"kubernetes.io/metadata.name": name})
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    for name, rules in _ROLES.items():
        put(f"{_RBAC}/clusterroles", f"{_RBAC}/v1", "ClusterRole", name, {"rules": rules}, labels)
    for name, groups in _BINDINGS.items():
        rest = {
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": group} for group in groups],
        }
        put(f"{_RBAC}/clusterrolebindings", f"{_RBAC}/v1", "ClusterRoleBinding", name, rest, labels)
    for name, value in _PRIORITIES.items():
        rest = {"value": value, "preemptionPolicy": "PreemptLowerPriority"}
        put("scheduling.k8s.io/priorityclasses", "scheduling.k8s.io/v1", "PriorityClass", name, rest, {})
    if plane.store.oldest == 1:
        plane.store.forget_history()
