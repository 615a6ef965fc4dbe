"""A small threaded HTTP(S) server: sleeps until something comes, and leaves no thread behind when it ends."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from homelab_autoscaler.runtime.stop import StopSignal

_CONNECTION_TIMEOUT = 30.0


def parse_address(address: str) -> tuple[str, int]:
    """`host:port` or `:port` (all addresses); port 0 takes a free one. IPv6 hosts stand in brackets.

    Raises:
        ValueError: naming the text.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'"{address}" is no address: write host:port or :port')
    return host.strip("[]"), int(port)


class ThreadedServer(HTTPServer):
    """One thread per connection, with TLS if a context is given.

    It listens from construction on; connections are answered once `serve_until` runs.

    Args:
        name: of its threads.
        address: host and port.
        handler: of one connection.
        tls: gives the context for the next connection, so that certificates can change while it runs.
    """

    request_queue_size = 64

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._name = name
        self._tls = tls
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        super().__init__(address, handler)
        # accept() after a readable event may still find nobody: it must not block then.
        self.socket.setblocking(False)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def serve_until(self, stop: StopSignal) -> None:
        """Serve until stopped; open connections are cut then."""
        waker, wakened = socket.socketpair()

        def wake() -> None:
            # The signal is set before its callbacks run: the loop may have seen it, and closed this, already.
            with contextlib.suppress(OSError):
                waker.send(b"x")

        remove = stop.on_set(wake)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ)
                selector.register(wakened, selectors.EVENT_READ)
                while not stop.is_set():
                    for key, _ in selector.select():
                        if key.fileobj is self.socket:
                            self._accept()
        finally:
            remove()
            self._end()
            waker.close()
            wakened.close()

    def _accept(self) -> None:
        try:
            connection, address = self.get_request()
        except OSError:
            return
        connection.settimeout(_CONNECTION_TIMEOUT)
        thread = threading.Thread(
            target=self._serve_connection, args=(connection, address), name=f"{self._name}/connection", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _serve_connection(self, connection: socket.socket, address: tuple[str, int]) -> None:
        wrapped = connection
        try:
            if self._tls is not None:
                # The handshake is here, not in accept: a silent client must not keep others out.
                wrapped = self._tls().wrap_socket(connection, server_side=True)
                with self._lock:
                    # Wrapping moved the descriptor: only the wrapped socket can be cut from now on.
                    self._connections[wrapped] = self._connections.pop(connection)
            self.finish_request(wrapped, address)
        except (OSError, ValueError):
            pass  # the other side went away or speaks something else, or we are stopping
        finally:
            self.shutdown_request(wrapped)
            with self._lock:
                self._connections.pop(wrapped, None)

    def _end(self) -> None:
        self.server_close()
        with self._lock:
            open_now = dict(self._connections)
        for connection in open_now:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in open_now.values():
            thread.join(timeout=1.0)
