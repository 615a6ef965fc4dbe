"""What a faulted run is compared by: the masked end state, creates and deletes per object, and the power ledger.

Source: reliability practice of Sieve (OSDI'22): "wrong, then healed" shows only in counts, and a machine's power is
outside of the API, so that its ledger is part of the oracle. What may differ is listed here, each with its reason.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.record import Change, Command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lab.interposer import Names
    from lab.record import Record

_STATE = ("slot", "claim", "reclaim", "group", "node", "job")
"""Kinds whose end state is compared. Pods follow their Jobs; Leases and Events are benign extras."""
_COUNTED = ("slot", "claim", "reclaim", "group", "node", "job")

_MASKS = tuple(
    re.compile(pattern)
    for pattern in (
        # The server's own bookkeeping.
        r".*metadata\.(resourceVersion|generation|managedFields.*|uid|creationTimestamp|selfLink)",
        r".*\.observedGeneration",
        # A random number of its creator.
        r"claim .*request-id",
        # Text for people may name durations and counts of what was waited for.
        r".*\.message",
        # Rows of the display ring show what passes saw; passes differ, what they report at the end does not.
        r"slot .*status\.(recentTransitions.*|previousPhase)",
        # The last change of the target that a pass saw: a change and its counter-change between two passes is none.
        r"group .*status\.lastScale(At|Action)",
        # Heartbeats and conditions of the kubelet.
        r"node .*status\..*",
        # The Job controller's part of a Job.
        r"job .*status\.(?!succeeded|failed).*",
        r"job .*metadata\.(labels|annotations).*",
        # A lock that was taken over was taken anew; releases of the last hour carry their instants.
        r"slot .*shutdown-ledger",
    )
)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Outcome:
    """What a run left behind, as far as it must not depend on faults.

    Attributes:
        state: value by path of every object that exists at the end, without what is masked.
        counts: creates and deletes by object.
        ledger: power commands in order.
    """

    state: dict[str, object]
    counts: dict[str, tuple[int, int]]
    ledger: list[str]

    def differences(
        self, clean: Outcome, volatile: frozenset[str] = frozenset(), benign: Sequence[str] = ()
    ) -> list[str]:
        """How this run differs from the clean one.

        Args:
            clean: the clean run.
            volatile: paths that differ between clean runs already.
            benign: patterns of paths that may differ.
        """
        mine, theirs = _objects(self.state), _objects(clean.state)
        lines = [f"state {name} is there, in the clean run it is not" for name in sorted(mine - theirs)]
        lines += [f"state {name} is not there, in the clean run it is" for name in sorted(theirs - mine)]
        lines += [
            f"state {path}: {clean.state.get(path, '(absent)')} -> {self.state.get(path, '(absent)')}"
            for path in sorted(self.state.keys() | clean.state.keys())
            if path not in volatile
            and _object(path) in mine & theirs
            and not any(re.fullmatch(pattern, path) for pattern in benign)
            and self.state.get(path) != clean.state.get(path)
        ]
        for name in sorted(self.counts.keys() | clean.counts.keys()):
            found, expected = self.counts.get(name, (0, 0)), clean.counts.get(name, (0, 0))
            if found != expected and not _benign(name, found, expected):
                lines.append(f"counts {name}: (created, deleted) {expected} -> {found}")
        if self.ledger != clean.ledger:
            lines.append(f"ledger {clean.ledger} -> {self.ledger}")
        return lines


def outcome(record: Record, names: Names) -> Outcome:
    """Judge a run by its record."""
    for change in record.changes():
        if change.kind == "claim" and change.created:
            names.plain(change.name)  # Numbered as they came, also those that no manager of the first life has seen.
    state = {
        path: value
        for (kind, name), body in sorted(record.objects().items())
        if kind in _STATE
        for path, value in _flat(body, f"{kind} {names.plain(name)} ", names)
    }
    created: Counter[str] = Counter()
    deleted: Counter[str] = Counter()
    ledger = []
    for entry in record.entries():
        if isinstance(entry, Change) and entry.kind in _COUNTED:
            label = f"{entry.kind} {names.plain(entry.name)}"
            created[label] += entry.created
            deleted[label] += entry.deleted
        elif isinstance(entry, Command):
            ledger.append(f"{entry.command} {entry.result}")
    counts = {label: (created[label], deleted[label]) for label in created | deleted}
    return Outcome({path: value for path, value in state.items() if not _masked(path)}, counts, ledger)


def _object(path: str) -> str:
    """Kind and name of the object that a path of the state is in."""
    return " ".join(path.split(" ", 2)[:2])


def _objects(state: Iterable[str]) -> set[str]:
    return {_object(path) for path in state}


def volatile(runs: Sequence[Outcome]) -> frozenset[str]:
    """Paths whose values differ between clean runs: nothing can be said about them."""
    paths = {path for run in runs for path in run.state}
    return frozenset(path for path in paths if len({repr(run.state.get(path, "(absent)")) for run in runs}) > 1)


def _benign(name: str, found: tuple[int, int], expected: tuple[int, int]) -> bool:
    """One lifecycle Job more, deleted again: withdrawn before its release and created anew under the same name."""
    extra = (found[0] - expected[0], found[1] - expected[1])
    return name.startswith("job ") and extra == (1, 1)


def _masked(path: str) -> bool:
    return any(mask.fullmatch(path) for mask in _MASKS)


def _flat(value: Any, path: str, names: Names) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _flat(entry, f"{path}{'' if path.endswith(' ') else '.'}{key}", names)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            key = entry.get("type", entry.get("name", index)) if isinstance(entry, dict) else index
            yield from _flat(entry, f"{path}.{names.plain(str(key))}", names)
    elif isinstance(value, str):
        yield path, _UID.sub("<uid>", _INSTANT.sub("<instant>", names.plain(value)))
    else:
        yield path, value
