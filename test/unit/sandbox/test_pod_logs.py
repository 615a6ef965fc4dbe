import asyncio
from datetime import timedelta

import pytest

from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.podrunner.logs import LogQuery, LogStore


async def collect(store, query=None):
    return b"".join([line async for line in store.read("u", "c", query or LogQuery())])


def write(store, data, attempt=0):
    writer = store.writer("u", "c", attempt)
    writer.feed(data)
    writer.close()


@pytest.fixture
def clock():
    return ManualSandboxClock()


@pytest.fixture
def store(tmp_path, clock):
    return LogStore(tmp_path, clock.now)


def test_output_is_read_back_line_by_line(store):
    writer = store.writer("u", "c", 0)
    writer.feed(b"one\ntw")
    writer.feed(b"o\nrest without newline")
    writer.close()
    assert asyncio.run(collect(store)) == b"one\ntwo\nrest without newline\n"


def test_a_container_that_never_ran_has_no_output(store):
    assert asyncio.run(collect(store)) == b""


def test_only_the_last_lines_are_read_when_asked(store):
    write(store, b"a\nb\nc\n")
    assert asyncio.run(collect(store, LogQuery(tail_lines=2))) == b"b\nc\n"
    assert asyncio.run(collect(store, LogQuery(tail_lines=0))) == b""
    assert asyncio.run(collect(store, LogQuery(tail_lines=9))) == b"a\nb\nc\n"


def test_lines_carry_their_time_when_asked(store):
    write(store, b"a\n")
    assert asyncio.run(collect(store, LogQuery(timestamps=True))) == b"2026-01-01T00:00:00.000000Z a\n"


def test_older_lines_are_left_out_when_asked(store, clock):
    async def story():
        writer = store.writer("u", "c", 0)
        writer.feed(b"old\n")
        await clock.advance(10)
        writer.feed(b"new\n")
        writer.close()
        return await collect(store, LogQuery(since=clock.now() - timedelta(seconds=5)))

    assert asyncio.run(story()) == b"new\n"


def test_reading_stops_at_the_byte_limit(store):
    write(store, b"abc\ndef\n")
    assert asyncio.run(collect(store, LogQuery(limit_bytes=5))) == b"abc\nd"


def test_a_restarted_container_shows_its_newest_run_and_on_request_the_one_before(store):
    write(store, b"first\n")
    write(store, b"second\n", attempt=1)
    assert asyncio.run(collect(store)) == b"second\n"
    assert asyncio.run(collect(store, LogQuery(previous=True))) == b"first\n"


def test_following_ends_when_the_container_ends_and_misses_nothing(store):
    async def story():
        writer = store.writer("u", "c", 0)
        writer.feed(b"a\n")
        reading = asyncio.ensure_future(collect(store, LogQuery(follow=True, tail_lines=1)))
        for text in (b"b\n", b"c\n"):
            for _ in range(5):
                await asyncio.sleep(0)
            writer.feed(text)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reading.done()
        writer.feed(b"end")
        writer.close()
        store.ended("u", "c", 0)
        async with asyncio.timeout(10):
            return await reading

    assert asyncio.run(story()) == b"a\nb\nc\nend\n"


def test_following_an_ended_container_returns_at_once(store):
    async def story():
        writer = store.writer("u", "c", 0)
        writer.feed(b"a\n")
        writer.close()
        store.ended("u", "c", 0)
        async with asyncio.timeout(10):
            return await collect(store, LogQuery(follow=True))

    assert asyncio.run(story()) == b"a\n"


def test_very_long_lines_are_split(store):
    write(store, b"x" * 40_000 + b"\n")
    lines = asyncio.run(collect(store)).splitlines()
    assert b"".join(lines) == b"x" * 40_000
    assert max(map(len, lines)) <= 16 * 1024


def test_an_endless_output_is_cut_and_says_so(store):
    writer = store.writer("u", "c", 0)
    for _ in range(12):
        writer.feed((b"y" * 1023 + b"\n") * 1024)
    writer.close()
    found = asyncio.run(collect(store))
    assert len(found) < 11 * 1024 * 1024
    assert found.endswith(b"[output past 10 MiB is dropped]\n")


def test_logs_of_a_forgotten_pod_are_gone(store):
    write(store, b"a\n")
    store.forget("u")
    assert asyncio.run(collect(store)) == b""
