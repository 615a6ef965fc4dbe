import asyncio
import os
import select
import signal

import pytest

from homelab_autoscaler.sandbox.clock import SystemSandboxClock
from homelab_autoscaler.sandbox.kubelet.runtime import StartError
from homelab_autoscaler.sandbox.podrunner.logs import LogQuery, LogStore
from homelab_autoscaler.sandbox.podrunner.process import start_process


class Workshop:
    def __init__(self, path):
        self.path = path
        self.clock = SystemSandboxClock()
        self.store = LogStore(path / "logs", self.clock.now)
        self.ended = False

    async def start(self, *argv, env=None):
        def end():
            self.ended = True
            self.store.ended("u", "c", 0)

        return await start_process(
            list(argv),
            environment={"PATH": os.environ["PATH"], **(env or {})},
            directory=self.path,
            writer=self.store.writer("u", "c", 0),
            clock=self.clock,
            ended=end,
        )

    async def output(self):
        return b"".join([line async for line in self.store.read("u", "c", LogQuery())]).decode()

    async def line(self):
        """The first line of output, as soon as there is one."""
        async with asyncio.timeout(30):
            async for line in self.store.read("u", "c", LogQuery(follow=True)):
                return line.decode().strip()
        raise AssertionError("the process ended without a line")


@pytest.fixture
def shop(tmp_path):
    return Workshop(tmp_path)


def assert_ends(pid):
    """The process is gone, or goes in the next moment: SIGKILL takes its time on a busy machine."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(20_000), f"process {pid} is still alive"
    finally:
        os.close(handle)


def run(story):
    async def limited():
        async with asyncio.timeout(60):
            await story()

    asyncio.run(limited())


def test_a_command_runs_with_its_arguments_and_environment_only(shop):
    async def story():
        process = await shop.start("sh", "-c", 'echo "$0 $X ${HOME-unset}"', "arg", env={"X": "1"})
        assert (await process.wait()).code == 0
        assert await shop.output() == "arg 1 unset\n"
        assert shop.ended

    run(story)


def test_output_and_errors_are_one_stream(shop):
    async def story():
        process = await shop.start("sh", "-c", "echo out; echo err >&2; exit 3")
        assert (await process.wait()).code == 3
        assert await shop.output() == "out\nerr\n"

    run(story)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-command-here", 'exec: "no-such-command-here": executable file not found in $PATH'),
        ("/no/such/file", 'exec: "/no/such/file": no such file or directory'),
        ("./plain", 'exec: "./plain": permission denied'),
        ("./garbage", 'exec: "./garbage": exec format error (a script needs a "#!" line)'),
        ("nul\0byte", "embedded null byte"),
    ],
)
def test_what_cannot_be_started_says_why(shop, command, message):
    (shop.path / "plain").write_text("echo hello")
    garbage = shop.path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o700)

    async def story():
        with pytest.raises(StartError) as caught:
            await shop.start(command)
        assert message in caught.value.message
        assert caught.value.exit_code == 128
        assert shop.ended

    run(story)


def test_a_process_that_obeys_ends_within_its_grace(shop):
    async def story():
        script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        process = await shop.start("sh", "-c", script)
        await shop.line()
        await process.stop(30)
        assert (await process.wait()).code == 0
        assert (await shop.output()).endswith("bye\n")

    run(story)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(shop):
    async def story():
        process = await shop.start("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
        await shop.line()
        await process.stop(0.2)
        ended = await process.wait()
        assert ended.code == 128 + signal.SIGKILL
        assert ended.message == "ended by SIGKILL"

    run(story)


def test_children_end_with_their_process(shop):
    async def story():
        process = await shop.start("sh", "-c", "sleep 600 & echo $!")
        assert (await process.wait()).code == 0
        assert_ends(int(await shop.output()))

    run(story)


def test_children_end_with_a_killed_process(shop):
    async def story():
        process = await shop.start("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait")
        child = int(await shop.line())
        await process.stop(0)
        await process.wait()
        assert_ends(child)

    run(story)
