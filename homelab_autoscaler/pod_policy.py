"""What the pods of slots may name: whoever may write a slot must not get at the manager's own rights through it.

Checked at admission, and again before a Job is built, for slots that admission did not see. Source: model 13.14.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.v2alpha1 import MinimalPodSpec, Node


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """Limits of an installation. Patterns are shell globs; None allows everything that is not forbidden.

    Attributes:
        forbidden_service_accounts: the manager's own.
        forbidden_secrets: the manager's own.
        service_accounts: patterns of allowed service accounts.
        secrets: patterns of allowed Secrets.
        images: patterns of allowed images.
    """

    forbidden_service_accounts: frozenset[str] = frozenset()
    forbidden_secrets: frozenset[str] = frozenset()
    service_accounts: tuple[str, ...] | None = None
    secrets: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None

    def violations(self, slot: Node) -> Iterator[tuple[str, str]]:
        """(field path, what is wrong and what would be right) of everything that the slot may not name."""
        pods = (
            ("startupPodSpec", slot.spec.startup_pod_spec),
            ("shutdownPodSpec", slot.spec.shutdown_pod_spec),
            ("reclaimPodSpec", slot.spec.reclaim_pod_spec),
        )
        for name, pod in pods:
            if pod is not None:
                yield from self._pod_violations(f"spec.{name}", pod)

    def _pod_violations(self, path: str, pod: MinimalPodSpec) -> Iterator[tuple[str, str]]:
        account = pod.service_account
        if account in self.forbidden_service_accounts:
            yield f"{path}.serviceAccount", f'"{account}" is the manager\'s own: give the script one without its rights'
        elif account and not _allowed(account, self.service_accounts):
            yield f"{path}.serviceAccount", f'"{account}" is not allowed: use one of {_names(self.service_accounts)}'
        if not _allowed(pod.image, self.images):
            yield f"{path}.image", f'"{pod.image}" is not allowed: use one of {_names(self.images)}'
        for index, volume in enumerate(pod.volumes):
            field = f"{path}.volumes[{index}].secretName"
            secret = volume.secret_name
            if secret in self.forbidden_secrets:
                yield (
                    field,
                    f'"{secret}" belongs to the manager: keep the machine\'s credentials in a Secret of their own',
                )
            elif secret and not _allowed(secret, self.secrets):
                yield field, f'"{secret}" is not allowed: use one of {_names(self.secrets)}'


def _allowed(name: str, patterns: tuple[str, ...] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def _names(patterns: tuple[str, ...] | None) -> str:
    return ", ".join(f'"{pattern}"' for pattern in patterns or ())
