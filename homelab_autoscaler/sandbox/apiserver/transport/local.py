"""The client inside the process: the same requests without a socket.

Requests go through the whole pipeline, admission, RBAC, faults and write log included, as the user that the client was
made for. Bodies are encoded and decoded, so nobody can change what the store holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from homelab_autoscaler.sandbox.apiserver.request import ApiRequest, ApiResponse, User
from homelab_autoscaler.sandbox.client import Answer, ApiClient, ConnectionLostError, Query, encode_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping


class LocalClient(ApiClient):
    """An ApiClient of a server in this process."""

    def __init__(self, handle: Callable[[ApiRequest], Awaitable[ApiResponse]], user: User) -> None:
        self._handle = handle
        self._user = user

    @property
    def user(self) -> User:
        """Whom the client acts as."""
        return self._user

    def _request(
        self, method: str, path: str, query: Query | None, body: Any, content_type: str, accept: str
    ) -> ApiRequest:
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        agent = self._user.name.rpartition(":")[2] or "local"
        headers = {"content-type": content_type, "accept": accept, "user-agent": f"{agent}/local"}
        quoted = quote(path, safe="/:%")
        return ApiRequest(method, quoted, encode_query(query), headers, data, {}, self._user)

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
        """Send one request; errors come back as answers.

        Raises:
            ConnectionLostError: an injected fault closed the connection: whether the request
                was carried out is unknown.
        """
        request = self._request(method, path, query, body, content_type, accept)
        if headers:
            request.headers = {**request.headers, **{key.lower(): value for key, value in headers.items()}}
        response = await self._handle(request)
        if response.abort:
            raise ConnectionLostError(f"{method} {path}: the connection was closed before the answer")
        data = response.body
        if response.stream is not None:
            data = b"".join([chunk async for chunk in response.stream])
        return Answer(response.status, tuple(response.headers), data)

    async def _stream(self, path: str, query: Query) -> AsyncIterator[bytes]:
        response = await self._handle(self._request("GET", path, query, None, "", "application/json"))
        if response.abort:
            raise ConnectionLostError(f"GET {path}: the connection was closed before the answer")
        if response.stream is None:
            self.raise_for(Answer(response.status, tuple(response.headers), response.body))
        stream = response.stream
        try:
            async for chunk in stream:
                for line in chunk.splitlines():
                    yield line
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
