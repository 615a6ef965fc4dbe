"""Reading annotations: whoever may write a slot can have written anything into them.

Each reader gives None for what is none of ours. What it does give can be computed with: instants have a timezone and
stay far from the ends of the calendar, numbers are finite and of a size that something of ours could have written.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 30 * 86400.0
_DIGITS: Final = 9


def instant(text: object) -> datetime | None:
    """An instant in ISO 8601 with its timezone."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if found is None or found.tzinfo is None:
        return None
    return found if _EARLIEST <= found <= _LATEST else None


def seconds(text: object) -> float | None:
    """A length of time of at most thirty days."""
    try:
        found = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return None
    return found if 0 <= found <= _LONGEST else None


def count(value: object) -> int | None:
    """A whole number from 0 on, as text or as a number."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**_DIGITS else value
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    return int(text)
