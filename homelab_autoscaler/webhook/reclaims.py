"""Admission of NodeReclaims: who may take a machine out of our hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from homelab_api import names
from homelab_api.meta import JsonObject, KubeModel, KubeObject, ResourceInfo
from homelab_api.v2alpha1 import NodeReclaim
from homelab_autoscaler.runtime.webhook import AdmissionRequest, Decision, FieldCause, allow, deny
from homelab_autoscaler.webhook.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.runtime import Client

VERB = "reclaim"


class _ReviewStatus(KubeModel):
    allowed: bool = False


class SubjectAccessReview(KubeObject):
    """authorization.k8s.io: may this user do that?"""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
    )

    spec: JsonObject = Field(default_factory=dict)
    status: _ReviewStatus = Field(default_factory=_ReviewStatus)


class ReclaimAdmission:
    """Decides about NodeReclaims.

    Args:
        client: asks the API server about rights.
        slot: the slot of a namespace and name, None if there is none.
        manager_user: the user that the manager acts as.
    """

    def __init__(self, client: Client, slot: Callable[[str, str], Node | None], manager_user: str) -> None:
        self._client = client
        self._slot = slot
        self._manager_user = manager_user

    def __call__(self, request: AdmissionRequest) -> Decision:
        """One review."""
        if request.operation != "CREATE" or request.subresource:
            return allow()
        reclaim = request.decode(NodeReclaim)
        if self._slot(reclaim.namespace, reclaim.slot_name) is None:
            text = f'Not found: "{reclaim.slot_name}" is no slot in namespace "{reclaim.namespace}"'
            return refuse([FieldCause("spec.slotRef", text, "FieldValueNotFound")])
        if request.user != self._manager_user and not self._may_reclaim(request, reclaim):
            return deny(
                f'user "{request.user}" may not take machines back: grant verb "{VERB}" on "nodereclaims" '
                f'({names.GROUP}) in namespace "{reclaim.namespace}"'
            )
        return allow()

    def _may_reclaim(self, request: AdmissionRequest, reclaim: NodeReclaim) -> bool:
        review = {
            "spec": {
                "user": request.user,
                "groups": list(request.groups),
                "resourceAttributes": {
                    "group": names.GROUP,
                    "resource": "nodereclaims",
                    "verb": VERB,
                    "namespace": reclaim.namespace,
                    "name": reclaim.name,
                },
            }
        }
        return self._client.create_json(SubjectAccessReview, review, None).status.allowed
