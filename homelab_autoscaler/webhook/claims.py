"""Admission of NodeClaims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api.v2alpha1 import Call, NodeClaim
from homelab_autoscaler.runtime.webhook import AdmissionRequest, Decision, FieldCause, allow
from homelab_autoscaler.webhook.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from homelab_api.v2alpha1 import Node

NO_DEADLINE = (
    "spec.deadlineAt is not set: a boot that never starts holds its slot until the claim is deleted; "
    "12m10s after spec.requestedAt is what a boot can take"
)


class ClaimAdmission:
    """Decides about NodeClaims.

    Args:
        slot: the slot of a namespace and name, None if there is none.
        claims_of: every claim that names the slot of a namespace and name.
        manager_user: the user that the manager acts as; the only one that may create Adopt claims.
    """

    def __init__(
        self,
        slot: Callable[[str, str], Node | None],
        claims_of: Callable[[str, str], Iterable[NodeClaim]],
        manager_user: str,
    ) -> None:
        self._slot = slot
        self._claims_of = claims_of
        self._manager_user = manager_user

    def __call__(self, request: AdmissionRequest) -> Decision:
        """One review."""
        if request.operation != "CREATE" or request.subresource:
            return allow()
        claim = request.decode(NodeClaim)
        causes = [*self._slot_causes(claim), *self._caller_causes(claim, request.user)]
        warnings = [] if claim.spec.deadline_at else [NO_DEADLINE]
        if causes:
            return refuse(causes, warnings)
        return allow(*warnings)

    def _slot_causes(self, claim: NodeClaim) -> Iterable[FieldCause]:
        slot = self._slot(claim.namespace, claim.slot_name)
        if slot is None:
            yield FieldCause(
                "spec.slotRef",
                f'Not found: "{claim.slot_name}" is no slot in namespace "{claim.namespace}"',
                "FieldValueNotFound",
            )
            return
        if slot.marked:
            yield FieldCause("spec.slotRef", f'Forbidden: slot "{slot.name}" is being deleted', "FieldValueForbidden")
        for other in self._claims_of(claim.namespace, claim.slot_name):
            if other.live and other.name != claim.name:
                yield FieldCause(
                    "spec.slotRef",
                    f'Forbidden: slot "{slot.name}" already has the live NodeClaim "{other.name}" in phase '
                    f'"{other.phase}": one live claim per slot',
                    "FieldValueForbidden",
                )
                return

    def _caller_causes(self, claim: NodeClaim, user: str) -> Iterable[FieldCause]:
        if claim.spec.call is Call.ADOPT and user != self._manager_user:
            yield FieldCause(
                "spec.call",
                'Forbidden: "Adopt" is for the manager alone: use "Manual"',
                "FieldValueForbidden",
            )
