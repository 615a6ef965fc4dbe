"""Handlers: from an event to the requests that it should wake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from homelab_autoscaler.runtime.event import UpdateEvent
from homelab_autoscaler.runtime.reconcile import Request

if TYPE_CHECKING:
    from homelab_api.meta import KubeObject
    from homelab_autoscaler.runtime.event import Event

EventMapper: TypeAlias = Callable[["Event[Any]"], Iterable[Request]]


def request_for(obj: KubeObject) -> Request:
    """The request that names this object."""
    return Request(obj.namespace, obj.name)


def enqueue_self(event: Event[Any]) -> Iterable[Request]:
    """The object itself."""
    obj = event.new if isinstance(event, UpdateEvent) else event.object
    return (request_for(obj),)


def enqueue_owner(owner: type[KubeObject], *, controller_only: bool = False) -> EventMapper:
    """The owners of that kind; of an update both the old and the new ones, so that neither misses the change.

    Args:
        owner: kind of the owner; the reference's group and kind must match, its version need not.
        controller_only: only the owner that is marked as controller.
    """
    resource = owner.resource

    def owners(obj: KubeObject) -> list[Request]:
        return [
            Request(obj.namespace if resource.namespaced else "", reference.name)
            for reference in obj.metadata.owner_references
            if reference.kind == resource.kind
            and reference.api_version.rpartition("/")[0] == resource.group
            and (reference.controller or not controller_only)
        ]

    return enqueue_mapped(owners)


def enqueue_mapped(map_object: Callable[[Any], Iterable[Request]]) -> EventMapper:
    """What a function makes of the object; of an update, of both its states. Repetitions within one event collapse.

    The function runs on the informer's thread for that handler: it must be quick, and should use an index rather
    than go through everything.
    """

    def requests(event: Event[Any]) -> Iterable[Request]:
        if isinstance(event, UpdateEvent):
            return dict.fromkeys([*map_object(event.old), *map_object(event.new)])
        return dict.fromkeys(map_object(event.object))

    return requests
