"""Growing: which group gets how many machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler import scale_up
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError
from homelab_autoscaler.sandbox.autoscaler.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.picture import GroupPicture
    from homelab_autoscaler.sandbox.autoscaler.step import Scene

_PRICE_PERIOD: Final = 3600.0


class Grower(Step):
    """Scale-up."""

    def grow(self, scene: Scene) -> bool:
        """Ask for machines if pods wait that nothing present or upcoming takes; whether any pod waits."""
        pods = scale_up.waiting(scene.pods, self._clock.now(), self._times.new_pod_delay)
        if not pods:
            return False
        left = scale_up.place(pods, scene.usable_states())
        if not left:
            return True  # they fit on what is there or on its way
        choices = self._choices(scene, left)
        if not choices:
            for pod in left:
                self.note("NotTriggerScaleUp", objects.name(pod))
            return True
        self._cloud.gpu_types()
        best = self._best(choices)
        if best is None:
            return True
        self._increase(scene, best.group, best.count)
        for group_id in scene.pictures:
            try:
                self._cloud.target_size(group_id)
            except CallError as error:
                self.note("SizeUnknown", group_id, str(error))
        return True

    def _choices(self, scene: Scene, pods: Sequence[JsonObject]) -> list[scale_up.Choice]:
        now = self._clock.monotonic()
        found = []
        for group_id in sorted(scene.pictures):
            picture = scene.pictures[group_id]
            template = scene.templates.get(group_id)
            if template is None or self._memory.backed_off(group_id, now) or not self._group_is_healthy(picture):
                continue
            try:
                target = self._cloud.target_size(group_id)
                options = self._cloud.group_options(group_id)
            except CallError as error:
                self.note("GroupSkipped", group_id, str(error))
                continue
            room = picture.group.max_size - target
            choice = scale_up.estimate(group_id, template, pods, room) if room > 0 else None
            if choice is not None and options.zero_or_max:
                choice = scale_up.Choice(group_id, room, choice.pods, template)
            if choice is not None:
                found.append(choice)
        return found

    def _group_is_healthy(self, picture: GroupPicture) -> bool:
        request = self._memory.requests.get(picture.id)
        expected = picture.target - (request.increase if request else 0) - len(picture.deleted)
        unready = expected - len(picture.ready)
        share = self._options.max_total_unready_percentage / 100
        return unready <= self._options.ok_total_unready or unready <= max(expected, 0) * share

    def _best(self, choices: Sequence[scale_up.Choice]) -> scale_up.Choice | None:
        if self._options.expander == "least-waste":
            return min(choices, key=scale_up.wasted)
        priced = []
        start = self._clock.now().timestamp()
        for choice in choices:
            try:
                nodes = self._cloud.node_price(choice.template, start, _PRICE_PERIOD) * choice.count
                pods = sum(self._cloud.pod_price(start, _PRICE_PERIOD) for _ in choice.pods)
            except CallError as error:
                self.note("NotPriced", choice.group, str(error))
                continue
            priced.append((nodes / pods if pods else nodes, choice.group, choice))
        return min(priced)[2] if priced else None

    def _increase(self, scene: Scene, group: str, count: int) -> None:
        try:
            self._cloud.increase(group, count)
        except CallError as error:
            # Also when only the answer was lost: no request is remembered then.
            self.note("FailedToScaleUp", group, str(error))
            self.fail(scene, group, str(error))
            return
        self._memory.request(group, count, self._clock.monotonic())
        self._memory.instances.pop(group, None)
        self.note("ScaledUp", group, f"+{count}")

    def enforce_min_size(self, scene: Scene) -> None:
        """Grow groups that are below minSize."""
        for picture in scene.pictures.values():
            try:
                missing = picture.group.min_size - self._cloud.target_size(picture.id)
            except CallError:
                continue
            if missing > 0:
                self._increase(scene, picture.id, missing)
