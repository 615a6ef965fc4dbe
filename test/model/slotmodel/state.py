"""A state of the search: everything that can make a difference later, and nothing else."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from homelab_api import names

from .stored import Stored, store

LIMIT_RIVAL = 2
"""Ticks within which a leader that lost its lease finds out."""
LIMIT_SUSPENDED = 4
"""Ticks after which a suspended pass of an earlier leader is taken for dead."""


class Suspended(NamedTuple):
    """A pass that stopped in its middle: a paused leader, or a thread that got no turn.

    Attributes:
        which: the pass.
        view: what its caches showed.
        past: ((kind, name), answer), and age in ticks, of each API call that it made.
        age: ticks since it began.
        memory: what its process knew of the kubelet when it began.
        generation: lease transitions of its process.
        armed: it asked the API server last, and its next call is the release that it asked about.
    """

    which: str
    view: tuple[Stored, ...]
    past: tuple
    age: int
    memory: tuple
    generation: int
    armed: bool

    def older(self):
        return self._replace(
            view=tuple(entry.shifted for entry in self.view),
            past=tuple(((asked, _older(answer)), age + 1) for (asked, answer), age in self.past),
            age=self.age + 1,
        )

    def uids(self):
        found = {entry.uid for entry in self.view}
        for (_, answer), _ in self.past:
            if isinstance(answer, Stored):
                found.add(answer.uid)
            elif isinstance(answer, tuple):
                found |= {entry.uid for entry in answer}
        return frozenset(found)


def _older(answer):
    if isinstance(answer, Stored):
        return answer.shifted
    if isinstance(answer, tuple):
        return tuple(entry.shifted for entry in answer)
    return answer


_NUMBERED = re.compile(r"s-shutdown-(\d+)")


def _renumbered(objects):
    """Numbers of shutdowns only have an order: the ones that are still named are counted anew from 1."""
    slot = next(entry for entry in objects if entry.kind == "Node")
    last = int(slot.body["metadata"].get("annotations", {}).get(names.ANNOTATION_SHUTDOWN_SEQ, "0"))
    if last <= 1:
        return objects
    named = {int(number) for entry in objects for number in _NUMBERED.findall(entry.text)} | {last}
    if len(named) == last:
        return objects
    new = {old: place for place, old in enumerate(sorted(named), 1)}
    return tuple(sorted((_renamed(entry, new, last) for entry in objects), key=lambda entry: entry.key))


def _renamed(entry, new, last):
    text = _NUMBERED.sub(lambda found: f"s-shutdown-{new[int(found[1])]}", entry.text)
    body = json.loads(text)
    if entry.kind == "Node":
        body["metadata"]["annotations"][names.ANNOTATION_SHUTDOWN_SEQ] = str(new[last])
    return store(entry.kind, body)


class State(NamedTuple):
    """One state.

    Attributes:
        objects: what the API server stores, by kind and name.
        power: whether the machine is truly on.
        silent: ticks since its kubelet ran last, at most 2.
        generation: lease transitions of the leader.
        monitoring: whether the leader follows the slot's operation.
        memory: what the leader knows of the kubelet.
        suspended: a pass that stopped in its middle.
        rival: lease transitions of an earlier leader that does not know yet that it lost; it makes whole passes.
        rival_age: ticks since it lost.
        frozen: parts of the world that get no turn.
        asked: claims whose power-on was released already.
        made: claims that exist or existed.
        meddled: somebody switched the machine by hand.
        lied: a shutdown script reported success and did nothing.
        intents: how many more times people change their minds.
        faults: how many more things go wrong.
        spotless: nothing has gone wrong yet.
    """

    objects: tuple[Stored, ...]
    power: bool = False
    silent: int = 2
    generation: int = 0
    monitoring: bool = False
    memory: tuple = ()
    suspended: Suspended | None = None
    rival: int | None = None
    rival_age: int = 0
    frozen: frozenset = frozenset()
    asked: frozenset = frozenset()
    made: frozenset = frozenset()
    meddled: bool = False
    lied: bool = False
    intents: int = 0
    faults: int = 0
    spotless: bool = True

    def canonical(self):
        """The state without versions that nobody can compare with."""
        if self.suspended is not None:
            return self
        objects = tuple(entry.settled for entry in self.objects)
        if not any(entry.kind == "Job" for entry in objects):
            objects = tuple(entry.without_jobs if entry.kind == "NodeClaim" else entry for entry in objects)
        objects = _renumbered(objects)
        return self if objects == self.objects else self._replace(objects=objects)

    def find(self, kind, name):
        return next((entry for entry in self.objects if entry.kind == kind and entry.name == name), None)

    def all(self, kind):
        return [entry for entry in self.objects if entry.kind == kind]

    def put(self, *changes):
        """With objects stored, or removed if given as (kind, name)."""
        world = {entry.key: entry for entry in self.objects}
        for change in changes:
            if not isinstance(change, Stored):
                world.pop(change, None)
                continue
            before = world.get(change.key)
            if before is None:
                world[change.key] = change
            elif not change.same_content(before):
                world[change.key] = change.at_version(before.version + 1)
        return self._replace(objects=tuple(world[key] for key in sorted(world)))
