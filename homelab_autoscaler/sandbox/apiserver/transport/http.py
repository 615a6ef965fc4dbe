"""HTTP/1.1 on loopback: aiohttp's low-level server with one handler."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from aiohttp import web

from homelab_autoscaler.sandbox.apiserver.presentation.answers import answer
from homelab_autoscaler.sandbox.apiserver.request import ApiRequest, ApiResponse
from homelab_autoscaler.sandbox.apiserver.semantics.body import MAX_BYTES, too_large
from homelab_autoscaler.sandbox.status import failure

if TYPE_CHECKING:
    import ssl

Handler = Callable[[ApiRequest], Awaitable[ApiResponse]]
# How long a client may take to send a body, and how long an unused connection is kept.
_BODY_TIMEOUT = 30.0
_KEEPALIVE = 120.0


class HttpServer:
    """Listens and turns HTTP into ApiRequests."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._runner: web.ServerRunner | None = None
        self._streams: set[asyncio.Task[object]] = set()
        self.url = ""
        self._host = ""

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> str:
        """Listen on an address, over TLS if a context is given; port 0 takes a free one. Returns the URL."""
        server = web.Server(
            self._serve,
            keepalive_timeout=_KEEPALIVE,
            handler_cancellation=True,
            access_log=None,
            max_line_size=65536,
            max_field_size=65536,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
        site = web.SockSite(self._runner, listener, backlog=1024, ssl_context=tls)
        await site.start()
        self._host = host
        bound = listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"{'https' if tls else 'http'}://{shown}:{bound[1]}"
        return self.url

    async def stop(self) -> None:
        """Close the socket and all connections."""
        for task in list(self._streams):
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if _from_a_web_page(request.headers) or not self._known_host(request.host):
            return await self._respond(request, _no_web_pages())
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                body = await _body(request)
        except TimeoutError:
            return web.Response(status=408, text="the request's body did not come in time\n")
        if body is None:
            return await self._respond(request, _too_large())
        raw_path, _, raw_query = request.raw_path.partition("?")
        headers: dict[str, str] = {}
        multi: dict[str, list[str]] = {}
        for name, value in request.headers.items():
            lower = name.lower()
            headers.setdefault(lower, value)
            if lower.startswith("impersonate-"):
                multi.setdefault(lower, []).append(value)
        query = parse_qs(raw_query, keep_blank_values=True) if raw_query else {}
        answer = await self._handle(ApiRequest(request.method, raw_path, query, headers, body, multi))
        return await self._respond(request, answer)

    def _known_host(self, host: str) -> bool:
        """Whether a Host header is one that a local client sends.

        A page whose name was made to point at 127.0.0.1 sends that name. Addresses cannot be re-pointed.
        """
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if name in {"localhost", self._host.lower()} or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _respond(self, request: web.BaseRequest, answer: ApiResponse) -> web.StreamResponse:
        if answer.abort:
            _reset(request)
            return web.Response(status=500)
        if answer.stream is not None:
            return await self._stream(request, answer)
        response = web.Response(status=answer.status, body=answer.body)
        response.headers["Content-Type"] = answer.content_type
        for name, value in answer.headers:
            response.headers.add(name, value)
        return response

    async def _stream(self, request: web.BaseRequest, answer: ApiResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        response.headers["Content-Type"] = answer.content_type
        for name, value in answer.headers:
            response.headers.add(name, value)
        response.enable_chunked_encoding()
        assert answer.stream is not None
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            await response.prepare(request)
            async for chunk in answer.stream:
                if chunk:
                    await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client has gone, or the server stops: either way nobody reads on.
            _reset(request)
        finally:
            self._streams.discard(task)
            close = getattr(answer.stream, "aclose", None)
            if close is not None:
                with contextlib.suppress(RuntimeError):
                    await close()
        return response


async def _body(request: web.BaseRequest) -> bytes | None:
    """The whole body; None when it is larger than any object may be."""
    if not request.body_exists:
        return b""
    if request.content_length is not None and request.content_length > 4 * MAX_BYTES:
        return None
    chunks = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size <= MAX_BYTES:
            chunks.append(chunk)
        elif size > 4 * MAX_BYTES:
            return None
    return b"".join(chunks) if size <= MAX_BYTES else None


def _from_a_web_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this for a page.

    A server without users does what anybody on this machine asks, and Pods are processes here: no page that happens to
    be open in a browser may be among those who ask.
    """
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none"


def _no_web_pages() -> ApiResponse:
    error = failure(
        403, "Forbidden", "forbidden: this server does not answer web pages or names that it does not know", {}
    )
    return answer(error.status, error.code)


def _too_large() -> ApiResponse:
    error = too_large()
    return answer(error.status, error.code)


def _reset(request: web.BaseRequest) -> None:
    transport = request.transport
    if transport is not None:
        transport.abort()
