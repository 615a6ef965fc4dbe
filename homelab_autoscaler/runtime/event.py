"""What an informer tells its handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from homelab_api.meta import KubeObject

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class CreateEvent(Generic[T]):
    """The object is new to the store.

    Attributes:
        initial: it was there when the handler began to listen; most likely nothing happened to it now.
    """

    object: T
    initial: bool = False


@dataclass(frozen=True, slots=True)
class UpdateEvent(Generic[T]):
    """The object was in the store and is told again.

    The uids may differ: the object was deleted and created again while we were not looking.
    """

    old: T
    new: T

    @property
    def unchanged(self) -> bool:
        """A resync: same resourceVersion, nothing happened on the server."""
        return self.old.metadata.resource_version == self.new.metadata.resource_version


@dataclass(frozen=True, slots=True)
class DeleteEvent(Generic[T]):
    """The object is gone.

    Attributes:
        object: its last known state; the very last one unless `state_unknown`.
        state_unknown: the deletion itself was missed and found by a list, so `object` may be old.
    """

    object: T
    state_unknown: bool = False


@dataclass(frozen=True, slots=True)
class GenericEvent(Generic[T]):
    """Something outside the API (a timer, a webhook call) that concerns an object."""

    object: T


Event: TypeAlias = CreateEvent[T] | UpdateEvent[T] | DeleteEvent[T] | GenericEvent[T]
