"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch. `target` may be changed; the result may share parts with both arguments."""
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Any] = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(result.get(key), value)
        else:
            result[key] = value
    return result
