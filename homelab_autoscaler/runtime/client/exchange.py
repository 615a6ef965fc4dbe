"""One HTTP/1.1 request and its reply on an open connection: just what an API server speaks.

The standard library's reader parses headers as e-mail; that alone costs more than all the rest of a request. Here a
reply is cut at its separators. Supported: Content-Length, chunked bodies, interim 1xx replies, no body for 204 and 304.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_RECEIVE: Final = 65536
_HEAD_LIMIT: Final = 1024 * 1024
_HEADERS: Final = re.compile(
    r"\n(connection|content-length|date|retry-after|transfer-encoding):[ \t]*([^\r\n]*)", re.IGNORECASE
).findall
"""The headers that a client of an API server acts on, found in one go."""


class BrokenReplyError(OSError):
    """The connection ended early, or what came is no HTTP reply."""


def exchange(sock: socket.socket, request: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Send a request and read the whole reply.

    Returns:
        Status, headers by lower-case name, body, and whether the connection can be used again.

    Raises:
        OSError: the connection broke or timed out.
        ValueError: a length in the reply is none.
    """
    reader, status, headers, keep = _begin(sock, request)
    if status in {204, 304}:
        return status, headers, b"", keep and not reader.rest
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b"".join(_chunks(reader))
    elif "content-length" in headers:
        body = reader.exactly(int(headers["content-length"]))
    else:
        body, keep = b"".join(reader.to_end()), False
    return status, headers, body, keep and not reader.rest


def open_stream(sock: socket.socket, request: bytes) -> tuple[int, dict[str, str], Iterator[bytes]]:
    """Send a request whose reply has no end that is known; the connection cannot be used again.

    Returns:
        Status, headers by lower-case name, and the body in pieces as they arrive. Reading them raises as `exchange`.

    Raises:
        OSError: the connection broke or timed out before the head of the reply was there.
    """
    reader, status, headers, _ = _begin(sock, request)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, headers, _chunks(reader)
    if "content-length" in headers:
        return status, headers, iter((reader.exactly(int(headers["content-length"])),))
    return status, headers, reader.to_end()


def _begin(sock: socket.socket, request: bytes) -> tuple[_Reader, int, dict[str, str], bool]:
    sent = sock.send(request)
    if sent < len(request):
        sock.sendall(memoryview(request)[sent:])
    reader = _Reader(sock)
    while True:
        status, version, headers = _head(reader.until(b"\r\n\r\n"))
        if status >= 200:
            return reader, status, headers, headers.get("connection", "").lower() != "close" and version == b"HTTP/1.1"


def _head(head: bytes) -> tuple[int, bytes, dict[str, str]]:
    first = head.partition(b"\r\n")[0]
    parts = first.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise BrokenReplyError(f"not an HTTP reply: {first[:80]!r}")
    headers = {name.lower(): value.rstrip() for name, value in _HEADERS(head.decode("latin-1"))}
    return int(parts[1]), parts[0], headers


def _chunks(reader: _Reader) -> Iterator[bytes]:
    while True:
        size = int(reader.until(b"\r\n").partition(b";")[0], 16)
        if size == 0:
            while reader.until(b"\r\n"):
                pass  # trailers say nothing that we use
            return
        yield reader.exactly(size)
        reader.exactly(2)


class _Reader:
    """Bytes from a socket, up to a separator or a number."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.rest = b""

    def until(self, separator: bytes) -> bytes:
        while (end := self.rest.find(separator)) < 0:
            if len(self.rest) > _HEAD_LIMIT:
                raise BrokenReplyError("the head of the reply has no end")
            self.rest += self._more()
        found, self.rest = self.rest[:end], self.rest[end + len(separator) :]
        return found

    def exactly(self, count: int) -> bytes:
        if len(self.rest) >= count:
            found, self.rest = self.rest[:count], self.rest[count:]
            return found
        parts = [self.rest]
        missing = count - len(self.rest)
        while missing > 0:
            part = self._more()
            parts.append(part)
            missing -= len(part)
        whole = b"".join(parts)
        self.rest = whole[count:]
        return whole[:count]

    def to_end(self) -> Iterator[bytes]:
        part, self.rest = self.rest, b""
        while part or (part := self._sock.recv(_RECEIVE)):
            yield part
            part = b""

    def _more(self) -> bytes:
        part = self._sock.recv(_RECEIVE)
        if not part:
            raise BrokenReplyError("the server closed the connection before its reply was complete")
        return part
