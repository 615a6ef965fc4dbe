"""The four ways to change part of an object, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: objects are merged, null deletes, lists are replaced whole.

    With `metadata.resourceVersion` in the body the server refuses it (409) when the object has changed: always give
    it when a list is written that somebody else may write too.
    """

    body: JsonObject
    content_type: ClassVar[str] = "application/merge-patch+json"
    repeatable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: a list of operations; `test` operations are its preconditions. Not repeated after a lost reply."""

    body: list[JsonObject]
    content_type: ClassVar[str] = "application/json-patch+json"
    repeatable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class StrategicMergePatch:
    """Kubernetes' own merge with keyed lists. Built-in kinds only: custom resources answer 415."""

    body: JsonObject
    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    repeatable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Server-side apply: the fields in `body` become ours; fields that we applied before and leave out now go.

    Attributes:
        body: the object with apiVersion, kind and just the fields that this manager owns.
        field_manager: who owns them; None means the client's own.
        force: take fields from other managers instead of failing with 409.
    """

    body: JsonObject
    field_manager: str | None = None
    force: bool = False
    content_type: ClassVar[str] = "application/apply-patch+yaml"
    repeatable: ClassVar[bool] = True


Patch: TypeAlias = MergePatch | JsonPatch | StrategicMergePatch | ApplyPatch


def merge(target: object, patch: object) -> object:
    """Apply an RFC 7386 patch to a JSON value and return the result; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result
