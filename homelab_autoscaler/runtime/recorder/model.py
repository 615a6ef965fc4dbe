"""Both forms of an Event, as far as a recorder writes them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from homelab_api.meta import KubeModel, KubeObject, MicroTime, ResourceInfo, Time


class ObjectReference(KubeModel):
    """Which object an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str | None = None
    name: str = ""
    uid: str | None = None
    resource_version: str | None = None


class EventSource(KubeModel):
    """Who reports, in the old form."""

    component: str = ""
    host: str | None = None


class EventSeries(KubeModel):
    """How often the same was observed, in the new form."""

    count: int = 0
    last_observed_time: MicroTime | None = None


class CoreEvent(KubeObject):
    """corev1 Event."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("", "v1", "Event", "events")

    involved_object: ObjectReference = Field(default_factory=ObjectReference)
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    source: EventSource = Field(default_factory=EventSource)
    series: EventSeries | None = None
    action: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class EventV1(KubeObject):
    """events.k8s.io/v1 Event: the same stored objects, seen through the newer API."""

    resource: ClassVar[ResourceInfo] = ResourceInfo("events.k8s.io", "v1", "Event", "events")

    regarding: ObjectReference = Field(default_factory=ObjectReference)
    related: ObjectReference | None = None
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    event_time: MicroTime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
