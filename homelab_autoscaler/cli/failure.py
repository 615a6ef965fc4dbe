"""How a command fails: one message on stderr that says what is wrong and what to do, and a documented exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command returns.

    FAILED: it could not do, or finish, what was asked. USAGE: what was asked makes no sense: wrong flag, value or
    configuration; asking again will not help. INTERRUPTED: Ctrl-C (128 + SIGINT, as shells expect).
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot go on. The text is for the person who typed it: what, why, and what helps.

    Attributes:
        code: the process's exit code.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """A flag, value or configuration is wrong; trying again will not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)
