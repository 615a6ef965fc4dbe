"""A client that can be silenced: a hung kubelet, a refused join, a cable pulled out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.client import Answer, ApiClient, Query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


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


class GatedClient(ApiClient):
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
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """See ApiClient."""
        await self._gate.passed()
        return await self._client.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, headers=headers
        )

    async def _stream(self, path: str, query: Query) -> AsyncIterator[bytes]:
        await self._gate.passed()
        async for line in self._client._stream(path, query):  # noqa: SLF001 - the same interface on both sides
            await self._gate.passed()
            yield line
