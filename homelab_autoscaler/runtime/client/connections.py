"""Connections to one API server that are kept for the next request.

How a connection is made (TLS, certificates, keep-alive options) is urllib3's business; handing them out is done here,
since its general way costs more than sending the request.
"""

from __future__ import annotations

import contextlib
import select
import socket
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from urllib3.connectionpool import HTTPConnectionPool


class ClosedError(OSError):
    """The connections were closed for good."""


class Connection:
    """An open connection, in the hands of one thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sock: socket.socket = inner.sock
        self._readable = select.poll()
        self._readable.register(self.sock, select.POLLIN)

    def usable(self) -> bool:
        """Whether nothing came while it was idle: an end of the connection, or bytes that nobody asked for."""
        return not self._readable.poll(0)

    def timeout_after(self, seconds: float) -> None:
        """Let each wait on the socket end after so many seconds."""
        if self.sock.gettimeout() != seconds:
            self.sock.settimeout(seconds)

    def cut(self) -> None:
        """End it now, and wake a thread that waits for bytes of it."""
        with contextlib.suppress(OSError):
            # On a TLS socket the plain shutdown is wanted: it wakes the reader without a handshake.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back to the system. Harmless when repeated."""
        with contextlib.suppress(OSError):
            self._inner.close()


class Connections:
    """Idle connections, the youngest first; any number of threads may share them.

    Args:
        pool: makes new connections.
        size: how many idle ones are kept.
        lookup: called with host and port before a connection is made, None for nothing.
    """

    def __init__(self, pool: HTTPConnectionPool, size: int, lookup: Callable[[str, int], None] | None = None) -> None:
        self._pool = pool
        self._size = size
        self._lookup = lookup
        self._idle: deque[Connection] = deque()
        self._closed = False
        # An owner that is dropped without `close` leaves no open sockets behind.
        weakref.finalize(self, _close_all, self._idle)

    def take(self, connect_timeout: float) -> Connection:
        """An idle connection that can be used, or a new one.

        Raises:
            OSError: no connection could be made.
            urllib3.exceptions.HTTPError: the same, in urllib3's words.
        """
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._open(connect_timeout)
            if connection.usable():
                return connection
            connection.close()
        raise ClosedError("the connections to the API server were closed")

    def give(self, connection: Connection) -> None:
        """Keep a connection whose last reply was read to its end."""
        if len(self._idle) < self._size:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close the idle connections, and from now on every one that is given back."""
        self._closed = True
        _close_all(self._idle)

    def _open(self, connect_timeout: float) -> Connection:
        inner: Any = self._pool._new_conn()  # noqa: SLF001 - the one place that knows all TLS settings of a pool
        inner.timeout = connect_timeout
        if self._lookup is not None:
            self._lookup(inner.host, inner.port)
        try:
            inner.connect()
        except BaseException:
            inner.close()
            raise
        return Connection(inner)


def _close_all(idle: deque[Connection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            idle.pop().close()
