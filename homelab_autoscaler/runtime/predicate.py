"""Predicates: which events are worth a pass. They do not reduce what the cache stores.

A predicate is asked before the handler; several are combined with `all_of`, `any_of` and `negate`. Hiding an event
never hides the state: the next event of the object shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from homelab_autoscaler.runtime.event import DeleteEvent, UpdateEvent

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.event import Event

Predicate: TypeAlias = Callable[["Event[Any]"], bool]


def all_of(*predicates: Predicate) -> Predicate:
    """True when all are; with none, always."""
    return lambda event: all(predicate(event) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """True when one is; with none, never."""
    return lambda event: any(predicate(event) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """The contrary."""
    return lambda event: not predicate(event)


def objects(test: Callable[[Any], bool]) -> Predicate:
    """By the object: of an update either state suffices, so that an object that begins or ceases to match passes."""

    def predicate(event: Event[Any]) -> bool:
        if isinstance(event, UpdateEvent):
            return test(event.old) or test(event.new)
        return test(event.object)

    return predicate


def labels(selector: Mapping[str, str]) -> Predicate:
    """Objects that have all these labels (before or after an update)."""
    wanted = selector.items()
    return objects(lambda obj: wanted <= obj.metadata.labels.items())


def in_namespace(namespace: str) -> Predicate:
    """Objects of one namespace."""
    return objects(lambda obj: obj.namespace == namespace)


def changed(*parts: Callable[[Any], object]) -> Predicate:
    """Updates in which one of these parts of the object differs; every other event.

    Another uid under the same name always counts: nothing of the new object was seen before.
    """

    def predicate(event: Event[Any]) -> bool:
        if not isinstance(event, UpdateEvent):
            return True
        return event.old.uid != event.new.uid or any(part(event.old) != part(event.new) for part in parts)

    return predicate


def generation_changed(event: Event[Any]) -> bool:
    """Updates of the spec, and every other event.

    It hides changes of status, labels, annotations, owners and finalizers: combine it with `labels_changed` or
    `annotations_changed` where those matter, and know that a wiped status does not wake anybody. The start of a
    deletion raises the generation, so it passes.
    """
    return _generation(event)


_generation = changed(lambda obj: obj.metadata.generation)


def labels_changed(event: Event[Any]) -> bool:
    """Updates of labels, and every other event."""
    return _labels(event)


_labels = changed(lambda obj: obj.metadata.labels)


def annotations_changed(event: Event[Any]) -> bool:
    """Updates of annotations, and every other event."""
    return _annotations(event)


_annotations = changed(lambda obj: obj.metadata.annotations)


def version_changed(event: Event[Any]) -> bool:
    """Everything but resyncs."""
    return not (isinstance(event, UpdateEvent) and event.unchanged)


def no_deletes(event: Event[Any]) -> bool:
    """Everything but the final disappearance."""
    return not isinstance(event, DeleteEvent)
