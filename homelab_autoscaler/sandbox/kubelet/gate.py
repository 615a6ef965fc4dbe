"""A client that can be silenced: a hung kubelet, a refused join, a cable pulled out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import Answer, ApiClient


class Gate:
    """Open or closed; those who come to a closed one wait."""

    def __init__(self) -> None:
        """Open."""
        self._open = asyncio.Event()
        self._open.set()

    @property
    def closed(self) -> bool:
        """Whether nothing passes."""
        return not self._open.is_set()

    def open(self) -> None:
        """Let everybody pass."""
        self._open.set()

    def close(self) -> None:
        """Let nobody pass."""
        self._open.clear()

    async def passed(self) -> None:
        """Wait until it is open."""
        await self._open.wait()


class GatedClient:
    """An ApiClient behind a gate: requests wait before they are sent, watch events before they are heard."""

    def __init__(self, client: ApiClient, gate: Gate) -> None:
        """Put a client behind a gate."""
        self._client = client
        self._gate = gate

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.request(method, path, query=query, body=body, content_type=content_type)

    async def get(self, path: str) -> JsonObject:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.get(path)

    async def list(self, path: str, **query: str) -> JsonObject:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.list(path, **query)

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.create(path, body)

    async def patch(self, path: str, body: Any, content_type: str = "application/merge-patch+json") -> JsonObject:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.patch(path, body, content_type)

    async def delete(self, path: str, options: JsonObject | None = None) -> JsonObject:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.delete(path, options)

    async def watch(
        self, path: str, *, resource_version: str | None = None, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[JsonObject]:
        """See ApiClient."""
        await self._gate.passed()
        async for event in self._client.watch(path, resource_version=resource_version, query=query):
            await self._gate.passed()
            yield event
