"""Clients for synchronous code: each call runs on an event loop of another thread and is waited for."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import Answer, ApiClient

T = TypeVar("T")
_DEADLINE = 60.0


class SyncClient:
    """An ApiClient for synchronous code."""

    def __init__(self, client: ApiClient, call: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client = client
        self._call = call

    def request(self, method: str, path: str, **options: Any) -> Answer:
        """Send one request as ApiClient.request does; errors come back as answers."""
        found: Answer = self._call(self._client.request(method, path, **options))
        return found

    def get(self, path: str, **query: str | int | bool | None) -> JsonObject:
        """Read an object. Raises ApiStatusError, as all calls do."""
        found: JsonObject = self._call(self._client.get(path, **query))
        return found

    def list(self, path: str, **query: str | int | bool | None) -> JsonObject:
        """Read a list."""
        found: JsonObject = self._call(self._client.list(path, **query))
        return found

    def create(self, path: str, body: JsonObject, **query: str | int | bool | None) -> JsonObject:
        """POST."""
        found: JsonObject = self._call(self._client.create(path, body, **query))
        return found

    def update(self, path: str, body: JsonObject, **query: str | int | bool | None) -> JsonObject:
        """PUT."""
        found: JsonObject = self._call(self._client.update(path, body, **query))
        return found

    def patch(
        self,
        path: str,
        body: Any,
        content_type: str = "application/merge-patch+json",
        **query: str | int | bool | None,
    ) -> JsonObject:
        """PATCH; a merge patch unless told otherwise."""
        found: JsonObject = self._call(self._client.patch(path, body, content_type, **query))
        return found

    def delete(self, path: str, options: JsonObject | None = None, **query: str | int | bool | None) -> JsonObject:
        """DELETE."""
        found: JsonObject = self._call(self._client.delete(path, options, **query))
        return found

    def watch(
        self,
        path: str,
        start: str | None = None,
        *,
        until: Callable[[JsonObject], bool] | None = None,
        **query: str | int | bool | None,
    ) -> tuple[JsonObject, ...]:
        """The events of a watch, up to the first for which `until` holds, else until the server ends it.

        Args:
            path: of the collection.
            start: resourceVersion; without one the watch begins with what is there.
            until: tells the last event; without it `timeoutSeconds` says when the server ends.
            query: further parameters.
        """

        async def collect() -> tuple[JsonObject, ...]:
            found = []
            stream = self._client.watch(path, resource_version=start, query=query)
            async for event in stream:
                found.append(event)
                if until is not None and until(event):
                    break
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator, typed as its narrower interface
            return tuple(found)

        events: tuple[JsonObject, ...] = self._call(collect())
        return events


class BackgroundLoop:
    """An event loop on a thread, from `with` to its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the loop; what still runs on it is cancelled first."""
        assert self._loop is not None
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE)
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it.

        Raises:
            TimeoutError: it takes longer than a minute.
        """
        assert self._loop is not None, "enter the loop first"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_DEADLINE)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
