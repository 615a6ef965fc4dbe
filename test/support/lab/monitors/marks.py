"""Guarantees about marks on other people's objects, and about the requests that change things."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from homelab_api import names
from lab.monitors.base import Monitor, annotations, instant, phase, wants_machine
from lab.record import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject
    from lab.interposer import Write
    from lab.monitors.base import Stage
    from lab.record import Entry

_OUR_TAINTS: Final = {
    names.TAINT_DRAINING,
    names.TAINT_RECLAIMED,
    names.TAINT_RETURNING,
    names.TAINT_TO_BE_DELETED,
    names.TAINT_DELETION_CANDIDATE,
}
_OUR_PREFIXES: Final = (f"{names.GROUP}/", "homelab-autoscaler.dev/", names.ANNOTATION_SCALE_DOWN_DISABLED)
_RECLAIM_REQUEST: Final = (
    names.ANNOTATION_RECLAIM_REQUESTED,
    names.ANNOTATION_RECLAIM_REASON,
    names.ANNOTATION_RECLAIM_REQUESTED_AT,
)
_SLACK: Final = 5.0
"""Seconds for a busy test machine."""


class UidsCompared(Monitor):
    """S4: a delete names the uid, a release tests uid and suspension, a finalizer goes from a known version."""

    guarantee = "S4"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        del entry, stage
        return iter(())

    def end(self, stage: Stage) -> Iterator[str]:
        for write in stage.history.wire:
            wrong = self._judge(write)
            if wrong:
                yield f"{write}: {wrong}"

    def _judge(self, write: Write) -> str:
        if write.method == "DELETE":
            return "" if (write.json.get("preconditions") or {}).get("uid") else "a delete without a uid"
        if write.method != "PATCH":
            return ""
        body = write.json
        if isinstance(body, list):
            tested = {step["path"] for step in body if step["op"] == "test"}
            releases = any(step["op"] == "replace" and step["path"] == "/spec/suspend" for step in body)
            needed = {"/metadata/uid", "/metadata/deletionTimestamp", "/spec/suspend"}
            return "a release that compares too little" if releases and not needed <= tested else ""
        metadata = body.get("metadata") or {}
        if "finalizers" in metadata and not metadata.get("resourceVersion"):
            return "finalizers written over an unknown version"
        return ""


class OnlyOurMarksRemoved(Monitor):
    """S7: cordons, taints, annotations, labels, finalizers and locks of others stay."""

    guarantee = "S7"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if not isinstance(entry, Change) or entry.before is None or entry.after is None or not stage.author(entry):
            return
        yield from self._metadata(entry, entry.before, entry.after)
        if entry.kind == "node":
            yield from self._node(entry, entry.before, entry.after, stage)
        if entry.kind == "slot":
            yield from self._lock(entry, entry.before, entry.after, stage)

    def _metadata(self, entry: Change, before: JsonObject, after: JsonObject) -> Iterator[str]:
        for field in ("annotations", "labels"):
            gone = (before["metadata"].get(field) or {}).keys() - (after["metadata"].get(field) or {}).keys()
            foreign = [key for key in gone if not key.startswith(_OUR_PREFIXES) and key not in _RECLAIM_REQUEST]
            if foreign:
                yield f"{field} {foreign} of {entry.kind} {entry.name} removed"
        gone_finalizers = set(before["metadata"].get("finalizers") or []) - set(
            after["metadata"].get("finalizers") or []
        )
        foreign = [finalizer for finalizer in gone_finalizers if not finalizer.startswith(f"{names.GROUP}/")]
        if foreign:
            yield f"finalizers {foreign} of {entry.kind} {entry.name} removed"

    def _node(self, entry: Change, before: JsonObject, after: JsonObject, stage: Stage) -> Iterator[str]:
        uncordoned = before["spec"].get("unschedulable") and not after["spec"].get("unschedulable")
        if uncordoned and names.ANNOTATION_CORDONED_BY not in annotations(before):
            yield f"node {entry.name} uncordoned, which somebody else had cordoned"
        slot = next((s for s in stage.all("slot") if s["spec"]["kubernetesNodeName"] == entry.name), None)
        asked = {taint["key"] for taint in (slot["spec"].get("taintsToRemove") or [])} if slot else set()
        kept = {(taint["key"], taint["effect"]) for taint in after["spec"].get("taints") or []}
        for taint in before["spec"].get("taints") or []:
            if (taint["key"], taint["effect"]) not in kept and taint["key"] not in _OUR_TAINTS | asked:
                yield f"taint {taint['key']} of node {entry.name} removed"

    def _lock(self, entry: Change, before: JsonObject, after: JsonObject, stage: Stage) -> Iterator[str]:
        owner = annotations(before).get(names.ANNOTATION_LOCK_OWNER)
        if owner is None or owner == annotations(after).get(names.ANNOTATION_LOCK_OWNER):
            return
        author = stage.author(entry)
        expires = lock_expiry(before)
        expired = expires is not None and entry.at >= expires
        superseded = 0 <= _generation(owner) < _generation(author)
        if owner != author and not expired and not superseded:
            yield f"lock of {owner} on slot {entry.name} taken away by {author}"


class NothingOutlivesItsOperation(Monitor):
    """L4: no lock outlives its stated timeout plus one pass; no cordon of ours outlives its operation."""

    guarantee = "L4"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if not isinstance(entry, Change) or entry.kind != "slot" or entry.before is None:
            return
        yield from self._overdue(entry.name, entry.before, entry.at, stage)

    def end(self, stage: Stage) -> Iterator[str]:
        assert stage.history.ended_at is not None
        authors = {write.author for write in stage.history.wire}
        for slot in stage.all("slot"):
            name = slot["metadata"]["name"]
            yield from self._overdue(name, slot, stage.history.ended_at, stage)
            if annotations(slot).get(names.ANNOTATION_LOCK_OWNER) in authors:
                yield f"slot {name} is still locked at rest"
            node = stage.objects.get(("node", slot["spec"]["kubernetesNodeName"]))
            serving = any(wants_machine(claim) and phase(claim) == "ready" for claim in stage.claims(name))
            if node is not None and serving and names.ANNOTATION_CORDONED_BY in annotations(node):
                yield f"node {node['metadata']['name']} serves and still carries our cordon"

    def _overdue(self, name: str, slot: JsonObject, at: datetime, stage: Stage) -> Iterator[str]:
        expires = lock_expiry(slot)
        grace = timedelta(seconds=stage.history.settings.idle_resync + _SLACK)
        if expires is not None and at > expires + grace:
            yield f"lock of {annotations(slot)[names.ANNOTATION_LOCK_OWNER]} on slot {name} outlived its timeout"


def lock_expiry(slot: JsonObject) -> datetime | None:
    """When the lock on a slot stops binding; None without one."""
    marks = annotations(slot)
    taken = instant(marks.get(names.ANNOTATION_LOCK_TIMESTAMP))
    if taken is None or names.ANNOTATION_LOCK_OWNER not in marks:
        return None
    return taken + timedelta(seconds=float(marks.get(names.ANNOTATION_LOCK_TIMEOUT, "0")))


def _generation(owner: str) -> int:
    transitions = owner.rpartition("/")[2]
    return int(transitions) if transitions.isdigit() else -1
