"""Events of the simulators, as `kubectl describe` shows them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal

import structlog

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.client import MERGE_PATCH
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock

_REMEMBERED: Final = 1000
_LONGEST_MESSAGE: Final = 1024

log = structlog.get_logger(__name__)


class EventRecorder:
    """Writes core/v1 Events; a repeated one raises the counter of the first.

    No guarantee: an Event that cannot be written (namespace gone, server away) is dropped, as upstream does.
    """

    def __init__(self, client: ApiClient, clock: SandboxClock, component: str, host: str = "") -> None:
        """Record in the name of a component.

        Args:
            client: Writes the Events.
            clock: Dates them.
            component: `source.component`, for example `kubelet`.
            host: `source.host`, for node agents.
        """
        self._client = client
        self._clock = clock
        self._source = {"component": component, **({"host": host} if host else {})}
        self._known: dict[tuple[str, str, str], tuple[str, int]] = {}

    async def record(self, obj: JsonObject, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write an Event about an object.

        Args:
            obj: The object; kind and apiVersion are needed.
            kind: Normal or Warning.
            reason: CamelCase word.
            message: For people.
        """
        namespace = objects.namespace(obj) or "default"
        now = objects.stamp(self._clock.now())
        identity = (objects.uid(obj) or objects.name(obj), reason, message)
        try:
            if identity in self._known:
                path, count = self._known[identity]
                body: JsonObject = {"count": count + 1, "lastTimestamp": now}
                try:
                    await self._client.patch(path, body, MERGE_PATCH)
                except ApiStatusError as error:
                    if error.code != 404:
                        raise
                else:
                    self._known[identity] = (path, count + 1)
                    return
            self._remember(identity, await self._create(obj, namespace, _texts(kind, reason, message), now))
        except ApiStatusError as error:
            log.debug("event dropped", reason=reason, object=objects.name(obj), error=str(error))

    def _remember(self, identity: tuple[str, str, str], path: str) -> None:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known[identity] = (path, 1)

    async def _create(self, obj: JsonObject, namespace: str, texts: JsonObject, now: str) -> str:
        found = objects.metadata(obj)
        reference = {
            "apiVersion": obj.get("apiVersion"),
            "kind": obj.get("kind"),
            "name": found.get("name"),
            "namespace": found.get("namespace"),
            "uid": found.get("uid"),
            "resourceVersion": found.get("resourceVersion"),
        }
        name = f"{objects.name(obj)}.{secrets.token_hex(8)}"
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {field: value for field, value in reference.items() if value},
            **texts,
            "source": self._source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._source.get("host", ""),
        }
        await self._client.create(resources.path(resources.EVENTS, namespace), body)
        return resources.path(resources.EVENTS, namespace, name)


def _texts(kind: str, reason: str, message: str) -> JsonObject:
    return {"type": kind, "reason": reason, "message": message[:_LONGEST_MESSAGE]}
