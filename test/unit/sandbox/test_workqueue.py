import asyncio

import pytest

from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.workqueue import WorkQueue


def run(story):
    async def limited():
        clock = ManualSandboxClock()
        queue = WorkQueue(clock)
        try:
            async with asyncio.timeout(10):
                await story(queue, clock)
        finally:
            queue.close()

    asyncio.run(limited())


async def drained(queue):
    """What can be had without waiting."""
    found = []
    while True:
        task = asyncio.ensure_future(queue.get())
        for _ in range(3):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            return found
        found.append(task.result())
        queue.done(task.result())


def test_a_key_waits_once_however_often_it_is_added():
    async def story(queue, clock):
        queue.add("a")
        queue.add("b")
        queue.add("a")
        assert await drained(queue) == ["a", "b"]

    run(story)


def test_a_key_added_during_its_work_comes_again_afterwards():
    async def story(queue, clock):
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        assert await drained(queue) == []
        queue.done("a")
        assert await drained(queue) == ["a"]

    run(story)


def test_a_delayed_key_comes_when_its_time_has_come():
    async def story(queue, clock):
        queue.add_after("a", 10)
        await clock.advance(9)
        assert await drained(queue) == []
        await clock.advance(1)
        assert await drained(queue) == ["a"]

    run(story)


def test_of_two_delays_the_shorter_counts():
    async def story(queue, clock):
        queue.add_after("a", 10)
        queue.add_after("a", 3)
        queue.add_after("a", 20)
        await clock.advance(3)
        assert await drained(queue) == ["a"]
        await clock.advance(100)
        assert await drained(queue) == []

    run(story)


def test_failures_are_tried_again_after_growing_pauses_until_one_succeeds():
    async def story(queue, clock):
        queue.add("a")
        pauses = []
        for _ in range(4):
            await queue.get()
            before = clock.monotonic()
            queue.retry("a")
            while not queue._waiting:
                await clock.advance(0.005)
            pauses.append(round(clock.monotonic() - before, 3))
        assert pauses == pytest.approx([0.01, 0.02, 0.04, 0.08], abs=0.006)
        await queue.get()
        queue.done("a")
        queue.add("a")
        await queue.get()
        queue.retry("a")
        await clock.advance(0.01)
        assert await drained(queue) == ["a"]

    run(story)
