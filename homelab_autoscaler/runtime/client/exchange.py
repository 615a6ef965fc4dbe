"""One HTTP/1.1 request and its reply on an open connection: just what an API server speaks.

The standard library's reader parses headers as e-mail; that alone costs more than all the rest of a request. Here a
reply is cut at its separators. Supported: Content-Length, chunked bodies, interim 1xx replies, no body for 204 and 304.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

_RECEIVE: Final = 65536
_HEAD_LIMIT: Final = 1024 * 1024


class BrokenReplyError(OSError):
    """The connection ended early, or what came is no HTTP reply."""


def exchange(sock: socket.socket, request: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Send a request and read the whole reply.

    Returns:
        Status, headers by lower-case name, body, and whether the connection can be used again.

    Raises:
        OSError: the connection broke or timed out.
    """
    sock.sendall(request)
    reader = _Reader(sock)
    while True:
        status, version, headers = _head(reader.until(b"\r\n\r\n"))
        if status >= 200:
            break
    keep = headers.get("connection", "").lower() != "close" and version == b"HTTP/1.1"
    if status in {204, 304}:
        return status, headers, b"", keep and not reader.rest
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _chunked(reader)
    elif "content-length" in headers:
        body = reader.exactly(int(headers["content-length"]))
    else:
        body, keep = reader.to_end(), False
    return status, headers, body, keep and not reader.rest


def _head(head: bytes) -> tuple[int, bytes, dict[str, str]]:
    lines = head.split(b"\r\n")
    parts = lines[0].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise BrokenReplyError(f"not an HTTP reply: {lines[0][:80]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, separator, value = line.partition(b":")
        if separator:
            headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
    return int(parts[1]), parts[0], headers


def _chunked(reader: _Reader) -> bytes:
    chunks: list[bytes] = []
    while True:
        size = int(reader.until(b"\r\n").partition(b";")[0], 16)
        if size == 0:
            while reader.until(b"\r\n"):
                pass  # trailers say nothing that we use
            return b"".join(chunks)
        chunks.append(reader.exactly(size))
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

    def to_end(self) -> bytes:
        parts = [self.rest]
        self.rest = b""
        while part := self._sock.recv(_RECEIVE):
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> bytes:
        part = self._sock.recv(_RECEIVE)
        if not part:
            raise BrokenReplyError("the server closed the connection before its reply was complete")
        return part
