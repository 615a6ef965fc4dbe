"""StopSignal: the one way in which a part of the process is told to end."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.runtime.clock import Clock


class StopSignal:
    """A latch that many threads can wait for, in a tree: setting one sets every signal made from it.

    Guarantee: once `is_set` returned True it stays True, and every callback given to `on_set` has been or is being
    called. Non-guarantee: the order in which waiters and callbacks learn of it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._set = False
        self._children: weakref.WeakSet[StopSignal] = weakref.WeakSet()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_id = 0

    def set(self) -> None:
        """Ask everyone who listens to end. Repeating it does nothing."""
        with self._condition:
            if self._set:
                return
            self._set = True
            self._condition.notify_all()
            children = list(self._children)
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for child in children:
            child.set()
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        return self._set

    def wait(self, timeout: float | None, clock: Clock) -> bool:
        """Wait up to `timeout` seconds of `clock` (None: forever) and say whether the signal is set."""
        deadline = None if timeout is None else clock.monotonic() + timeout
        with self._condition:
            while not self._set:
                remaining = None if deadline is None else deadline - clock.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                clock.wait(self._condition, remaining)
            return self._set

    def child(self) -> StopSignal:
        """A signal that is set with this one, and can be set alone."""
        child = StopSignal()
        with self._condition:
            if not self._set:
                self._children.add(child)
                return child
        child.set()
        return child

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the signal is set (at once if it is), in the setter's thread.

        It is for waking something that waits elsewhere, such as a socket read; it must be quick and not raise.

        Returns:
            A function that takes the callback back; calling it late or twice is harmless.
        """
        with self._condition:
            if not self._set:
                key = self._next_id
                self._next_id += 1
                self._callbacks[key] = callback

                def remove() -> None:
                    with self._condition:
                        self._callbacks.pop(key, None)

                return remove
        callback()
        return lambda: None
