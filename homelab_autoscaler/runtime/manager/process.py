"""The outermost layer: signals in, exit code out."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from homelab_autoscaler.runtime.leaderelection import LeadershipLost
from homelab_autoscaler.runtime.stop import StopSignal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from homelab_autoscaler.runtime.manager.manager import Manager

EXIT_FAILED = 1


def exit_now(code: int = EXIT_FAILED) -> NoReturn:
    """End the process without running anything more: no handlers, no waiting threads, no releases."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def stop_on_signals(stop: StopSignal, on_second: Callable[[], None] = exit_now) -> None:
    """SIGTERM and SIGINT stop; a second one ends the process at once. Main thread only."""

    def handle(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if stop.is_set():
            on_second()
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def run_process(manager: Manager, stop: StopSignal | None = None, end: Callable[[], NoReturn] = exit_now) -> None:
    """Run a manager as the business of this process; call it from the main thread.

    A lost lease ends the process at once through `end`. Other errors are raised for the caller to report.
    """
    stop = stop or StopSignal()
    stop_on_signals(stop)
    try:
        manager.run(stop)
    except LeadershipLost:
        end()
