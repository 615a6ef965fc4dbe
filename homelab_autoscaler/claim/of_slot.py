"""Uncached reads of the claims that name a slot.

A claim belongs to a slot by `spec.slotRef.name` alone (model section 1), so that field is what the API server is asked
to select by: its answer, and the work of reading it, do not grow with the fleet. Kubernetes selects custom resources by
fields from 1.31 on; an older server says that it does not know the field, and gives the whole list instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from homelab_api.meta import KubeObject
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.runtime.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T", bound=KubeObject)

SLOT_FIELD: Final = "spec.slotRef.name"
"""Declared as selectable in the CRD."""


class _Items(Protocol[T]):
    @property
    def items(self) -> list[T]: ...


class ClaimReader(Protocol):
    """The one call of `runtime.Client` that is needed."""

    def list(self, kind: type[T], namespace: str | None = None, *, field_selector: str | None = None) -> _Items[T]:
        """See runtime.Client."""
        ...


def claims_of_slots(reader: ClaimReader, namespace: str, slots: Collection[str]) -> list[NodeClaim]:
    """Every claim of the namespace that names one of the slots, as the API server has them now.

    Args:
        reader: asked once, or twice if the server cannot select.
        namespace: of claims and slots.
        slots: names; more than one is answered from a list of everything, still as of one moment.

    Raises:
        ApiError: the API server refuses or does not answer.
    """
    if len(slots) == 1:
        (slot,) = slots
        try:
            found = reader.list(NodeClaim, namespace, field_selector=f"{SLOT_FIELD}={slot}").items
        except BadRequestError:
            found = reader.list(NodeClaim, namespace).items
    else:
        found = reader.list(NodeClaim, namespace).items
    return [claim for claim in found if claim.slot_name in slots]
