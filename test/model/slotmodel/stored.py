"""API objects as interned, canonical values.

Two states of the search are the same if their objects are the same texts, so everything that must not tell states
apart is taken out when an object is stored: reports (nothing may read them to decide, and a search without them shows
that nothing does), messages, and instants that are older than any number of the settings. "Now" is always the same
instant: when time passes, the instants on the objects move back instead.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import cached_property

import orjson

from homelab_api import names
from homelab_api.core import CoreNode, Job, Lease, Pod
from homelab_api.v2alpha1 import ClaimCondition, Group, Node, NodeClaim, NodeReclaim, SlotCondition

TICK = 10
"""Seconds of a step of time."""
OLDEST = 16
"""Age in ticks beyond which an instant does not grow older: more than any number of the settings."""
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

KINDS = {kind.__name__: kind for kind in (Node, Group, NodeClaim, NodeReclaim, CoreNode, Job, Pod, Lease)}
_INSTANT = re.compile(r"2030-01-01T\d\d:\d\d:\d\dZ")
_AHEAD = 30


_INSTANTS = {
    age: (NOW - timedelta(seconds=TICK * age)).strftime("%Y-%m-%dT%H:%M:%SZ") for age in range(-_AHEAD, OLDEST + 1)
}
_AGES = {text: age for age, text in _INSTANTS.items()}


def instant(age=0):
    """The text of the instant `age` ticks ago; negative ages lie ahead."""
    return _INSTANTS[min(age, OLDEST)]


_OLDER = {text: instant(age + 1) for age, text in _INSTANTS.items()}


def age_of(text):
    """How many ticks ago an instant was."""
    return _AGES[text]


class Stored:
    """One version of one object. Interned: equal objects are the same object, so hashing a state is cheap."""

    __slots__ = ("__dict__", "body", "kind", "name", "text")

    def __init__(self, kind, body, text):
        self.kind = kind
        self.name = body["metadata"]["name"]
        self.body = body
        self.text = text

    @cached_property
    def key(self):
        return (self.kind, self.name)

    @cached_property
    def model(self):
        return KINDS[self.kind].from_json(self.body)

    @cached_property
    def older(self):
        """The same object one tick later."""
        text = _INSTANT.sub(lambda found: _OLDER[found.group()], self.text)
        return self if text == self.text else store(self.kind, json.loads(text))

    @cached_property
    def shifted(self):
        """As `older`, for a copy that somebody remembers: its instants keep their distances."""
        text = _INSTANT.sub(lambda found: _OLDER[found.group()], self.text)
        return self if text == self.text else _intern(self.kind, text)

    @cached_property
    def settled(self):
        """With the version that objects have while nobody holds an old copy of them."""
        return self.at_version(1)

    @cached_property
    def without_jobs(self):
        """A claim of a slot without Jobs: when its boot was asked for matters to running boots and to Jobs alone."""
        status = self.body["status"]
        if "startedAt" not in status or status.get("phase") in (None, "pending", "booting"):
            return self
        return store(self.kind, {**self.body, "status": {**status, "startedAt": instant(OLDEST)}})

    @property
    def version(self):
        return int(self.body["metadata"]["resourceVersion"])

    def at_version(self, version):
        if self.version == version:
            return self
        metadata = {**self.body["metadata"], "resourceVersion": str(version)}
        return store(self.kind, {**self.body, "metadata": metadata})

    def same_content(self, other):
        return self is other or self.settled is other.settled

    @property
    def uid(self):
        return self.body["metadata"]["uid"]

    def __repr__(self):
        return f"<{self.kind} {self.name}>"


_table = {}


def _intern(kind, text):
    found = _table.get((kind, text))
    if found is None:
        found = _table[kind, text] = Stored(kind, json.loads(text), text)
    return found


def store(kind, body):
    """The interned form of an object."""
    canonical = _CANONICAL.get(kind, lambda entry: entry)(body)
    return _intern(kind, orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS).decode())


def forget_everything():
    """Drop the table, so that runs do not hold on to each other's objects."""
    _table.clear()


# --- what does not tell states apart ---------------------------------------------------------------------------------

_VISIBLE = {
    SlotCondition.NEEDS_HUMAN,
    SlotCondition.POWER_UNKNOWN,
    SlotCondition.POWER_FLAPPING,
    SlotCondition.KUBELET_ALIVE,
    SlotCondition.PROTECTED,
}
FLAPPING_TICKS = 3
"""The window over which releases of shutdown Jobs are counted; the settings use it, too."""


def _capped(entry, **limits):
    """With instants that are older than what they are compared with made equally old."""
    found = {name: at for name, at in entry.items() if name in limits and at is not None and _AGES[at] > limits[name]}
    return {**entry, **{name: _INSTANTS[limits[name]] for name in found}} if found else entry


def _conditions(status, timed=None, keep=None):
    entries = []
    for entry in status.get("conditions", ()):
        if keep is not None and entry["type"] not in keep:
            continue
        kept = {"type": entry["type"], "status": entry["status"]}
        if entry["type"] == timed and "lastTransitionTime" in entry:
            kept["lastTransitionTime"] = entry["lastTransitionTime"]
            kept = _capped(kept, lastTransitionTime=8)
        entries.append(kept)
    return sorted(entries, key=lambda entry: entry["type"])


def _slot(body):
    status = body.get("status", {})
    kept = {"conditions": _conditions(status, keep=_VISIBLE)}
    if status.get("lastClaim"):
        last = {key: value for key, value in status["lastClaim"].items() if key not in ("deadlineAt", "requestedAt")}
        kept["lastClaim"] = _capped(last, finishedAt=6, streakAt=6)
    metadata = body["metadata"]
    annotations = _capped(metadata.get("annotations", {}), **{names.ANNOTATION_LOCK_TIMESTAMP: 3})
    ledger = annotations.get(names.ANNOTATION_SHUTDOWN_LEDGER)
    if ledger:
        entry = json.loads(ledger)
        entry["releases"] = [at for at in entry.get("releases", []) if _AGES[at] < FLAPPING_TICKS]
        text = json.dumps(_capped(entry, lastAttemptAt=6), separators=(",", ":"))
        annotations = {**annotations, names.ANNOTATION_SHUTDOWN_LEDGER: text}
    return {"metadata": {**metadata, "annotations": annotations}, "spec": body["spec"], "status": kept}


def _claim(body):
    status = {key: value for key, value in body.get("status", {}).items() if key != "message"}
    status["conditions"] = _conditions(status, timed=ClaimCondition.MACHINE_OBSERVED_OFF)
    status = _capped(status, readyAt=0, finishedAt=6, lastShutdownAttemptAt=6)
    if "readyAt" in status:
        status["readyAt"] = _INSTANTS[OLDEST]
    spec = {**body["spec"], "requestedAt": _INSTANTS[OLDEST]}
    if status.get("phase") in ("ready", "failed", "completed") and spec.get("deadlineAt"):
        spec["deadlineAt"] = _INSTANTS[OLDEST]
    metadata = _capped(body["metadata"], deletionTimestamp=0, creationTimestamp=_YOUNGEST[body["metadata"]["name"]])
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if k != names.ANNOTATION_REQUEST_ID}
    return {"metadata": {**metadata, "annotations": annotations}, "spec": spec, "status": status}


_YOUNGEST = {"a": 4, "b": 3}
"""Claims are made in the order of their names; older than the lock window (2) only the order matters."""


def _job(body):
    status = body.get("status", {})
    return {
        "metadata": body["metadata"],
        "spec": {"suspend": body["spec"].get("suspend", False)},
        "status": _capped(status, startTime=4),
    }


def _node(body):
    return {**body, "metadata": _capped(body["metadata"], creationTimestamp=3)}


def _marked_once(body):
    return {**body, "metadata": _capped(body["metadata"], deletionTimestamp=1)}


_CANONICAL = {
    "Node": _slot,
    "NodeClaim": _claim,
    "Job": _job,
    "CoreNode": _node,
    "Pod": _marked_once,
    "NodeReclaim": _marked_once,
}
