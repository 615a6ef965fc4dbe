"""A control plane on a thread of its own, for tests and tools that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from homelab_autoscaler.sandbox.controlplane import ControlPlane, ControlPlaneOptions
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing.sync import SyncClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from homelab_autoscaler.sandbox.clock import SandboxClock

T = TypeVar("T")


class HostedControlPlane:
    """Starts a control plane in a thread and talks to it from others.

    Everything of the control plane lives on its own event loop: reach it through `call`, never directly.

        with HostedControlPlane(ControlPlaneOptions(…)) as cluster:
            run_manager(kubeconfig=cluster.write_kubeconfig(path))
            cluster.call(lambda plane: plane.fleet["m1"].cut_power())
    """

    def __init__(self, options: ControlPlaneOptions | None = None, clock: SandboxClock | None = None) -> None:
        """Prepare a control plane; see ControlPlane."""
        self._options = options
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._plane: ControlPlane | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._changed = threading.Event()
        self.url = ""
        self.bmc_url = ""

    def start(self, timeout: float = 30.0) -> str:
        """Start the thread and the control plane.

        Returns:
            The API server's base URL.

        Raises:
            OSError: a port is in use.
            TimeoutError: it did not start in time.
        """
        self._thread = threading.Thread(target=self._run, name="sandbox", daemon=True)
        self._thread.start()
        if not self._started.wait(timeout):
            raise TimeoutError(f"the sandbox did not start within {timeout} s")
        if self._failure is not None:
            self._thread.join(timeout)
            raise self._failure
        return self.url

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed over to whoever waits in start
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with ControlPlane(self._options, self._clock) as plane:
            self._plane = plane
            self.url, self.bmc_url = plane.url, plane.bmc_url
            plane.server.store.listeners.append(lambda _: self._changed.set())
            for machine in plane.fleet:
                machine.on_change(lambda _: self._changed.set())
            self._started.set()
            await self._stop.wait()

    def stop(self, timeout: float = 30.0) -> None:
        """End the control plane and its thread.

        Raises:
            TimeoutError: it did not end in time.
        """
        if self._thread is None or self._loop is None or self._stop is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the sandbox did not end within {timeout} s")
        self._thread = None

    def call(self, action: Callable[[ControlPlane], T | Awaitable[T]], timeout: float = 30.0) -> T:
        """Run a function, or a coroutine function, on the control plane's loop and wait for its result.

        Raises:
            TimeoutError: no result in time.
        """
        assert self._loop is not None, "start the control plane first"

        async def run() -> T:
            assert self._plane is not None
            found = action(self._plane)
            return cast("T", await found if inspect.isawaitable(found) else found)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout)

    def eventually(self, check: Callable[[], T | None], what: str, timeout: float = 60.0) -> T:
        """Wait until a check, run in the caller's thread, gives something true; returns that.

        It is repeated after every write to the API server and every change of a machine's power, not at a pace. A 404
        of the check counts as "not yet".

        Raises:
            AssertionError: it did not come true in time.
        """
        end = time.monotonic() + timeout
        while True:
            self._changed.clear()
            try:
                if found := check():
                    return found
            except ApiStatusError as error:
                if error.code != 404:
                    raise
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"did not happen within {timeout} s: {what}")
            self._changed.wait(left)

    def client(self, user: str = "system:admin", groups: tuple[str, ...] = ()) -> SyncClient:
        """A client for synchronous code, acting as a user."""

        def run(request: Coroutine[Any, Any, Any]) -> Any:
            assert self._loop is not None, "start the control plane first"
            return asyncio.run_coroutine_threadsafe(request, self._loop).result(60.0)

        return SyncClient(self.call(lambda plane: plane.server.local(user, groups)), run)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig; returns its path."""
        self.call(lambda plane: plane.write_kubeconfig(path))
        return path

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()
