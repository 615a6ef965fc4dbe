"""Shrinking: nodes that are not needed, and their deletion step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler import scale_down
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError, CrashError
from homelab_autoscaler.sandbox.autoscaler.memory import Deletion
from homelab_autoscaler.sandbox.autoscaler.picture import CANDIDATE, TO_BE_DELETED, has_taint
from homelab_autoscaler.sandbox.autoscaler.step import Step, unix_time, without_taint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.observe import Observer
    from homelab_autoscaler.sandbox.autoscaler.step import Parts, Scene


class Shrinker(Step):
    """Scale-down.

    The real one deletes in threads; here `advance` moves each deletion on, so that a test can stop anywhere.
    """

    def __init__(self, parts: Parts, observer: Observer) -> None:
        super().__init__(parts)
        self._observer = observer

    def shrink(self, scene: Scene) -> None:
        """Find nodes that are not needed and begin to delete those that were not for long enough."""
        now = self._clock.monotonic()
        unneeded = self._unneeded(scene)
        since = self._memory.unneeded_since
        self._memory.unneeded_since = {name: since.get(name, now) for name in unneeded}
        self._mark_candidates(scene, unneeded)
        times = self._times
        for at, delay in (
            (self._memory.added_at, times.scale_down_delay_after_add),
            (self._memory.removed_at, times.scale_down_delay_after_delete),
            (self._memory.failed_at, times.scale_down_delay_after_failure),
        ):
            if at is not None and now - at < delay:
                return
        started = 0
        for name in unneeded:
            if started >= self._options.max_empty_bulk_delete:
                break
            started += self._try_delete(scene, name, now)

    def _try_delete(self, scene: Scene, name: str, now: float) -> bool:
        node = next(node for node in scene.nodes if objects.name(node) == name)
        picture = scene.pictures[scene.group_of_node[name]]
        try:
            options = self._cloud.group_options(picture.id)
            target = self._cloud.target_size(picture.id)
        except CallError as error:
            self.note("ScaleDownRefused", name, str(error))
            return False
        needed = options.unneeded_time if scene.ready[name] else options.unready_time
        if now - self._memory.unneeded_since[name] < needed:
            return False
        going = sum(deletion.group == picture.id for deletion in self._memory.deletions.values())
        if target - going <= picture.group.min_size:
            return False
        taints = [
            *without_taint(node, CANDIDATE),
            {"key": TO_BE_DELETED, "value": unix_time(self._clock), "effect": "NoSchedule"},
        ]
        cordon = True if self._options.generation.cordons else None
        if not self._cluster.change_node(node, taints, unschedulable=cordon):
            return False
        self._memory.deletions[name] = Deletion(name, picture.id, now)
        self.note("ScaleDownStarted", name)
        return True

    def _unneeded(self, scene: Scene) -> list[str]:
        """Names of nodes that may go, longest unneeded first."""
        found = []
        now = self._clock.monotonic()
        taken: set[str] = set()
        for node in scene.nodes:
            name = objects.name(node)
            group_id = scene.group_of_node.get(name)
            if group_id is None or name in self._memory.deletions:
                continue
            deleted_at = self._memory.deleted_at.get(name)
            if has_taint(node, TO_BE_DELETED) and not (
                deleted_at is not None and now - deleted_at >= self._times.deletion_memory
            ):
                continue
            others = [
                state
                for state in scene.usable_states()
                if objects.name(state.node) != name and objects.name(state.node) not in taken
            ]
            options = scene.pictures[group_id].options
            ready = scene.ready[name]
            if scale_down.removable(
                node, scene.pods, others, options, ready=ready, skip_system_pods=self._options.skip_system_pods
            ):
                found.append(name)
                taken.add(name)
        return sorted(found, key=lambda name: (self._memory.unneeded_since.get(name, now), name))

    def _mark_candidates(self, scene: Scene, unneeded: Sequence[str]) -> None:
        """The taint that only says "unneeded"; a few changes per loop, and the group is asked for again."""
        changes = 0
        for node in scene.nodes:
            name = objects.name(node)
            marked, wanted = has_taint(node, CANDIDATE), name in unneeded
            if marked == wanted or changes >= self._options.max_soft_taints or has_taint(node, TO_BE_DELETED):
                continue
            if self.group_of(node) is None:
                continue
            taint = {"key": CANDIDATE, "value": unix_time(self._clock), "effect": "PreferNoSchedule"}
            taints = [*without_taint(node, CANDIDATE), taint] if wanted else without_taint(node, CANDIDATE)
            changes += self._cluster.change_node(node, taints, unschedulable=None)

    def advance(self) -> None:
        """Move deletions on: wait after the taint, evict, wait for the pods, hand the node to the provider."""
        if not self._memory.deletions:
            return
        nodes = {objects.name(node): node for node in self._cluster.nodes()}
        pods = self._cluster.pods()
        now = self._clock.monotonic()
        for deletion in list(self._memory.deletions.values()):
            node = nodes.get(deletion.node)
            if node is None:
                del self._memory.deletions[deletion.node]
            elif now - deletion.tainted_at >= self._times.node_delete_delay_after_taint:
                self._empty(deletion, node, pods, now)

    def _empty(self, deletion: Deletion, node: JsonObject, pods: Sequence[JsonObject], now: float) -> None:
        left = [
            pod
            for pod in pods
            if objects.spec(pod).get("nodeName") == deletion.node
            and not objects.is_finished_pod(pod)
            and (objects.is_deleting(pod) or pod in scale_down.residents(node, pods))
        ]
        if deletion.evicting_since is None:
            deletion.evicting_since = now
        limit = self._times.max_pod_eviction_time
        for pod in left:
            if not objects.is_deleting(pod) and not self._cluster.evict(pod) and now - deletion.evicting_since > limit:
                self._abandon(deletion, node, f"pod {objects.name(pod)} cannot be evicted")
                return
        if left and now - deletion.evicting_since <= self._times.max_graceful_termination:
            return
        self._hand_over(deletion, node)

    def _hand_over(self, deletion: Deletion, node: JsonObject) -> None:
        try:
            group = self._cloud.group_of(node)
        except CallError as error:
            self._abandon(deletion, node, str(error))
            return
        if group is None:
            if self._options.generation.dies_when_a_group_vanishes:
                raise CrashError(f"node {deletion.node} lost its group in the middle of its scale-down")
            self._abandon(deletion, node, "it has no group any more")
            return
        try:
            self._cloud.delete(deletion.group, [node])
        except CallError as error:
            self._abandon(deletion, node, str(error))
            return
        now = self._clock.monotonic()
        del self._memory.deletions[deletion.node]
        self._memory.deleted_at[deletion.node] = now
        self._memory.removed_at = now
        self._memory.unneeded_since.pop(deletion.node, None)
        self.note("NodeDeleted", deletion.node)
        if self._options.generation.asks_template_after_delete:
            self._observer.template(deletion.group)

    def _abandon(self, deletion: Deletion, node: JsonObject, why: str) -> None:
        """The node stays: its taint and cordon are taken off again."""
        del self._memory.deletions[deletion.node]
        self._memory.failed_at = self._clock.monotonic()
        self._cluster.change_node(node, without_taint(node, TO_BE_DELETED), unschedulable=False)
        self.note("ScaleDownFailed", deletion.node, why)
