"""Which requests the API server sends to webhooks, and whose authority it trusts for that."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import JsonObject, KubeObject, ResourceInfo


class ValidatingWebhookConfiguration(KubeObject):
    """Which requests the API server sends to validating webhooks."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
    )

    webhooks: list[JsonObject] = Field(default_factory=list)


class MutatingWebhookConfiguration(KubeObject):
    """Which requests the API server sends to mutating webhooks."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
    )

    webhooks: list[JsonObject] = Field(default_factory=list)
