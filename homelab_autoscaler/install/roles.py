"""Roles and bindings from the inventory of rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_autoscaler.install.rights import RIGHTS, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.install.rights import Right

_API: Final = "rbac.authorization.k8s.io"
MANAGER: Final = "homelab-autoscaler"
"""The manager's service account, and the beginning of its roles' names."""
POOLS_NAMESPACE: Final = "homelab-pools"
"""The pools' namespace unless another is chosen."""


@dataclass(frozen=True, slots=True)
class Place:
    """Namespaces of an installation.

    Attributes:
        own: of the manager.
        pools: of groups, slots, claims and lifecycle Jobs; None grants their rights in every namespace.
    """

    own: str = names.DEFAULT_NAMESPACE
    pools: str | None = POOLS_NAMESPACE


def rules(rights: Iterable[Right]) -> list[JsonObject]:
    """Rights as a role's rules, in their order; rights with the same verbs and names share a rule."""
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for right in rights:
        found.setdefault((right.group, right.verbs, right.names), []).append(right.resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": list(only)} if only else {}),
            "verbs": list(verbs),
        }
        for (group, verbs, only), resources in found.items()
    ]


def manager_roles(place: Place) -> list[JsonObject]:
    """Roles and bindings of the cluster, the manager's namespace and the kubelets' leases."""
    return [
        *_granted("manager", Scope.CLUSTER, None, place),
        *_granted("manager", Scope.OWN, place.own, place),
        *_granted("node-leases", Scope.NODE_LEASES, names.NODE_LEASE_NAMESPACE, place),
    ]


def pool_roles(place: Place) -> list[JsonObject]:
    """Role and binding of the pools' namespace; of the cluster if the manager serves every namespace."""
    return _granted("pools", Scope.POOLS, place.pools, place)


def _granted(part: str, scope: Scope, namespace: str | None, place: Place) -> list[JsonObject]:
    name = MANAGER if part == "manager" else f"{MANAGER}-{part}"
    kind = "ClusterRole" if namespace is None else "Role"
    metadata: JsonObject = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    metadata["labels"] = {"app.kubernetes.io/name": MANAGER}
    role: JsonObject = {
        "apiVersion": f"{_API}/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules(right for right in RIGHTS if right.scope is scope),
    }
    binding: JsonObject = {
        "apiVersion": f"{_API}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _API, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": MANAGER, "namespace": place.own}],
    }
    return [role, binding]
