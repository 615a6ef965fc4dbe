"""Channel: events from outside the API, such as a timer, a webhook call or a message, as a source of a controller."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from homelab_api.meta import KubeObject
from homelab_autoscaler.runtime.event import GenericEvent

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=KubeObject)
_log = structlog.get_logger("homelab_autoscaler.runtime.channel")


class Channel(Generic[T]):
    """Hands events to every controller that listens (`ControllerBuilder.channel`).

    Guarantee: when `send` returns, the requests are on the queues; what is sent before a controller starts waits
    there. Non-guarantee: nothing is kept for a controller that begins to listen later, nor over a restart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[GenericEvent[T]], None], ...] = ()

    def listen(self, listener: Callable[[GenericEvent[T]], None]) -> None:
        """Be told of every event from now on, in the sender's thread; must be quick."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def send(self, obj: T) -> None:
        """Something happened that concerns this object. Any thread may call it."""
        event = GenericEvent(obj)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a bug in one listener must reach neither the sender nor the others
                _log.exception("listener failed; the event is lost to it", name=obj.name, namespace=obj.namespace)
