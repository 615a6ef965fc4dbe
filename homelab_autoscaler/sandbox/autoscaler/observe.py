"""Reading: nodes, groups, templates, and the picture of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler import picture as pictures
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError, fake_node
from homelab_autoscaler.sandbox.autoscaler.picture import TO_BE_DELETED, GroupPicture, has_taint
from homelab_autoscaler.sandbox.autoscaler.step import LoopOverError, Scene, Step, without_taint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.cloud import InstanceInfo, NodeGroup


class Observer(Step):
    """The first half of a loop: everything that is read before anything is decided."""

    def observe(self) -> Scene:
        """Read the cluster and the provider, in the order of the real one.

        Raises:
            LoopOverError: Refresh, a target size or a listing failed.
        """
        scene = self._read_cluster()
        self._list_in_background()
        if not self._memory.cleaned:
            self._clean_old_taints(scene)
        self._before_refresh(scene)
        try:
            self._cloud.refresh()
        except CallError as error:
            raise LoopOverError(str(error)) from error
        groups = self._groups()
        self._sort_nodes(scene)
        self._find_templates(scene, groups)
        self._picture(scene, groups)
        return scene

    def _read_cluster(self) -> Scene:
        scene = Scene(self._cluster.nodes(), self._cluster.pods())
        label = self._cloud.gpu_label()
        startup = self._options.startup_taints
        scene.ready = {objects.name(node): pictures.is_ready(node, startup, label) for node in scene.nodes}
        return scene

    def _list_in_background(self) -> None:
        """The listing that a thread of the real one makes every two minutes, for all groups at once."""
        now = self._clock.monotonic()
        listed = self._memory.instances_listed_at
        if listed is not None and now - listed < self._times.instance_refresh:
            return
        self._memory.instances_listed_at = now
        try:
            groups = self._cloud.groups()
        except CallError:
            return
        for group in groups:
            try:
                self._memory.instances[group.id] = self._cloud.instances(group.id)
            except CallError:
                self._memory.instances[group.id] = []  # an error overwrites what was known

    def _clean_old_taints(self, scene: Scene) -> None:
        """A new process takes the deletion taint (and cordon) off every node that has a group."""
        self._memory.cleaned = True
        for node in scene.nodes:
            if self.group_of(node) is not None and has_taint(node, TO_BE_DELETED):
                self._cluster.change_node(node, without_taint(node, TO_BE_DELETED), unschedulable=False)
        scene.nodes = self._cluster.nodes()

    def _before_refresh(self, scene: Scene) -> None:
        if not self._options.generation.asks_before_refresh:
            return
        for node in scene.nodes:
            if scene.ready.get(objects.name(node)):
                group = self.group_of(node)
                if group is not None and group.id not in self._memory.templates:
                    self.template(group.id)

    def _groups(self) -> list[NodeGroup]:
        try:
            return self._cloud.groups()
        except CallError as error:
            # The real one goes on with no groups at all and forgets what it knew of them.
            self._memory.requests.clear()
            self._memory.templates.clear()
            self.note("NodeGroupsFailed", "", str(error))
            return []

    def _sort_nodes(self, scene: Scene) -> None:
        scene.group_of_node = {}
        for node in scene.nodes:
            group = self.group_of(node)
            if group is not None:
                scene.group_of_node[objects.name(node)] = group.id

    def _find_templates(self, scene: Scene, groups: Sequence[NodeGroup]) -> None:
        """A good live node, else the last good one, else the provider's, else any unready node."""
        now = self._clock.now()
        for node in scene.nodes:
            group_id = scene.group_of_node.get(objects.name(node))
            good = scene.ready[objects.name(node)] and not objects.spec(node).get("unschedulable")
            stable = pictures.stable_for(node, now) >= self._times.template_stability
            if group_id and good and stable and not has_taint(node, TO_BE_DELETED):
                self._memory.templates[group_id] = pictures.as_template(node, group_id)
        scene.templates = {}
        for group in groups:
            template = self._memory.templates.get(group.id) or self.template(group.id)
            if template is None:
                some = [n for n in scene.nodes if scene.group_of_node.get(objects.name(n)) == group.id]
                template = pictures.as_template(some[0], group.id) if some else None
            if template is not None:
                scene.templates[group.id] = template

    def template(self, group: str) -> JsonObject | None:
        """The provider's template of a group; an error means none."""
        try:
            template = self._cloud.template(group)
        except CallError as error:
            self.note("TemplateFailed", group, str(error))
            return None
        return pictures.as_template(template, group) if template is not None else None

    def _picture(self, scene: Scene, groups: Sequence[NodeGroup]) -> None:
        scene.pictures = {}
        now = self._clock.monotonic()
        present: set[str] = set()
        for group in groups:
            picture = self._group_picture(scene, group)
            scene.pictures[group.id] = picture
            instances = self._instances(group.id)
            picture.errors = [instance for instance in instances if instance.error]
            for instance in pictures.unregistered(instances, scene.nodes):
                self.group_of(fake_node(instance.id, "unregistered"))
                present.add(instance.id)
                since = self._memory.unregistered_since.setdefault(instance.id, now)
                overdue = now - since > picture.options.provision_time
                (picture.overdue if overdue else picture.unregistered).append(instance)
            picture.upcoming = max(0, picture.missing())
            remembered = group.id in self._memory.requests and not self._memory.backed_off(group.id, now)
            if self._options.generation.forgets_upcoming and not remembered:
                picture.upcoming = 0
        for gone in set(self._memory.unregistered_since) - present:
            del self._memory.unregistered_since[gone]

    def _group_picture(self, scene: Scene, group: NodeGroup) -> GroupPicture:
        try:
            target = self._cloud.target_size(group.id)
            options = self._cloud.group_options(group.id)
        except CallError as error:
            self._memory.unneeded_since.clear()
            raise LoopOverError(str(error)) from error
        picture = GroupPicture(group, target, options)
        now = self._clock.now()
        for node in scene.nodes:
            if scene.group_of_node.get(objects.name(node)) == group.id:
                ready = scene.ready[objects.name(node)]
                pictures.classify(picture, node, ready=ready, now=now)
        return picture

    def _instances(self, group: str) -> list[InstanceInfo]:
        if group in self._memory.requests:
            self._memory.instances.pop(group, None)  # asked anew in every loop while the group grows
        if group not in self._memory.instances:
            try:
                self._memory.instances[group] = self._cloud.instances(group)
            except CallError as error:
                self._memory.unneeded_since.clear()
                raise LoopOverError(str(error)) from error
        return self._memory.instances[group]
