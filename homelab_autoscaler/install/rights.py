"""Inventory of the calls that the manager makes to the API server, and where it makes them.

A right is listed with the call that needs it. A test runs a whole manager under roles that hold these rights alone
and fails for a call that is refused as well as for a right that nothing used; so a change of the code that needs more
or less is found there. Source: reliability notes, section 10 and row 89.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from homelab_api import names

_OURS: Final = names.GROUP
_COORDINATION: Final = "coordination.k8s.io"

LEASE: Final = "homelab-autoscaler"
"""The election's Lease."""
SECRETS: Final = (
    "homelab-autoscaler-grpc-ca",
    "homelab-autoscaler-grpc-client",
    "homelab-autoscaler-grpc-server",
    "homelab-autoscaler-webhook",
)
"""Secrets that the manager makes and reads: certificates of the provider and of admission."""
RENEWED_SECRETS: Final = tuple(name for name in SECRETS if not name.endswith("-ca"))
"""The provider's authority is made once; a person deletes it to get a new one."""
WEBHOOK_CONFIGURATION: Final = "homelab-autoscaler"
"""The configuration whose caBundle the manager keeps."""


class Scope(StrEnum):
    """Where a right holds."""

    CLUSTER = "cluster"
    POOLS = "pools"
    OWN = "own"
    NODE_LEASES = "node-leases"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource.

    Attributes:
        scope: where.
        group: API group; "" for core.
        resource: plural, with `/<subresource>` if it is about one.
        verbs: as RBAC names them.
        names: the only objects; empty for all. Never with `create`, `list` or `watch`, which have no name.
        why: the calls that need it.
    """

    scope: Scope
    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()


RIGHTS: Final = (
    # --- the pools' namespace -----------------------------------------------------------------------------------
    Right(Scope.POOLS, _OURS, "groups", ("get", "list", "patch", "watch"), "caches; second read; finalizer"),
    Right(Scope.POOLS, _OURS, "groups/status", ("patch",), "the group's report"),
    Right(Scope.POOLS, _OURS, "nodes", ("get", "list", "patch", "watch"), "caches; second read; lock, finalizer"),
    Right(Scope.POOLS, _OURS, "nodes/status", ("patch",), "the slot's report"),
    Right(
        Scope.POOLS,
        _OURS,
        "nodeclaims",
        ("create", "delete", "get", "list", "patch", "watch"),
        "caches; second read; requests of the autoscaler and adoption; finalizer, end reason; collection",
    ),
    Right(Scope.POOLS, _OURS, "nodeclaims/status", ("patch",), "moves of claims"),
    Right(
        Scope.POOLS,
        _OURS,
        "nodereclaims",
        ("delete", "get", "list", "watch"),
        "caches; second read; the end of a reclaim whose slot is deleted",
    ),
    Right(
        Scope.POOLS,
        "batch",
        "jobs",
        ("create", "delete", "get", "list", "patch", "watch"),
        "lifecycle Jobs: create suspended, find the first try, second read, release, end",
    ),
    Right(Scope.POOLS, "", "events", ("create", "patch"), "the timeline of claims, slots and groups"),
    # --- the manager's own namespace ----------------------------------------------------------------------------
    Right(Scope.OWN, _COORDINATION, "leases", ("create",), "election"),
    Right(Scope.OWN, _COORDINATION, "leases", ("get", "patch"), "election", (LEASE,)),
    Right(Scope.OWN, "", "secrets", ("create",), "own certificates"),
    Right(Scope.OWN, "", "secrets", ("get",), "own certificates", SECRETS),
    Right(Scope.OWN, "", "secrets", ("patch",), "their renewal", RENEWED_SECRETS),
    Right(Scope.OWN, "", "pods", ("patch",), "the label by which the Service finds the leader"),
    # --- kubelets' leases ---------------------------------------------------------------------------------------
    Right(Scope.NODE_LEASES, _COORDINATION, "leases", ("get",), "whether the kubelet of a machine is silent"),
    # --- the cluster --------------------------------------------------------------------------------------------
    Right(
        Scope.CLUSTER,
        "",
        "nodes",
        ("delete", "get", "list", "patch", "watch"),
        "observation; cordon, taints, labels, providerID; the node object of a machine that is off",
    ),
    Right(Scope.CLUSTER, "", "pods", ("delete", "list"), "drain past its limit; left-over pods of ended Jobs"),
    Right(Scope.CLUSTER, "", "pods/eviction", ("create",), "drain"),
    Right(
        Scope.CLUSTER,
        "authorization.k8s.io",
        "subjectaccessreviews",
        ("create",),
        "admission: may this user take machines back?",
    ),
    Right(
        Scope.CLUSTER,
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        ("get", "patch"),
        "the authority of the admission certificate",
        (WEBHOOK_CONFIGURATION,),
    ),
)
