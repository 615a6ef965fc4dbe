"""Structured logs: readable lines on a terminal, one JSON object per line everywhere else."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _missing(name: str) -> Iterator[None]:
    """Meanwhile a module that is not loaded yet counts as not installed."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        yield
    finally:
        del sys.modules[name]


# structlog loads rich, and with it pygments, wherever they are installed: 4 MiB for tracebacks that are plain here.
with _missing("rich"):
    import structlog


class LogFormat(StrEnum):
    """How log lines look."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """From which importance on something is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logs(level: LogLevel = LogLevel.INFO, style: LogFormat = LogFormat.AUTO) -> None:
    """Send the logs of this process to stderr.

    Args:
        level: what is less important is dropped before it is formatted.
        style: AUTO is CONSOLE on a terminal and JSON else.
    """
    console = style is LogFormat.CONSOLE or (style is LogFormat.AUTO and sys.stderr.isatty())
    number = getattr(logging, level.value.upper())
    render: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if console else "iso", utc=not console, key="time"),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries that use the standard library's logging: their warnings matter, their chatter does not.
    logging.basicConfig(
        stream=sys.stderr, level=max(number, logging.WARNING), format="%(levelname)s %(name)s: %(message)s"
    )
