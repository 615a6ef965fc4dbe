"""Locks that somebody else has put on a slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Node
from homelab_autoscaler.runtime import MergePatch

if TYPE_CHECKING:
    from virtual.cluster import Cluster


def lock(cluster: Cluster, kind: str, seconds: float, owner: str = "somebody/99") -> None:
    """Lock slot `m` now, for so long, as somebody who is not our predecessor."""
    marks = {
        names.ANNOTATION_LOCK: kind,
        names.ANNOTATION_LOCK_OWNER: owner,
        names.ANNOTATION_LOCK_TIMESTAMP: format_time(cluster.clock.now()),
        names.ANNOTATION_LOCK_TIMEOUT: f"{seconds}",
    }
    cluster.client.patch(Node, "m", "lab", MergePatch({"metadata": {"annotations": marks}}))
