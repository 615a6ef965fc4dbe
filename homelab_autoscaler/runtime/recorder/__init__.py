"""Events about objects: `EventRecorder` takes them, a sink writes them."""

from homelab_autoscaler.runtime.recorder.correlator import COMBINED_PREFIX, Correlator, CorrelatorOptions, Observation
from homelab_autoscaler.runtime.recorder.model import CoreEvent, EventV1, ObjectReference
from homelab_autoscaler.runtime.recorder.recorder import EventRecorder, EventSink, EventType
from homelab_autoscaler.runtime.recorder.sinks import CoreSink, SeriesSink

__all__ = [
    "COMBINED_PREFIX",
    "CoreEvent",
    "CoreSink",
    "Correlator",
    "CorrelatorOptions",
    "EventRecorder",
    "EventSink",
    "EventType",
    "EventV1",
    "ObjectReference",
    "Observation",
    "SeriesSink",
]
