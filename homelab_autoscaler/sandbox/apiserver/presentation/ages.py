"""Times as people read them in tables."""

from __future__ import annotations

from datetime import datetime


def age(text: str | None, now: datetime) -> str:
    """How long ago a time was: `45s`, `7m14s`, `3d5h`; `<unknown>` without one, `<invalid>` for the future."""
    if not text:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<invalid>"
    return human((now - moment).total_seconds())


def human(seconds: float) -> str:
    """A duration with at most two units, coarser the longer it is."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        rest = whole % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if days < 2920 and rest:
        return f"{years}y{rest}d"
    return f"{years}y"
