"""The embedded API server beside synchronous code: on a background thread, with its own asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from homelab_autoscaler.sandbox.apiserver import ApiServer, ApiServerOptions, Fault, Write
from homelab_autoscaler.sandbox.testing.sync import SyncClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from homelab_autoscaler.sandbox.clock import SandboxClock

T = TypeVar("T")
_DEADLINE = 60.0


class RunningApiServer:
    """A server that runs on a thread.

    Attributes:
        server: the server itself; touch it only through `call` or from its own loop.
        url: where it listens.
        kubeconfig: path of an administrator's kubeconfig.
        loop: its loop, for parts that want to live there too.
    """

    def __init__(self, server: ApiServer, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self.server = server
        self.loop = loop
        self.url = server.url
        self._folder = folder
        self.kubeconfig = self.write_kubeconfig("admin.kubeconfig")

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and wait for it.

        Raises:
            TimeoutError: it takes longer than a minute.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(_DEADLINE)

    def run(self, function: Callable[[], T]) -> T:
        """Run a function on the server's loop and wait for it."""

        async def wrapped() -> T:
            return function()

        return self.call(wrapped())

    def client(self, user: str = "system:admin", groups: tuple[str, ...] = ()) -> SyncClient:
        """A client for synchronous code, acting as a user."""
        return SyncClient(self.server.local(user, groups), self.call)

    def write_kubeconfig(self, name: str, user: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig for a user, the administrator when None; returns its path."""
        token = None if user is None else self.run(lambda: self.server.token(user))
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(orjson.dumps(self.server.kubeconfig(token, namespace)))
        return path

    def writes(self, since: int = 0) -> list[Write]:
        """The committed writes after a revision."""
        return self.run(lambda: self.server.writes.since(since))

    def add_fault(self, fault: Fault) -> int:
        """Put a fault in force; returns its number."""
        return self.run(lambda: self.server.faults.add(fault))

    def clear_faults(self) -> None:
        """Take all faults out."""
        self.run(self.server.faults.clear)


@contextlib.contextmanager
def running_api_server(
    clock: SandboxClock | None = None, options: ApiServerOptions | None = None, *, port: int = 0
) -> Iterator[RunningApiServer]:
    """An API server on a background thread, stopped at the end of the block.

    Args:
        clock: its time; the machine's when None.
        options: how it is set up.
        port: where it listens; 0 takes a free one.
    """
    ready: threading.Event = threading.Event()
    failure: list[BaseException] = []
    parts: list[tuple[ApiServer, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        try:
            server = ApiServer(clock, options)
            await server.start(port=port)
            parts.append((server, asyncio.get_running_loop(), stop))
        except BaseException as error:
            failure.append(error)
            raise
        finally:
            ready.set()
        await stop.wait()
        await server.stop()

    def run() -> None:
        with contextlib.suppress(Exception):
            asyncio.run(main())

    thread = threading.Thread(target=run, name="sandbox-apiserver", daemon=True)
    thread.start()
    if not ready.wait(_DEADLINE):
        raise TimeoutError("the API server did not start within a minute")
    if failure:
        raise failure[0]
    server, loop, stop = parts[0]
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        try:
            yield RunningApiServer(server, loop, Path(folder))
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(_DEADLINE)


@contextlib.asynccontextmanager
async def local_api_server(
    clock: SandboxClock | None = None, options: ApiServerOptions | None = None
) -> AsyncIterator[ApiServer]:
    """An API server on the present loop, without a socket."""
    server = ApiServer(clock, options)
    try:
        yield server
    finally:
        await server.stop()
