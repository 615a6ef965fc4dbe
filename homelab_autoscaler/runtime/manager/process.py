"""The outermost layer: signals in, exit code out."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from homelab_autoscaler.runtime.leaderelection import LeadershipLost
from homelab_autoscaler.runtime.stop import StopSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from homelab_autoscaler.runtime.manager.manager import Manager

EXIT_FAILED = 1
_YOUNG: Final = 10_000
"""New containers before the collector of cycles looks at them (Python's own figure is 700)."""


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


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector of reference cycles run rarely, and never over what was there before.

    A decoded object is some thirty containers without a cycle: at Python's pace a tenth of a busy operator's time goes
    into looking for garbage in its modules and in its cache. Memory without cycles is freed as ever, at once.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run_process(manager: Manager, stop: StopSignal | None = None, end: Callable[[], NoReturn] = exit_now) -> None:
    """Run a manager as the business of this process; call it from the main thread.

    A lost lease ends the process at once through `end`. Other errors are raised for the caller to report.
    """
    stop = stop or StopSignal()
    stop_on_signals(stop)
    try:
        with rare_collections():
            manager.run(stop)
    except LeadershipLost:
        end()
