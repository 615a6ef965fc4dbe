"""What every step of a loop works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError
from homelab_autoscaler.sandbox.autoscaler.memory import Happening, Memory
from homelab_autoscaler.sandbox.autoscaler.picture import TO_BE_DELETED, GroupPicture, has_taint, template_states
from homelab_autoscaler.sandbox.scheduling.fit import NodeState, state_of

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.sandbox.autoscaler.cloud import Cloud, NodeGroup
    from homelab_autoscaler.sandbox.autoscaler.cluster import Cluster
    from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions

log = structlog.get_logger("autoscaler")


class LoopOverError(Exception):
    """This loop ends here; the next one starts anew."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The collaborators of one autoscaler process."""

    cluster: Cluster
    cloud: Cloud
    clock: Clock
    options: AutoscalerOptions
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Scene:
    """What one loop has read.

    Attributes:
        nodes: all nodes.
        pods: all pods.
        ready: whether each node counts as ready, by name.
        group_of_node: id of each managed node's group, by name.
        pictures: the groups, by id.
        templates: what a new machine of a group will be, by id.
    """

    nodes: list[JsonObject] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=list)
    ready: dict[str, bool] = field(default_factory=dict)
    group_of_node: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, GroupPicture] = field(default_factory=dict)
    templates: dict[str, JsonObject] = field(default_factory=dict)

    def usable_states(self) -> list[NodeState]:
        """Nodes that pods can use, and placeholders for those that are on their way."""
        states = []
        for node in self.nodes:
            if self.ready[objects.name(node)] and not has_taint(node, TO_BE_DELETED):
                own = [pod for pod in self.pods if objects.spec(pod).get("nodeName") == objects.name(node)]
                states.append(state_of(node, own))
        for picture in self.pictures.values():
            template = self.templates.get(picture.id)
            if template is not None:
                states.extend(template_states(template, picture.upcoming))
        return states


class Step:
    """Base of the steps of a loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._cluster = parts.cluster
        self._cloud = parts.cloud
        self._clock = parts.clock
        self._options = parts.options
        self._times = parts.options.times
        self._memory = parts.memory

    def note(self, kind: str, about: str, text: str = "") -> None:
        """Write the journal."""
        self._memory.journal.append(Happening(self._clock.monotonic(), kind, about, text))
        log.info(kind, about=about, text=text)

    def group_of(self, node: JsonObject) -> NodeGroup | None:
        """The node's group; an error skips the node."""
        try:
            return self._cloud.group_of(node)
        except CallError as error:
            self.note("NodeSkipped", objects.name(node), str(error))
            return None

    def fail(self, scene: Scene, group: str, why: str) -> None:
        """Leave a group alone for a while; without a template that cannot be recorded."""
        now = self._clock.monotonic()
        self._memory.failed_at = now
        if group in scene.templates:
            self._memory.back_off(group, why, now, self._times)


def without_taint(node: JsonObject, key: str) -> list[JsonObject]:
    """The node's taints but those of a key."""
    return [taint for taint in objects.spec(node).get("taints") or [] if taint.get("key") != key]


def unix_time(clock: Clock) -> str:
    """Now, as the values of taints have it."""
    return str(int(clock.now().timestamp()))
