"""What `kubectl logs` reads: the API server asks here for the output of a container."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.podrunner.logs import LogQuery, LogStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.clock import SandboxClock


class PodLogs:
    """Serves the output of pods that ran as processes; simulated ones have none, and say so."""

    def __init__(self, store: LogStore, clock: SandboxClock) -> None:
        """Serve a store.

        Args:
            store: Where the output is.
            clock: For `sinceSeconds`.
        """
        self._store = store
        self._clock = clock

    async def __call__(self, pod: JsonObject, container: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The output as lines.

        Args:
            pod: Whose.
            container: Name of the container.
            query: Parameters of the request: follow, tailLines, sinceSeconds, sinceTime, timestamps, limitBytes,
                previous. What is not understood is ignored.
        """
        statuses = objects.status(pod).get("containerStatuses") or []
        if any("running" in (entry.get("state") or {}) for entry in statuses) and not self._store.attempts(
            objects.uid(pod), container
        ):
            return _one_line("[the sandbox simulates this pod: it has no output]\n")
        return self._store.read(objects.uid(pod), container, self.parse(query))

    def parse(self, query: Mapping[str, str]) -> LogQuery:
        """The parameters in typed form."""
        since = objects.parse_time(query.get("sinceTime"))
        seconds = _number(query, "sinceSeconds")
        if seconds is not None:
            since = self._clock.now() - timedelta(seconds=seconds)
        return LogQuery(
            follow=_flag(query, "follow"),
            tail_lines=_number(query, "tailLines"),
            since=since,
            timestamps=_flag(query, "timestamps"),
            limit_bytes=_number(query, "limitBytes"),
            previous=_flag(query, "previous"),
        )


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    return int(text) if text.isdecimal() else None


async def _one_line(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
