"""Unary gRPC calls over mutual TLS, one after another, on a plain blocking socket.

The usual Python client spends more of a call's time in itself than the server does. The real caller, Cluster
Autoscaler, is a Go program: for it this caller stands.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING

from hpack import Encoder
from hpack.struct import NeverIndexedHeaderTuple

if TYPE_CHECKING:
    from pathlib import Path

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_CONNECTION = 0
_WINDOW_BITS = 2**31 - 1 - 65535


class GrpcCaller:
    """One connection.

    Args:
        address: `host:port`.
        folder: with ca.crt, tls.crt and tls.key.
    """

    def __init__(self, address: str, folder: Path) -> None:
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((host, int(port)), timeout=10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname=host)
        self._received = b""
        self._stream = -1
        self._headers: dict[str, bytes] = {}
        window = frame(8, 0, _CONNECTION, struct.pack(">I", _WINDOW_BITS))
        streams = frame(_SETTINGS, 0, _CONNECTION, struct.pack(">HI", 4, 2**31 - 1))
        self._socket.sendall(_PREFACE + streams + window)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, path: str, message: bytes) -> bytes:
        """The serialized answer.

        Args:
            path: `/package.Service/Method`.
            message: the serialized request.

        Raises:
            ConnectionError: the server ended the connection or the call, or answered with an error.
        """
        self._stream += 2
        body = b"\0" + struct.pack(">I", len(message)) + message
        head = frame(_HEADERS, _END_HEADERS, self._stream, self._head(path))
        self._socket.sendall(head + frame(_DATA, _END_STREAM, self._stream, body))
        answer = b""
        while True:
            kind, flags, stream, payload = self._frame()
            if kind in {_SETTINGS, _PING} and not flags & _ACK:
                self._socket.sendall(frame(kind, _ACK, _CONNECTION, payload if kind == _PING else b""))
            elif kind in {_RESET, _GOAWAY}:
                raise ConnectionError(f"{path}: the server gave up: {payload!r}")
            elif kind == _DATA:
                answer += payload
            if stream == self._stream and kind in {_DATA, _HEADERS} and flags & _END_STREAM:
                if not answer:
                    raise ConnectionError(f"{path}: {payload!r}")
                return answer[5:]

    def _head(self, path: str) -> bytes:
        """A header block that may be sent again on every stream: it uses no table."""
        if path not in self._headers:
            headers = {
                ":method": "POST",
                ":scheme": "https",
                ":path": path,
                ":authority": "localhost",
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-timeout": "5S",
            }
            fields = [NeverIndexedHeaderTuple(*pair) for pair in headers.items()]
            self._headers[path] = Encoder().encode(fields, huffman=False)
        return self._headers[path]

    def _frame(self) -> tuple[int, int, int, bytes]:
        self._need(9)
        size = int.from_bytes(self._received[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
        self._need(9 + size)
        payload, self._received = self._received[9 : 9 + size], self._received[9 + size :]
        return kind, flags, stream, payload

    def _need(self, count: int) -> None:
        while len(self._received) < count:
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("the server closed the connection")
            self._received += more


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
