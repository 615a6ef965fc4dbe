"""Draining a node: evict what runs there, in steps that never block a pass for long.

DaemonSet pods, mirror pods and finished pods are left alone: they do not keep a machine from going off. Disruption
budgets are respected until the group's drain limit; then the rest is deleted, or the shutdown proceeds over it, as the
group says. Source: model section 6 (Shutdown).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.core import Pod
from homelab_autoscaler.runtime import ApiError, ConflictError, NotFoundError, TooManyRequestsError

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.core import CoreNode
    from homelab_api.v2alpha1 import Drain
    from homelab_autoscaler.runtime import Client, Clock


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """Where a drain stands.

    Attributes:
        done: nothing more is waited for.
        waiting: `namespace/name: why` of pods that do not go, sorted, for people. Those that are on their way are not
            among them, so it stays the same from step to step.
        forced: the limit was passed with pods left.
    """

    done: bool
    waiting: tuple[str, ...] = ()
    forced: bool = False


def keeps_node_busy(pod: Pod) -> bool:
    """Whether a drain has to see this pod off."""
    if pod.status.phase in {"Succeeded", "Failed"} or names.ANNOTATION_MIRROR_POD in pod.metadata.annotations:
        return False
    owner = pod.metadata.controller_owner()
    return owner is None or owner.kind != "DaemonSet"


class Drainer:
    """Runs drains, one step at a time."""

    def __init__(self, client: Client, clock: Clock, pass_limit: float) -> None:
        self._client = client
        self._clock = clock
        self._pass_limit = pass_limit

    def step(self, node: CoreNode, started_at: datetime, limits: Drain) -> DrainProgress:
        """Evict what is there, as far as one pass may take.

        Args:
            node: the node, cordoned and tainted already.
            started_at: when the drain began, by the taint; the limit counts from here.
            limits: of the group.
        """
        pods = self._client.list(Pod, field_selector=f"spec.nodeName={node.name}").items
        left = sorted((pod for pod in pods if keeps_node_busy(pod)), key=lambda pod: (pod.namespace, pod.name))
        if not left:
            return DrainProgress(done=True)
        if self._clock.now() >= started_at + limits.timeout:
            return self._give_up(left, force=limits.force)
        until = self._clock.monotonic() + self._pass_limit
        refused = []
        # Each step begins elsewhere: pods that a budget keeps must not use up every step's time before the others.
        turn = int((self._clock.now() - started_at).total_seconds() / self._pass_limit) % len(left)
        for pod in [*left[turn:], *left[:turn]]:
            if self._clock.monotonic() >= until:
                break
            why = "" if pod.marked else self._evict(pod)
            if why:
                refused.append(f"{pod.namespace}/{pod.name}: {why}")
        return DrainProgress(done=False, waiting=tuple(sorted(refused)))

    def _evict(self, pod: Pod) -> str:
        """Ask for the eviction; why it was refused, "" if it was not."""
        try:
            self._client.evict(pod)
        except (NotFoundError, ConflictError):
            return ""
        except TooManyRequestsError:
            return "a disruption budget does not allow its eviction yet"
        except ApiError as error:
            return f"its eviction failed: {error.message}"
        return ""

    def _give_up(self, left: list[Pod], *, force: bool) -> DrainProgress:
        if force:
            for pod in left:
                try:
                    self._client.delete(Pod, pod.name, pod.namespace, uid=pod.uid)
                except (NotFoundError, ConflictError):
                    continue
        named = tuple(f"{pod.namespace}/{pod.name}: past the drain limit" for pod in left)
        return DrainProgress(done=True, waiting=named, forced=True)
