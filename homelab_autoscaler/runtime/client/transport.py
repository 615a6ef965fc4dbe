"""HTTP to one API server: a connection pool, the Authorization header, timeouts, and streams that can be cut.

Knows nothing of kinds or retries. Every failure to get an answer is a TransportError.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import urllib3

from homelab_autoscaler.runtime.client.connections import Connection, Connections
from homelab_autoscaler.runtime.client.exchange import exchange, open_stream
from homelab_autoscaler.runtime.errors import StallError, TransportError

if TYPE_CHECKING:
    from urllib3.connectionpool import HTTPConnectionPool

    from homelab_autoscaler.runtime.client.ratelimit import TokenBucket
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.config import ClientConfig

DEFAULT_POOL_SIZE: Final = 64
DEFAULT_TIMEOUT: Final = 15.0
CONNECT_TIMEOUT: Final = 5.0
CREDENTIAL_AGE: Final = 5.0
"""Seconds for which a credential is sent without asking for it again; a refusal (401) ends them."""

_NOT_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.LocationParseError,
)


class Reply(NamedTuple):
    """A whole HTTP reply; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RequestSeen(NamedTuple):
    """One attempt of a request, as told to an observer.

    Attributes:
        method: GET, POST…
        status: of the reply; 0 when there was none.
        seconds: until the whole reply (of a stream: until its head) was there.
        sent: bytes of the body.
        received: bytes of the reply's body, 0 for a stream.
        throttled: seconds that the client's own limit held it back.
        attempt: 1, or more for a repetition.
    """

    method: str
    status: int
    seconds: float
    sent: int
    received: int
    throttled: float
    attempt: int


Observer = Callable[[RequestSeen], None]


class _Common(NamedTuple):
    """Headers that all requests have, also as they are sent, and since when they are known."""

    headers: dict[str, str]
    lines: str
    since: float


class Transport:
    """A pool of connections to one API server, shared by any number of threads.

    Args:
        config: where and as whom.
        clock: for latencies and the age of credentials.
        pool_size: idle connections that are kept.
        limiter: holds requests back; None for no limit.
        user_agent: what the server's logs say.
        observer: told of each request.
        lookup_observer: told the seconds of each name resolution; it costs a second one per new connection.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        pool_size: int = DEFAULT_POOL_SIZE,
        limiter: TokenBucket | None = None,
        user_agent: str = "homelab-autoscaler",
        observer: Observer | None = None,
        on_date: Callable[[str | None, float], None] | None = None,
        lookup_observer: Callable[[float], None] | None = None,
    ) -> None:
        self.host = config.host
        self._authorization = config.authorization
        self._clock = clock
        self._limiter = limiter
        self._pool: HTTPConnectionPool = config.make_pool(pool_size)
        self._lookup_observer = lookup_observer
        self._connections = Connections(self._pool, pool_size, self._look_up if lookup_observer else None)
        parsed = urllib3.util.parse_url(config.host)
        self._base = {
            "Host": parsed.netloc or "",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }
        self._known: _Common | None = None
        self._observer = observer
        self._on_date = on_date
        self._prefix = (parsed.path or "").rstrip("/")

    def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = DEFAULT_TIMEOUT,
        attempt: int = 1,
    ) -> Reply:
        """One request, one reply of any status. `attempt` is told to the observer.

        Raises:
            TransportError: there was no reply within `timeout` seconds.
        """
        throttled = self._throttle()
        send = self._exchange if self._pool.proxy is None else self._through_proxy
        started = self._clock.monotonic()
        sent = len(body) if body else 0
        try:
            reply = send(method, target, body, content_type, timeout)
        except TransportError:
            self._tell(method, 0, started, sent, 0, throttled, attempt)
            raise
        if self._on_date is not None:
            self._on_date(reply.headers.get("date"), started)
        if reply.status == 401:
            self._known = None
        self._tell(method, reply.status, started, sent, len(reply.body), throttled, attempt)
        return reply

    def stream(self, target: str, *, inactivity: float) -> Stream | Reply:
        """GET that stays open; a reply of 400 or more is returned whole.

        Args:
            target: path and query.
            inactivity: seconds of silence after which reading raises StallError.

        Raises:
            TransportError: the connection could not be made.
        """
        throttled = self._throttle()
        open_ = self._open_stream if self._pool.proxy is None else self._stream_through_proxy
        started = self._clock.monotonic()
        try:
            status, opened = open_(target, inactivity)
        except TransportError:
            self._tell("GET", 0, started, 0, 0, throttled, 1)
            raise
        if status == 401:
            self._known = None
        self._tell("GET", status, started, 0, 0, throttled, 1)
        return opened

    def close(self) -> None:
        """Drop idle connections. Requests under way are not cut."""
        self._connections.close()
        self._pool.close()

    def _exchange(self, method: str, target: str, body: bytes | None, content_type: str, timeout: float) -> Reply:
        request = self._request(method, target, body, content_type)
        connection = None
        sent = False
        keep = False
        try:
            connection = self._connections.take(min(CONNECT_TIMEOUT, timeout))
            connection.timeout_after(timeout)
            sent = True
            status, headers, content, keep = exchange(connection.sock, request)
            return Reply(status, headers, content)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise self._unanswered(method, target, error, sent=sent) from error
        finally:
            if connection is not None:
                if keep:
                    self._connections.give(connection)
                else:
                    connection.close()

    def _open_stream(self, target: str, inactivity: float) -> tuple[int, Stream | Reply]:
        request = self._request("GET", target, None, "")
        connection = None
        sent = False
        try:
            connection = self._connections.take(min(CONNECT_TIMEOUT, inactivity))
            connection.timeout_after(inactivity)
            sent = True
            status, headers, pieces = open_stream(connection.sock, request)
            if status < 400:
                return status, Stream(target, pieces, connection.cut, connection.close)
            reply = Reply(status, headers, b"".join(pieces))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if connection is not None:
                connection.close()
            raise self._unanswered("GET", target, error, sent=sent) from error
        connection.close()
        return status, reply

    def _request(self, method: str, target: str, body: bytes | None, content_type: str) -> bytes:
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._common().lines}"
        if body is not None:
            return f"{head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        return (f"{head}\r\n" if method == "GET" else f"{head}Content-Length: 0\r\n\r\n").encode("latin-1")

    def _through_proxy(self, method: str, target: str, body: bytes | None, content_type: str, timeout: float) -> Reply:
        response = self._open(method, target, body, content_type, timeout, preload=True)
        return Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, response.data)

    def _stream_through_proxy(self, target: str, inactivity: float) -> tuple[int, Stream | Reply]:
        response = self._open("GET", target, None, "", inactivity, preload=False)
        if response.status < 400:
            connection = Connection(response.connection)
            return response.status, Stream(target, response.stream(65536), connection.cut, response.close)
        try:
            reply = Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, response.data)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unanswered("GET", target, error, sent=True) from error
        return response.status, reply

    def _open(
        self, method: str, target: str, body: bytes | None, content_type: str, timeout: float, *, preload: bool
    ) -> Any:
        try:
            return self._pool.urlopen(
                method,
                self._prefix + target,
                body=body,
                headers=self._common().headers
                if body is None
                else {**self._common().headers, "Content-Type": content_type},
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout),
                preload_content=preload,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unanswered(method, target, error, sent=not isinstance(error, _NOT_SENT)) from error

    def _common(self) -> _Common:
        # Asking for the credential means files, plugins, and in the official loaders a good part of a millisecond.
        now = self._clock.monotonic()
        common = self._known
        if common is None or now - common.since >= CREDENTIAL_AGE:
            credential = self._authorization()
            headers = {**self._base, "Authorization": credential} if credential else self._base
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            common = self._known = _Common(headers, lines, now)
        return common

    def _look_up(self, host: str, port: int) -> None:
        """Measure how long it takes to resolve the server's name; an address needs no resolving."""
        assert self._lookup_observer is not None
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            started = self._clock.monotonic()
            with contextlib.suppress(OSError):  # the connection that follows tells it better
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._lookup_observer(self._clock.monotonic() - started)

    def _throttle(self) -> float:
        delay = 0.0 if self._limiter is None else self._limiter.reserve()
        if delay > 0:
            self._clock.sleep(delay)
        return delay

    def _tell(  # noqa: PLR0917 - the fields of one observation
        self, method: str, status: int, started: float, sent: int, received: int, throttled: float, attempt: int
    ) -> None:
        if self._observer is not None:
            seconds = self._clock.monotonic() - started
            self._observer(RequestSeen(method, status, seconds, sent, received, throttled, attempt))

    def _unanswered(self, method: str, target: str, error: Exception, *, sent: bool) -> TransportError:
        return TransportError(f"{method} {self.host}{target}: {str(error) or type(error).__name__}", sent=sent)


class Stream:
    """An open reply body, read line by line by one thread; `close` may be called from any other.

    Args:
        target: what was asked for, for messages.
        pieces: of the body, as they arrive.
        cut: ends the connection under a reader and wakes it.
        release: gives the connection back.
    """

    def __init__(
        self, target: str, pieces: Iterable[bytes], cut: Callable[[], None], release: Callable[[], None]
    ) -> None:
        self._target = target
        self._pieces = pieces
        self._cut = cut
        self._release = release
        self._closed = threading.Event()
        self._reading = False

    def lines(self) -> Iterator[bytes]:
        """Complete lines without their end, as they arrive; ends when the server or `close` ends the stream.

        A last line without an end is dropped: the stream was cut in it.

        Raises:
            StallError: nothing came for longer than the inactivity limit.
            TransportError: the connection broke.
        """
        rest = b""
        self._reading = True
        try:
            for piece in self._pieces:
                if self._closed.is_set():
                    return
                parts = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
                rest = parts.pop()
                for line in parts:
                    if line:
                        yield line
        except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
            if not self._closed.is_set():
                raise StallError(f"GET {self._target}: nothing was received for too long") from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # Closing the socket under a reader surfaces as any of these; a close of our own is a normal end.
            if not self._closed.is_set():
                raise TransportError(f"GET {self._target}: {error}") from error
        finally:
            self._closed.set()
            self._free()

    def close(self) -> None:
        """End the stream now; a reader that waits in another thread is woken. Harmless when repeated."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._cut()
        if not self._reading:  # else the reader does: under its feet the number of the socket could become another's
            self._free()

    def _free(self) -> None:
        with contextlib.suppress(Exception):
            self._release()
