"""Who this process is to the API server: admission has to tell the manager from everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from homelab_api.meta import JsonObject, KubeModel, KubeObject, ResourceInfo

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import Client

_SERVICE_ACCOUNT = "system:serviceaccount:"


class _UserInfo(KubeModel):
    username: str = ""


class _ReviewStatus(KubeModel):
    user_info: _UserInfo = Field(default_factory=_UserInfo)


class SelfSubjectReview(KubeObject):
    """authentication.k8s.io/v1, since Kubernetes 1.28: who am I? Everybody may ask."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
    )

    spec: JsonObject = Field(default_factory=dict)
    status: _ReviewStatus = Field(default_factory=_ReviewStatus)


def who_am_i(client: Client) -> str:
    """The user that this process acts as.

    Raises:
        NotFoundError: the API server is older than 1.28.
        ApiError: it does not answer.
    """
    return client.create_json(SelfSubjectReview, {}, None).status.user_info.username


def service_account(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user is; None for a person."""
    if not user.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return namespace, name
