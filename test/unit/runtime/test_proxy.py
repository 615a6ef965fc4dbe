"""Requests and streams through a proxy, as a kubeconfig's proxy-url asks for."""

import contextlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
import urllib3

from homelab_autoscaler.runtime import ClientConfig, SystemClock
from homelab_autoscaler.runtime.client import Reply, Transport
from homelab_autoscaler.runtime.errors import StallError
from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.runtime.webhook.pki import issue, make_authority


class Listener:
    """Accepts connections and gives each to `serve` in a thread of its own."""

    def __init__(self, serve):
        self.serve = serve
        self.open = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.sock.accept()
                self.open.append(connection)
                self.threads.append(threading.Thread(target=self._run, args=(connection,)))
                self.threads[-1].start()

    def _run(self, connection):
        with contextlib.suppress(OSError):
            self.serve(connection)

    def close(self):
        for sock in (self.sock, *self.open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self.threads:
            thread.join(5)
            assert not thread.is_alive()


def head_of(connection):
    head = b""
    while b"\r\n\r\n" not in head:
        part = connection.recv(4096)
        if not part:
            raise OSError
        head += part
    return head


def pipe(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxied(tmp_path):
    """A transport that reaches a TLS server through a CONNECT proxy; the servers that it was asked for; its own."""
    now = datetime.now(UTC)
    authority = make_authority("test", now, timedelta(days=1))
    serving = issue(authority, ["localhost"], now, timedelta(days=1))
    for name, content in (("ca", authority.certificate), ("crt", serving.certificate), ("key", serving.key)):
        (tmp_path / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    def serve(connection):
        with context.wrap_socket(connection, server_side=True) as tls:
            while True:
                if b"watch=true" in head_of(tls).split(b"\r\n")[0]:
                    tls.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
                    tls.recv(1)
                    return
                tls.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")

    server = Listener(serve)
    asked = []

    def tunnel(connection):
        asked.append(head_of(connection).split()[1])
        upstream = socket.create_connection(("127.0.0.1", server.port))
        back = threading.Thread(target=pipe, args=(upstream, connection))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back.start()
        with upstream:
            pipe(connection, upstream)
            back.join(5)

    proxy = Listener(tunnel)
    host = f"https://localhost:{server.port}"

    def make_pool(size):
        manager = urllib3.ProxyManager(f"http://127.0.0.1:{proxy.port}", maxsize=size, ca_certs=str(tmp_path / "ca"))
        return manager.connection_from_url(host)

    transport = Transport(ClientConfig(host=host, make_pool=make_pool), SystemClock())
    yield transport, asked, b"localhost:%d" % server.port
    transport.close()
    proxy.close()
    server.close()


def test_a_request_goes_through_the_proxy(proxied):
    transport, asked, server = proxied
    assert transport.request("GET", "/x").status == 404
    assert asked == [server]


def test_a_stream_goes_through_the_proxy_and_closing_it_wakes_its_reader(proxied):
    transport, asked, server = proxied
    stream = transport.stream("/x?watch=true", inactivity=60)
    lines = []
    thread = threading.Thread(target=lambda: lines.extend(stream.lines()))
    thread.start()
    eventually(lambda: stream._reading)
    stream.close()
    thread.join(5)
    assert not thread.is_alive()
    assert asked == [server]


def test_silence_and_refusals_through_the_proxy_are_told(proxied):
    transport, _, _ = proxied
    stream = transport.stream("/x?watch=true", inactivity=0.2)
    lines = stream.lines()
    assert next(lines) == b"one"
    with pytest.raises(StallError):
        next(lines)
    assert transport.stream("/y", inactivity=5) == Reply(404, {"content-length": "2"}, b"{}")
