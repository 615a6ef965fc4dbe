"""A group of runnables that start together and stop together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from homelab_autoscaler.runtime.stop import StopSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.manager.options import Runnable


class GroupStopped(RuntimeError):  # noqa: N818 - says what is the case
    """A runnable came when its group was being stopped already."""


class RunnableGroup:
    """Runnables, one thread each.

    What is added before `start` waits for it; what is added later starts at once. Each group has its own stop signal,
    so that groups end one after the other.
    """

    def __init__(self, name: str, clock: Clock, on_failure: Callable[[str, Exception], None]) -> None:
        self.name = name
        self._clock = clock
        self._on_failure = on_failure
        self._stop = StopSignal()
        self._condition = threading.Condition()
        self._waiting: list[Runnable] = []
        self._running: dict[threading.Thread, str] = {}
        self._started = False

    def add(self, runnable: Runnable) -> None:
        """Add a runnable.

        Raises:
            GroupStopped: the group is stopping or has stopped.
        """
        with self._condition:
            if self._stop.is_set():
                raise GroupStopped(f"{_name(runnable)} comes too late: the manager is stopping")
            if not self._started:
                self._waiting.append(runnable)
                return
            self._begin(runnable)

    def start(self) -> None:
        """Start everything that was added. Repeating it does nothing."""
        with self._condition:
            if self._started or self._stop.is_set():
                return
            self._started = True
            for runnable in self._waiting:
                self._begin(runnable)
            self._waiting.clear()

    def runnables(self) -> list[Runnable]:
        """What was added and has not started."""
        with self._condition:
            return list(self._waiting)

    def signal(self) -> None:
        """Ask everything to stop, without waiting."""
        with self._condition:
            self._waiting.clear()
        self._stop.set()

    def join(self, timeout: float | None) -> list[str]:
        """Wait for the end of all; returns the names of those that still run after `timeout` seconds."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._condition:
            while self._running:
                remaining = None if deadline is None else deadline - self._clock.monotonic()
                if remaining is not None and remaining <= 0:
                    return sorted(self._running.values())
                self._clock.wait(self._condition, remaining)
            return []

    def _begin(self, runnable: Runnable) -> None:
        name = _name(runnable)
        thread = threading.Thread(target=self._run, args=(runnable, name), name=f"{self.name}/{name}", daemon=True)
        self._running[thread] = name
        thread.start()

    def _run(self, runnable: Runnable, name: str) -> None:
        try:
            runnable.run(self._stop)
        except Exception as error:  # noqa: BLE001 - handed to the manager, which raises it
            self._on_failure(name, error)
        finally:
            with self._condition:
                self._running.pop(threading.current_thread(), None)
                self._condition.notify_all()


def _name(runnable: Runnable) -> str:
    return str(getattr(runnable, "name", None) or type(runnable).__name__)
