"""corev1 Secret: where the certificates that the manager makes are kept."""

from __future__ import annotations

import base64
import binascii
from typing import ClassVar

from pydantic import Field

from homelab_api.meta import KubeObject, ResourceInfo


class Secret(KubeObject):
    """corev1 Secret. `data` holds base64 text, as on the wire; `entry` and `encode` translate."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Secret", "secrets")

    type: str = "Opaque"
    data: dict[str, str] = Field(default_factory=dict)

    def entry(self, key: str) -> bytes:
        """The bytes of one entry.

        Raises:
            KeyError: there is no such entry.
            ValueError: it is not base64.
        """
        try:
            return base64.b64decode(self.data[key], validate=True)
        except binascii.Error as error:
            raise ValueError(f'entry "{key}" of Secret {self.namespace}/{self.name} is not base64: {error}') from error

    @staticmethod
    def encode(entries: dict[str, bytes]) -> dict[str, str]:
        """Bytes as `data` wants them."""
        return {key: base64.b64encode(value).decode() for key, value in entries.items()}
