"""What went wrong: requests that time out, instances that fail or never register, sizes that disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.autoscaler.cloud import CallError, fake_node
from homelab_autoscaler.sandbox.autoscaler.step import LoopOverError, Step

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.autoscaler.picture import GroupPicture
    from homelab_autoscaler.sandbox.autoscaler.step import Scene


class Mender(Step):
    """The steps between reading and scaling."""

    def settle_requests(self, scene: Scene) -> None:
        """Drop requests that are met; those that took too long make their group back off."""
        now = self._clock.monotonic()
        for group_id, request in list(self._memory.requests.items()):
            picture = scene.pictures.get(group_id)
            if picture is None or picture.missing() <= 0:
                del self._memory.requests[group_id]
                continue
            if now - request.at <= picture.options.provision_time:
                continue
            self.note("ScaleUpTimedOut", group_id, f"{request.increase} asked, {picture.missing()} missing")
            self.fail(scene, group_id, "timed out")
            del self._memory.requests[group_id]
            if self._options.generation.takes_back_timed_out_increases:
                self._take_back(group_id, request.increase)

    def _take_back(self, group: str, increase: int) -> None:
        try:
            self._cloud.decrease(group, -increase)
        except CallError as error:
            self.note("TakeBackFailed", group, str(error))
        else:
            self.note("TookBack", group, f"-{increase}")

    def note_create_errors(self, scene: Scene) -> None:
        """A new one shrinks the request and makes the group back off, if the group still waits for machines.

        A provider that takes a failed machine out of the target at once has, with the last one missing, no request
        left to shrink: then there is no backoff, and the pods go to whatever can grow, the same group included.
        """
        for picture in scene.pictures.values():
            fresh = [instance for instance in picture.errors if instance.id not in self._memory.errors_seen]
            request = self._memory.requests.get(picture.id)
            if fresh and request is not None and picture.missing() > 0:
                first = fresh[0].error
                self.note("ScaleUpFailed", picture.id, ": ".join(first) if first else "")
                request.increase -= len(fresh)
                if request.increase <= 0:
                    del self._memory.requests[picture.id]
                self.fail(scene, picture.id, "create error")
        self._memory.errors_seen = {i.id for picture in scene.pictures.values() for i in picture.errors}

    def remove_overdue(self, scene: Scene) -> bool:
        """Give back instances that did not register in time, never below minSize; whether any went."""
        removed = False
        for picture in scene.pictures.values():
            if not picture.overdue:
                continue
            try:
                possible = self._cloud.target_size(picture.id) - picture.group.min_size
                self._cloud.group_options(picture.id)
                going = picture.overdue[: max(0, possible)]
                if not going:
                    continue
                self._cloud.delete(picture.id, [fake_node(instance.id, "unregistered") for instance in going])
            except CallError as error:
                self.note("UnregisteredNotRemoved", picture.id, str(error))
                return removed
            for instance in going:
                self.note("UnregisteredRemoved", instance.id)
            self._memory.instances.pop(picture.id, None)
            removed = True
        return removed

    def clean_create_errors(self, scene: Scene) -> None:
        """In every loop until they are gone."""
        for picture in scene.pictures.values():
            if picture.errors:
                self._delete_failed(picture)

    def _delete_failed(self, picture: GroupPicture) -> None:
        failed = picture.errors
        reason = "create-error"
        try:
            if self._cloud.group_options(picture.id).zero_or_max:
                failed, reason = self._cloud.instances(picture.id), ""  # the whole group goes, healthy ones too
            self._cloud.delete(picture.id, [fake_node(instance.id, reason) for instance in failed])
        except CallError as error:
            self.note("CreateErrorNotCleaned", picture.id, str(error))
        else:
            self._memory.instances.pop(picture.id, None)

    def fix_sizes(self, scene: Scene) -> None:
        """A target that nothing accounts for, unchanged for the provision time, is lowered; the loop ends there."""
        now = self._clock.monotonic()
        for picture in scene.pictures.values():
            registered = len(picture.registered) + len(picture.deleted)
            waiting = len(picture.unregistered) + len(picture.overdue)
            difference = registered - picture.target
            if picture.target <= registered + waiting or (registered == 0 and waiting == 0):
                self._memory.mismatch_since.pop(picture.id, None)
                continue
            known, since = self._memory.mismatch_since.get(picture.id, (difference, now))
            if known != difference:
                since = now
            self._memory.mismatch_since[picture.id] = (difference, since)
            if now - since <= picture.options.provision_time:
                continue
            try:
                self._cloud.decrease(picture.id, difference)
            except CallError as error:
                self.note("SizeNotFixed", picture.id, str(error))
            else:
                self.note("SizeFixed", picture.id, str(difference))
            raise LoopOverError(f"the size of {picture.id} was off by {difference}")
