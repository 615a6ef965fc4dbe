"""Merging of status conditions: by type, and a transition time that moves only with the status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api.meta import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


LONGEST_MESSAGE: Final = 1024
"""Characters of a message; as long as Kubernetes lets the message of an Event be."""


def condition(
    kind: str,
    status: bool | None,  # noqa: FBT001 - a condition is its status; it reads as kind, True, reason
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
) -> Condition:
    """A condition to be merged; `status` None is Unknown. The merge sets its transition time."""
    text = "Unknown" if status is None else str(status)
    said = readable(message)
    return Condition(type=kind, status=text, reason=reason, message=said, observed_generation=observed_generation)


def readable(text: str, limit: int = LONGEST_MESSAGE) -> str:
    """Text of other people's making, for a message: one printable line of at most `limit` characters.

    Nodes and owners say what they like and as much as they like. A message that the schema refuses would keep the
    write that carries it from ever being made; one with control characters would write to people's terminals.
    """
    line = "".join(character if character.isprintable() else " " for character in text[: limit + 1])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def merge_conditions(current: Sequence[Condition], changes: Iterable[Condition], now: datetime) -> list[Condition]:
    """`current` with `changes` put in by type, in stable order.

    A change with the status of before keeps the transition time of before, so that a condition's time says since
    when it holds. An unchanged condition is returned as it was, so that writing the result changes nothing.
    """
    merged = {entry.type: entry for entry in current}
    for change in changes:
        before = merged.get(change.type)
        since = before.last_transition_time if before and before.status == change.status else now
        merged[change.type] = change.model_copy(update={"last_transition_time": since})
    return list(merged.values())


def without(current: Sequence[Condition], *kinds: str) -> list[Condition]:
    """`current` without the conditions of these types."""
    return [entry for entry in current if entry.type not in kinds]
