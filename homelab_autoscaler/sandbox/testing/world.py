"""A control plane on a manual clock inside one event loop: an hour of a cluster's life in a moment of a test's."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TypeVar, cast

from homelab_autoscaler.sandbox import resources
from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.controlplane import ControlPlane, ControlPlaneOptions
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from homelab_api.meta import JsonObject, ResourceInfo
    from homelab_autoscaler.sandbox.client import ApiClient

T = TypeVar("T")


class World:
    """A running control plane, its clock, and a client of an administrator.

    Time stands still unless `advance` or `eventually` moves it. Everything is in one process; only pods on the host
    node are real processes and take real time.
    """

    def __init__(self, options: ControlPlaneOptions | None = None) -> None:
        """Prepare a world; see ControlPlaneOptions."""
        self.clock = ManualSandboxClock()
        self.plane = ControlPlane(options, self.clock)
        self._stack = AsyncExitStack()

    @property
    def admin(self) -> ApiClient:
        """A client that may do everything."""
        return self.client("system:admin")

    def client(self, user: str) -> ApiClient:
        """A client under another name."""
        return self.plane.server.local(user)

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(seconds)

    async def eventually(
        self,
        check: Callable[[], T | Awaitable[T]],
        what: str,
        *,
        within: float = 30.0,
        step: float = 0.05,
        real_seconds: float = 60.0,
    ) -> T:
        """Let time pass in small steps until a check gives something true; returns that.

        A 404 of the check counts as "not yet".

        Args:
            check: Plain or asynchronous.
            what: What is waited for, for the error.
            within: Sandbox seconds.
            step: Sandbox seconds per look.
            real_seconds: A bound for stories with real processes, in which sandbox time does not run out.

        Raises:
            AssertionError: it did not come true.
        """
        end, last = self.clock.monotonic() + within, time.monotonic() + real_seconds
        while True:
            try:
                found = check()
                result = cast("T", await found if inspect.isawaitable(found) else found)
            except ApiStatusError as error:
                if error.code != 404:
                    raise
            else:
                if result:
                    return result
            if self.clock.monotonic() >= end or time.monotonic() >= last:
                raise AssertionError(f"did not happen within {within} s of sandbox time: {what}")
            await self.clock.advance(step)
            # Real processes and threads need the loop to look at its selectors.
            await asyncio.sleep(0.001)

    async def get(self, resource: ResourceInfo, name: str, namespace: str = "default") -> JsonObject:
        """Read an object."""
        return await self.admin.get(resources.path(resource, namespace, name))

    async def items(self, resource: ResourceInfo, namespace: str = "default") -> list[JsonObject]:
        """Read a collection."""
        found: Iterable[JsonObject] = (await self.admin.list(resources.path(resource, namespace)))["items"]
        return list(found)

    async def create(self, resource: ResourceInfo, body: JsonObject, namespace: str = "default") -> JsonObject:
        """Create an object; kind and apiVersion are added."""
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.admin.create(resources.path(resource, namespace), full)

    async def __aenter__(self) -> Self:
        """Start."""
        await self._stack.enter_async_context(self.plane)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self._stack.aclose()


def run_story(story: Callable[[World], Awaitable[None]], options: ControlPlaneOptions | None = None) -> None:
    """Run an asynchronous story in a world of its own, with a bound of two real minutes."""

    async def run() -> None:
        async with asyncio.timeout(120), World(options) as world:
            await story(world)

    asyncio.run(run())
