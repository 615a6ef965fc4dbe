"""Does the kubelet still live? The evidence behind "confirmed off".

A node that is not Ready proves nothing: a kubelet can be unready and very much alive, and a node object can be gone
while its machine runs. Silence is a Ready condition that the node lifecycle controller set to Unknown, or a kubelet
Lease that did not change between two of our *own* reads that lie `lease_silence` apart. Clocks of machines are never
compared with ours. Source: model section 7.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.core import Lease
from homelab_autoscaler.runtime import NotFoundError

if TYPE_CHECKING:
    from homelab_api.core import CoreNode
    from homelab_autoscaler.runtime import Client, Clock


class Pulse(StrEnum):
    """What is known of a node's kubelet."""

    SILENT = "silent"
    ALIVE = "alive"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Seen:
    version: str
    since: float
    changed: bool


class KubeletPulse:
    """Reads kubelet Leases and remembers, per node, since when one did not change. Shared by all controllers.

    The memory is the process's own: after a restart silence has to be established anew, which costs one
    `lease_silence` and never a wrong answer.
    """

    def __init__(self, client: Client, clock: Clock, lease_silence: float) -> None:
        self._client = client
        self._clock = clock
        self._silence = lease_silence
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def read(self, node: CoreNode | None) -> Pulse:
        """One look at the kubelet behind a node that is not Ready."""
        if node is None:
            return Pulse.MISSING
        ready = node.condition("Ready")
        if ready is not None and ready.status == "Unknown" and ready.reason == "NodeStatusUnknown":
            return Pulse.SILENT
        try:
            lease = self._client.get(Lease, node.name, names.NODE_LEASE_NAMESPACE)
        except NotFoundError:
            return Pulse.MISSING
        return self._judge(node.name, f"{lease.uid}/{lease.metadata.resource_version}")

    def _judge(self, name: str, version: str) -> Pulse:
        now = self._clock.monotonic()
        with self._lock:
            seen = self._seen.get(name)
            if seen is None:
                self._seen[name] = _Seen(version, now, changed=False)
                return Pulse.UNKNOWN
            if seen.version != version:
                self._seen[name] = _Seen(version, now, changed=True)
                return Pulse.ALIVE
            if now - seen.since >= self._silence:
                return Pulse.SILENT
            return Pulse.ALIVE if seen.changed else Pulse.UNKNOWN

    def forget(self, name: str) -> None:
        """Drop the memory of a node that is Ready or gone, so that its next silence is measured from anew."""
        with self._lock:
            self._seen.pop(name, None)
