"""Job monitors: one thread per slot with an operation under way.

A monitor repeats one re-entrant step until the operation needs it no more. It wakes on events of the slot's objects
and, as a fallback, on its poll. It owns no state: a new process starts the same monitor from what the objects say,
which is what carries a boot over a restart. Source: state management, "Async operations"; model section 3, footnote 2.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import structlog

from homelab_api.v2alpha1 import ClaimPhase
from homelab_autoscaler.lifecycle.lock import LockRefusedError
from homelab_autoscaler.phase import contested
from homelab_autoscaler.runtime import ApiError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from homelab_autoscaler.lifecycle.boot import Boot
    from homelab_autoscaler.lifecycle.scope import Scopes, SlotScope
    from homelab_autoscaler.lifecycle.shutdown import Shutdown
    from homelab_autoscaler.runtime import Clock, StopSignal

log = structlog.get_logger(__name__)

_RETRY: Final = 1.0
"""Seconds before a step that failed is tried again, unless an event comes first."""
_CONFLICT_RETRY: Final = 0.05
"""Seconds before a step that lost a race looks again: the cache needs a moment to see the other write."""


class OperationMonitor:
    """One step of whatever operation the slot has under way."""

    def __init__(self, scopes: Scopes, boot: Boot, shutdown: Shutdown) -> None:
        self._scopes = scopes
        self._boot = boot
        self._shutdown = shutdown

    def step(self, namespace: str, name: str) -> datetime | None:
        """Look at the slot and bring its operation a step further; None when there is nothing to follow."""
        scope = self._scopes.read(namespace, name)
        if scope is None or scope.reclaim is not None:
            return None
        follow_shutdown = self._shutdown.follow(scope)
        if follow_shutdown is not None:
            return follow_shutdown
        owner = scope.owner
        if owner is None or not owner.wants_machine or owner.phase is ClaimPhase.READY or contested(scope.claims):
            return None
        return self._boot.follow(scope, owner)


def needed(scope: SlotScope) -> bool:
    """Whether the slot has an operation that a monitor must follow."""
    if scope.reclaim is not None or contested(scope.claims):
        return False
    if any(not job.suspended for job in scope.unfinished()):
        return True
    owner = scope.owner
    if owner is None or not owner.wants_machine:
        return False
    return owner.phase is ClaimPhase.BOOTING or (owner.phase is ClaimPhase.PENDING and scope.power.value == "on")


class Monitors:
    """The running monitors, at most one per slot."""

    def __init__(self, monitor: OperationMonitor, clock: Clock, poll: float) -> None:
        self._monitor = monitor
        self._clock = clock
        self._poll = poll
        self._condition = threading.Condition()
        self._running: dict[tuple[str, str], bool] = {}
        self._stop: StopSignal | None = None

    def run(self, stop: StopSignal) -> None:
        """Runnable of the manager: allows monitors while it runs, and waits for them at its end."""
        with self._condition:
            self._stop = stop.child()
        stop.wait(None, self._clock)
        with self._condition:
            self._condition.notify_all()
            while self._running:
                self._clock.wait(self._condition, None)

    def ensure(self, namespace: str, name: str) -> None:
        """Make sure that the slot has a monitor and that it looks now."""
        key = (namespace, name)
        with self._condition:
            if self._stop is None or self._stop.is_set():
                return
            if key in self._running:
                self._running[key] = True
                self._condition.notify_all()
                return
            self._running[key] = True
        threading.Thread(target=self._follow, args=(key,), name=f"monitor-{name}", daemon=True).start()

    def wake(self, namespace: str, name: str) -> None:
        """Let a running monitor of the slot look now; nothing if there is none."""
        with self._condition:
            if (namespace, name) in self._running:
                self._running[namespace, name] = True
                self._condition.notify_all()

    def _follow(self, key: tuple[str, str]) -> None:
        stop = self._stop
        assert stop is not None
        structlog.contextvars.bind_contextvars(slot=f"{key[0]}/{key[1]}")
        try:
            while not stop.is_set():
                with self._condition:
                    self._running[key] = False
                wait = self._step(key)
                if wait is None and self._leave(key, only_if_idle=True):
                    return
                self._sleep(key, wait or 0.0, stop.is_set)
        except BaseException:
            self._leave(key)
            raise
        self._leave(key)

    def _leave(self, key: tuple[str, str], *, only_if_idle: bool = False) -> bool:
        """Give the slot up; with `only_if_idle` not if something woke the monitor while it decided to end."""
        with self._condition:
            if only_if_idle and self._running.get(key):
                return False
            self._running.pop(key, None)
            self._condition.notify_all()
            return True

    def _step(self, key: tuple[str, str]) -> float | None:
        try:
            again_at = self._monitor.step(*key)
        except ConflictError:
            return _CONFLICT_RETRY
        except LockRefusedError as refusal:
            return max(_CONFLICT_RETRY, (refusal.until - self._clock.now()).total_seconds())
        except ApiError as error:
            log.warning("monitor step failed", error=str(error))
            return _RETRY
        except Exception:
            log.exception("monitor step failed")
            return _RETRY
        if again_at is None:
            return None
        return min(self._poll, max(_CONFLICT_RETRY, (again_at - self._clock.now()).total_seconds()))

    def _sleep(self, key: tuple[str, str], seconds: float, stopped: Callable[[], bool]) -> None:
        until = self._clock.monotonic() + seconds
        with self._condition:
            while not self._running.get(key) and not stopped():
                remaining = until - self._clock.monotonic()
                if remaining <= 0:
                    return
                self._clock.wait(self._condition, remaining)
