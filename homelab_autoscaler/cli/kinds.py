"""Built-in kinds of which the command line needs nothing but existence."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import Conditions, KubeModel, KubeObject, ResourceInfo


class Namespace(KubeObject):
    """corev1 Namespace."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Namespace", "namespaces", namespaced=False)


class DefinitionStatus(KubeModel):
    """Whether the server serves the kind."""

    conditions: Conditions | None = None  # null until the server has looked at the definition


class CustomResourceDefinition(KubeObject):
    """apiextensions.k8s.io/v1."""

    resource: ClassVar[ResourceInfo] = ResourceInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )

    status: DefinitionStatus = Field(default_factory=DefinitionStatus)

    @property
    def established(self) -> bool:
        """The server serves objects of the kind."""
        return any(entry.type == "Established" and entry.status == "True" for entry in self.status.conditions or ())
