"""The webhook's handlers by path, over the manager's caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.runtime.webhook import NotReadyError, allow
from homelab_autoscaler.webhook.claims import ClaimAdmission
from homelab_autoscaler.webhook.reclaims import ReclaimAdmission
from homelab_autoscaler.webhook.slots import GroupAdmission, SlotAdmission

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_autoscaler.pod_policy import PodPolicy
    from homelab_autoscaler.runtime import Manager
    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.webhook import AdmissionHandler, AdmissionRequest, Decision

CONFIGURATION: Final = "homelab-autoscaler"
"""Name of the ValidatingWebhookConfiguration."""
PATH_CLAIMS: Final = "/validate-nodeclaims"
PATH_SLOTS: Final = "/validate-nodes"
PATH_GROUPS: Final = "/validate-groups"
PATH_RECLAIMS: Final = "/validate-nodereclaims"


def handlers(
    manager: Manager,
    policy: PodPolicy,
    manager_user: str,
    namespace: str | None = None,
    *,
    by_slot: str,
    by_node: str,
    by_group: str,
) -> dict[str, AdmissionHandler]:
    """The handlers, to be served by the runtime's WebhookServer.

    Args:
        manager: its caches must have informers for slots, groups and claims.
        policy: what pods of slots may name.
        manager_user: the user that the manager acts as.
        namespace: the only one that the manager serves; None for all.
        by_slot: name of the claims' index by `<namespace>/<slot>`.
        by_node: name of the slots' index by Kubernetes node.
        by_group: name of the slots' index by `<namespace>/<group>`.
    """
    slots, groups, claims = manager.cache.lister(Node), manager.cache.lister(Group), manager.cache.lister(NodeClaim)

    def slot(namespace: str, name: str) -> Node | None:
        return slots.get(name, namespace)

    def claims_of(namespace: str, name: str) -> Iterable[NodeClaim]:
        return claims.by_index(by_slot, f"{namespace}/{name}")

    judges: dict[str, AdmissionHandler] = {
        PATH_CLAIMS: ClaimAdmission(slot, claims_of, manager_user),
        PATH_SLOTS: SlotAdmission(
            lambda namespace, name: groups.get(name, namespace) is not None,
            lambda node: slots.by_index(by_node, node),
            claims_of,
            policy,
        ),
        PATH_GROUPS: GroupAdmission(lambda namespace, name: slots.by_index(by_group, f"{namespace}/{name}")),
        PATH_RECLAIMS: ReclaimAdmission(manager.client, slot, manager_user),
    }
    return {path: _Careful(judge, manager.cache, namespace) for path, judge in judges.items()}


class _Careful:
    """Judges only what the caches can tell: not before their first list, and not for namespaces without one."""

    def __init__(self, judge: AdmissionHandler, cache: Cache, namespace: str | None) -> None:
        self._judge = judge
        self._cache = cache
        self._namespace = namespace

    def __call__(self, request: AdmissionRequest) -> Decision:
        """One review.

        Raises:
            NotReadyError: the first lists are not there yet.
        """
        if self._namespace is not None and request.namespace != self._namespace:
            return allow(
                f'the manager serves namespace "{self._namespace}" only: in "{request.namespace}" nothing will happen'
            )
        missing = self._cache.unsynced()
        if missing:
            raise NotReadyError(f"not listed yet: {', '.join(missing)}")
        return self._judge(request)
