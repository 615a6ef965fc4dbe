"""Who owns whom, by uid: the memory of the garbage collector. Pure; nothing here asks a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which object, and where it lives."""

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What the collector knows of one object that was seen."""

    identity: Identity
    owners: tuple[JsonObject, ...] = ()
    deleting: bool = False
    finalizers: frozenset[str] = field(default_factory=frozenset)

    @property
    def in_foreground(self) -> bool:
        """It waits for its dependents."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def is_orphaning(self) -> bool:
        """It waits for its dependents to be set free."""
        return self.deleting and ORPHAN in self.finalizers

    def reference_to(self, uid: str) -> JsonObject | None:
        """The owner reference with this uid."""
        return next((reference for reference in self.owners if reference.get("uid") == uid), None)


def entry_of(obj: JsonObject) -> Entry:
    """Read what matters from an object with kind and apiVersion."""
    identity = Identity(
        uid=objects.uid(obj),
        api_version=str(obj.get("apiVersion") or ""),
        kind=str(obj.get("kind") or ""),
        namespace=objects.namespace(obj),
        name=objects.name(obj),
    )
    return Entry(
        identity=identity,
        owners=tuple(objects.owners(obj)),
        deleting=objects.is_deleting(obj),
        finalizers=frozenset(objects.finalizers(obj)),
    )


class OwnerGraph:
    """Every object by uid, and the dependents of each uid, also of uids that were never seen."""

    def __init__(self) -> None:
        """An empty graph."""
        self._entries: dict[str, Entry] = {}
        self._dependents: dict[str, set[str]] = {}

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._entries)

    def get(self, uid: str) -> Entry | None:
        """The object with this uid, if it is there."""
        return self._entries.get(uid)

    def dependents(self, uid: str) -> list[Entry]:
        """The objects that name this uid as an owner."""
        return [self._entries[dependent] for dependent in sorted(self._dependents.get(uid, ()))]

    def blocking(self, uid: str) -> list[Entry]:
        """The dependents that hold a foreground deletion of this uid."""
        return [
            dependent
            for dependent in self.dependents(uid)
            if (reference := dependent.reference_to(uid)) is not None and reference.get("blockOwnerDeletion")
        ]

    def put(self, obj: JsonObject) -> set[str]:
        """An object appeared or changed.

        Returns:
            The uids to look at again.
        """
        entry = entry_of(obj)
        uid = entry.identity.uid
        old = self._entries.get(uid)
        self._entries[uid] = entry
        before = {str(reference["uid"]) for reference in old.owners} if old else set()
        after = {str(reference["uid"]) for reference in entry.owners}
        for owner in before - after:
            self._unlink(owner, uid)
        for owner in after - before:
            self._dependents.setdefault(owner, set()).add(uid)
        wake: set[str] = set()
        if after and (old is None or before != after or old.owners != entry.owners):
            wake.add(uid)
        if entry.in_foreground or entry.is_orphaning:
            wake.add(uid)
        wake |= self._waiting(before | after)
        return wake

    def remove(self, uid: str) -> set[str]:
        """An object is gone.

        Returns:
            The uids to look at again: its dependents, and owners that waited for it.
        """
        entry = self._entries.pop(uid, None)
        if entry is None:
            return set()
        wake = set(self._dependents.get(uid, ()))
        owners = {str(reference["uid"]) for reference in entry.owners}
        for owner in owners:
            self._unlink(owner, uid)
        return wake | self._waiting(owners)

    def _unlink(self, owner: str, uid: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is not None:
            dependents.discard(uid)
            if not dependents:
                del self._dependents[owner]

    def _waiting(self, owners: Iterable[str]) -> set[str]:
        return {
            owner
            for owner in owners
            if (entry := self._entries.get(owner)) is not None and (entry.in_foreground or entry.is_orphaning)
        }
