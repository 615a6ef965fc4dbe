"""The HTTP exchange: every way in which a reply may come in pieces, or not at all."""

import itertools
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homelab_autoscaler.runtime.client.exchange import BrokenReplyError, exchange, open_stream


def streamed(sock, request):
    """A streamed reply, read to its end."""
    status, headers, pieces = open_stream(sock, request)
    return status, headers, b"".join(pieces)


def reply_to(pieces, *, end=True, read=exchange):
    """What `read` makes of a reply that arrives in these pieces."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)

    def serve():
        theirs.recv(65536)
        for piece in pieces:
            theirs.sendall(piece)
        if end:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        return read(ours, b"GET / HTTP/1.1\r\n\r\n")
    finally:
        thread.join(5)
        ours.close()
        theirs.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRetry-After:  7 \r\n"
SIZED = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + SIZED


@settings(deadline=None, max_examples=60)
@given(reply=st.sampled_from([SIZED, CHUNKED, INTERIM]), cuts=st.lists(st.integers(0, 140), max_size=6))
def test_a_reply_is_the_same_however_it_is_cut(reply, cuts):
    edges = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
    pieces = [reply[a:b] for a, b in itertools.pairwise(edges) if a < b]
    status, headers, body, keep = reply_to(pieces, end=False)
    assert (status, headers["retry-after"], body, keep) == (200, "7", b"hello", True)


def test_without_a_length_the_reply_ends_with_the_connection():
    status, _, body, keep = reply_to([HEAD, b"\r\nhel", b"lo"])
    assert (status, body, keep) == (200, b"hello", False)


@pytest.mark.parametrize("code", [204, 304])
def test_some_replies_have_no_body(code):
    status, _, body, keep = reply_to([b"HTTP/1.1 %d X\r\n\r\n" % code], end=False)
    assert (status, body, keep) == (code, b"", True)


@pytest.mark.parametrize(
    "reply",
    [
        HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 0\r\n\r\nand something that nobody asked for",
    ],
)
def test_a_connection_that_cannot_be_trusted_any_more_is_not_kept(reply):
    assert not reply_to([reply])[3]


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        HEAD + b"Content-Length: 50\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhe",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_a_reply_that_breaks_off_or_is_none_is_an_error(reply):
    with pytest.raises(BrokenReplyError):
        reply_to([reply])


def test_a_chunk_without_a_size_is_an_error():
    with pytest.raises(ValueError, match="invalid literal"):
        reply_to([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"])


@settings(deadline=None, max_examples=40)
@given(
    reply=st.sampled_from([SIZED, CHUNKED, INTERIM, HEAD + b"\r\nhello"]),
    cuts=st.lists(st.integers(0, 140), max_size=6),
)
def test_a_streamed_reply_is_the_same_however_it_is_cut(reply, cuts):
    edges = [0, *sorted(min(cut, len(reply)) for cut in cuts), len(reply)]
    status, headers, body = reply_to([reply[a:b] for a, b in itertools.pairwise(edges) if a < b], read=streamed)
    assert (status, headers["retry-after"], body) == (200, "7", b"hello")


def test_a_stream_that_breaks_off_gives_what_was_whole_and_then_an_error():
    got = []

    def collect(sock, request):
        got.extend(open_stream(sock, request)[2])

    with pytest.raises(BrokenReplyError):
        reply_to([HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n5\r\ntw"], read=collect)
    assert got == [b"one"]


def test_silence_is_a_timeout():
    ours, theirs = socket.socketpair()
    ours.settimeout(0.05)
    with pytest.raises(TimeoutError):
        exchange(ours, b"GET / HTTP/1.1\r\n\r\n")
    ours.close()
    theirs.close()
