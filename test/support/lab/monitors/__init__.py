"""Guarantees that are watched over the record of every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homelab_autoscaler.settings import Settings
    from lab.interposer import Write
    from lab.record import Record


def check(record: Record, wire: Sequence[Write], settings: Settings, *, ended: bool) -> list[str]:
    """What a run violated, one line each."""
    del record, wire, settings, ended
    return []
