"""A local process that plays a container."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox.kubelet.runtime import Exit, StartError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.podrunner.logs import LogWriter

_CHUNK: Final = 64 * 1024
_DRAIN_SECONDS: Final = 2.0
"""How long output is still read after the process ended: the group is dead by then, so that nothing more comes."""


class ProcessRun:
    """A started process group."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        writer: LogWriter,
        clock: SandboxClock,
        ended: Callable[[], None],
    ) -> None:
        """Take over a process that was just started (see `start_process`)."""
        self._process = process
        self._output = output
        self._writer = writer
        self._clock = clock
        self._ended = ended
        self._result = asyncio.get_running_loop().create_task(self._supervise(), name=f"process {process.pid}")

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._result.done()

    async def wait(self) -> Exit:
        """See ContainerRun."""
        return await asyncio.shield(self._result)

    async def stop(self, grace: float) -> None:
        """SIGTERM to the group, SIGKILL after the grace period."""
        self._signal(signal.SIGTERM)
        timer = asyncio.ensure_future(self._clock.sleep(grace))
        try:
            await asyncio.wait({self._result, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not self._result.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait({self._result})

    def kill(self) -> None:
        """SIGKILL to the group, at once; for the end of the sandbox."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _supervise(self) -> Exit:
        reading = asyncio.ensure_future(self._read())
        try:
            code = await self._process.wait()
            # PID 1 of a container takes everything with it.
            self._signal(signal.SIGKILL)
            await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
        finally:
            reading.cancel()
            self._output[1].close()
            self._writer.close()
            self._ended()
        now: datetime = self._clock.now()
        if code >= 0:
            return Exit(code, now)
        name = signal.Signals(-code).name
        return Exit(128 - code, now, message=f"ended by {name}")

    async def _read(self) -> None:
        while data := await self._output[0].read(_CHUNK):
            self._writer.feed(data)


async def start_process(
    argv: list[str],
    *,
    environment: dict[str, str],
    directory: Path,
    writer: LogWriter,
    clock: SandboxClock,
    ended: Callable[[], None],
) -> ProcessRun:
    """Start a process in a group of its own.

    Raises:
        StartError: it cannot be started; the message names the command and the cause, in a runtime's words.
    """
    # A pipe of our own: asyncio's would make the end of the process wait for everybody who inherited it.
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(reading)
        writer.close()
        ended()
        raise StartError(_explain(argv[0], error)) from None
    finally:
        os.close(writing)
    output = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", buffering=0)
    )
    return ProcessRun(process, (output, transport), writer, clock, ended)


def _explain(command: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        where = "no such file or directory" if "/" in command else "executable file not found in $PATH"
        return f'exec: "{command}": {where}'
    if isinstance(error, PermissionError):
        return f'exec: "{command}": permission denied'
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f'exec: "{command}": exec format error (a script needs a "#!" line)'
    return f'exec: "{command}": {error}'
