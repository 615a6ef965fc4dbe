"""What a process that runs for months asks of the C library's heap. Without glibc nothing happens."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_KIB: Final = 1024


def return_large_blocks() -> None:
    """Give large blocks back to the kernel as soon as they are free, and share arenas between threads.

    Left alone glibc takes the first large block that is freed, such as an answer of the API server with every claim of
    a pool, as a sign to keep blocks of that size from then on, in an arena for every few threads.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 128 * _KIB)
        mallopt(_TRIM_THRESHOLD, 128 * _KIB)
        mallopt(_ARENA_MAX, 2)
