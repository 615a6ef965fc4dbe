"""Prices from the slots' `pricing`, for the autoscaler's price expander.

Source: the contract's section 3 (price calls carry the *template* node, whose name means nothing). Without any
pricing in the pool both calls are unimplemented: a pool that is free by omission would win every comparison.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.offer import hourly_rate, pod_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.provider.view import GroupView


def node_price(views: Iterable[GroupView], name: str, labels: Mapping[str, str], hours: float) -> float:
    """The price of a node for a time.

    A node of the pool costs what its slot costs. A template costs what the machine costs that would be claimed next:
    the cheapest free one, or the cheapest one if none is free.

    Args:
        views: all groups.
        name: of the node; a template's is of no slot.
        labels: the group label says which group a template is of.
        hours: the period.

    Raises:
        CallError: UNIMPLEMENTED when no slot of the group has pricing; NOT_FOUND for a node of no group.
    """
    for view in views:
        own = next((slot for slot in view.slots if slot.spec.kubernetes_node_name == name), None)
        if own is None and view.group.name != labels.get(names.LABEL_GROUP):
            continue
        candidates = _priced([own] if own else view.free) or _priced(view.slots)
        if not candidates:
            raise CallError(Cause.UNIMPLEMENTED, f'group "{view.id}": no slot has spec.pricing')
        return float(min(hourly_rate(slot) for slot in candidates) * Decimal(repr(hours)))
    raise CallError(Cause.NOT_FOUND, f'node "{name}" has no label {names.LABEL_GROUP} of a group in this pool')


def pod_price(views: Iterable[GroupView], hours: float) -> float:
    """The price of a pod for a time: the least `podRate` of the pool, since a pod may run on any machine.

    Raises:
        CallError: UNIMPLEMENTED when no slot of the pool has pricing.
    """
    candidates = _priced(slot for view in views for slot in view.slots)
    if not candidates:
        raise CallError(Cause.UNIMPLEMENTED, "no slot of this pool has spec.pricing")
    return float(min(pod_rate(slot) for slot in candidates) * Decimal(repr(hours)))


def _priced(slots: Iterable[Node]) -> list[Node]:
    return [slot for slot in slots if slot.spec.pricing is not None]
