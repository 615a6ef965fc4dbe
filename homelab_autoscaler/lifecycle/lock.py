"""The coordination lock: four annotations on a slot that say which operation owns it, whose it is, and until when.

It is a belt beside the real fences (one live claim, deterministic Job names, suspended Jobs and the second read).
Guarantee: taking and renewing are compare-and-set, so two processes never both think that they took it. Non-guarantee:
it does not stop a paused process whose lock expired; the second read does. Source: state management, "The
coordination lock is a belt"; model section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.meta import format_time
from homelab_api.v2alpha1 import Node
from homelab_autoscaler.lifecycle import annotated
from homelab_autoscaler.runtime import InvalidError, JsonPatch, MergePatch, NotFoundError

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import Client, Clock, Leadership


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class LockKind(StrEnum):
    """The operation that owns a slot."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"


class LockRefusedError(Exception):
    """Another operation owns the slot; nothing was written.

    Attributes:
        until: when that lock expires at the latest: the time to ask again.
    """

    def __init__(self, slot: str, held: Lock) -> None:
        super().__init__(f"slot {slot} is locked for {held.kind} by {held.owner} until {format_time(held.expires_at)}")
        self.until = held.expires_at


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as it stands on a slot."""

    kind: str
    owner: str
    taken_at: datetime
    timeout: float

    @property
    def expires_at(self) -> datetime:
        """When it stops binding anyone."""
        return self.taken_at + timedelta(seconds=self.timeout)

    @property
    def generation(self) -> tuple[str, int]:
        """Identity and lease transitions of the owner; -1 for an owner that did not say."""
        identity, _, text = self.owner.rpartition("/")
        transitions = annotated.count(text)
        return identity, -1 if transitions is None else transitions


def read_lock(slot: Node) -> Lock | None:
    """The lock on a slot; None without one. An unreadable one counts as taken at the epoch, so it has expired."""
    marks = slot.metadata.annotations
    kind = marks.get(names.ANNOTATION_LOCK)
    if kind is None:
        return None
    owner = marks.get(names.ANNOTATION_LOCK_OWNER, "")
    taken_at = annotated.instant(marks.get(names.ANNOTATION_LOCK_TIMESTAMP))
    timeout = annotated.seconds(marks.get(names.ANNOTATION_LOCK_TIMEOUT))
    if taken_at is None or timeout is None:
        return Lock(kind, owner, _EPOCH, 0.0)
    return Lock(kind, owner, taken_at, timeout)


class Locks:
    """Takes, renews and gives back locks under this process's identity and lease."""

    def __init__(self, client: Client, clock: Clock, leadership: Leadership, timeout: float) -> None:
        self._client = client
        self._clock = clock
        self._leadership = leadership
        self._timeout = timeout

    @property
    def owner(self) -> str:
        """`<identity>/<leaseTransitions>` of this process."""
        return f"{self._leadership.identity}/{self._leadership.transitions}"

    def holds(self, slot: Node, kind: LockKind) -> bool:
        """Whether the slot, as it was read, carries our lock for this operation."""
        lock = read_lock(slot)
        return lock is not None and lock.kind == kind and lock.owner == self.owner

    def ours_to_take(self, lock: Lock) -> bool:
        """Whether we may take over: it is ours, it expired, or a leader before us left it.

        An equal or foreign lease generation is waited out: it may be a second manager that runs by mistake. Not for
        longer than a lock can last, though: one that was taken further ahead of now bears the time of a wrong clock.
        """
        now = self._clock.now()
        if lock.owner == self.owner or now >= lock.expires_at or lock.taken_at > now + timedelta(seconds=lock.timeout):
            return True
        _, transitions = lock.generation
        return 0 <= transitions < self._leadership.transitions

    def acquire(self, slot: Node, kind: LockKind, beside: dict[str, str] | None = None) -> Node:
        """Take the lock, bound to the slot as it was read.

        Args:
            slot: the slot as read.
            kind: the operation.
            beside: further annotations for the same write.

        Returns:
            The slot with the lock; the slot as it was if we hold a fresh one and there is nothing else to write.

        Raises:
            LockRefusedError: somebody else's lock binds; nothing is written.
            ConflictError: the slot changed since it was read; nothing is written.
        """
        lock = read_lock(slot)
        if lock is not None and not self.ours_to_take(lock):
            raise LockRefusedError(slot.name, lock)
        if lock is not None and not beside and self.holds(slot, kind) and not self._due(lock):
            return slot
        body = {
            "metadata": {
                "resourceVersion": slot.metadata.resource_version,
                "annotations": {
                    names.ANNOTATION_LOCK: kind.value,
                    names.ANNOTATION_LOCK_OWNER: self.owner,
                    names.ANNOTATION_LOCK_TIMESTAMP: format_time(self._clock.now()),
                    names.ANNOTATION_LOCK_TIMEOUT: f"{self._timeout:g}",
                    **(beside or {}),
                },
            }
        }
        return self._client.patch(Node, slot.name, slot.namespace, MergePatch(body))

    def renew(self, slot: Node, kind: LockKind) -> None:
        """Extend our lock on a running operation if half of it is over; take it over if it may be taken.

        A process that finds an operation of the one before it running carries it on, and its lock with it. A lock of
        somebody who may still act, of another operation, or none at all, stays as it is.
        """
        lock = read_lock(slot)
        if lock is None or lock.kind != kind or not self.ours_to_take(lock):
            return
        if lock.owner == self.owner and not self._due(lock):
            return
        marks = {
            names.ANNOTATION_LOCK_OWNER: self.owner,
            names.ANNOTATION_LOCK_TIMESTAMP: format_time(self._clock.now()),
            names.ANNOTATION_LOCK_TIMEOUT: f"{self._timeout:g}",
        }
        self._replace(
            slot, lock.owner, [{"op": "add", "path": _pointer(mark), "value": value} for mark, value in marks.items()]
        )

    def release(self, slot: Node) -> Node:
        """Give the lock back if it is ours; a lock of somebody else, or none, is left alone.

        The slot only names the object: a cached one may not show our own lock yet, so the server is the judge.

        Returns:
            The slot as it is after the write; as it was given if nothing was written.
        """
        return self._remove(slot, self.owner)

    def clear_stale(self, slot: Node) -> bool:
        """Remove a lock that no operation stands behind any more; True if there was one that we may take.

        The caller has made sure that nothing of the slot is under way.
        """
        lock = read_lock(slot)
        if lock is None or not self.ours_to_take(lock):
            return False
        self._remove(slot, lock.owner)
        return True

    def _remove(self, slot: Node, owner: str) -> Node:
        marks = (
            names.ANNOTATION_LOCK,
            names.ANNOTATION_LOCK_OWNER,
            names.ANNOTATION_LOCK_TIMESTAMP,
            names.ANNOTATION_LOCK_TIMEOUT,
        )
        return self._replace(slot, owner, [{"op": "remove", "path": _pointer(mark)} for mark in marks])

    def _due(self, lock: Lock) -> bool:
        return self._clock.now() >= lock.taken_at + timedelta(seconds=lock.timeout / 2)

    def _replace(self, slot: Node, owner: str, operations: list[dict[str, str]]) -> Node:
        test = {"op": "test", "path": _pointer(names.ANNOTATION_LOCK_OWNER), "value": owner}
        try:
            return self._client.patch(Node, slot.name, slot.namespace, JsonPatch([test, *operations]))
        except (InvalidError, NotFoundError):
            return slot


def _pointer(annotation: str) -> str:
    """JSON pointer to an annotation."""
    return "/metadata/annotations/" + annotation.replace("~", "~0").replace("/", "~1")
