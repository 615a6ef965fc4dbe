"""The guards of the product, each with a way to take it out and the bound at which its absence must show.

A guard that can be taken out without a counterexample is not checked by the search, or not needed. Each entry is a
function that patches the product in place, through pytest's monkeypatch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from homelab_autoscaler.claim.recorder import ClaimRecorder
from homelab_autoscaler.controllers import claim as claim_controller
from homelab_autoscaler.controllers.claim import ClaimReconciler
from homelab_autoscaler.controllers.slot import SlotReconciler
from homelab_autoscaler.lifecycle import boot, monitor, release, scope, shutdown
from homelab_autoscaler.lifecycle.boot import Boot
from homelab_autoscaler.lifecycle.jobs import Jobs
from homelab_autoscaler.lifecycle.lock import Locks
from homelab_autoscaler.lifecycle.node_marks import NodeMarks
from homelab_autoscaler.lifecycle.pulse import KubeletPulse, Pulse
from homelab_autoscaler.lifecycle.scope import LiveScopes, SlotScope
from homelab_autoscaler.phase import row

if TYPE_CHECKING:
    from collections.abc import Callable

OFF = "a claim for a machine that is off"
READY = "a ready machine"
UNWANTED = "an unwanted machine"
SICK = "a machine whose kubelet is not ready"
TWO = "two claims of one second"
LIED = "a shutdown that lied"
NEVER = "a machine that never joins"


@dataclass(frozen=True)
class Guard:
    """One guard.

    Attributes:
        remove: takes it out; is given monkeypatch and the stage (for guards that know who runs).
        start: where the search begins.
        intents, faults: its bound.
        breaks: part of the rule that must turn out broken.
    """

    remove: Callable
    start: str
    intents: int
    faults: int
    breaks: str


def _put(owner, name, value):
    return lambda patch: patch.setattr(owner, name, value)


def _input(**fields):
    """The law is asked with some facts left out."""

    def remove(patch):
        true = SlotScope.law_input
        patch.setattr(
            SlotScope, "law_input", lambda this, *, releasing="": replace(true(this, releasing=releasing), **fields)
        )

    return remove


def _claim_of_the_second_read(patch):
    true = release.still_asked
    patch.setattr(
        release,
        "still_asked",
        lambda seen, operation, claim_uid, job_uid: true(
            seen, operation, seen.owner.uid if seen and seen.owner else "", job_uid
        ),
    )


def _suspend(patch):
    for module in (boot, shutdown):
        true = module.build_job

        def running(*args, true=true):
            body = true(*args)
            body["spec"]["suspend"] = False
            return body

        patch.setattr(module, "build_job", running)


def _reclaim_read_last(patch):
    true = LiveScopes.read

    def read(this, namespace, name):
        seen = true(this, namespace, name)
        return replace(seen, reclaim=None) if seen else None

    patch.setattr(LiveScopes, "read", read)


def _versions(patch):
    """Writes of a claim's status land whatever happened to the claim since it was read."""
    true = ClaimRecorder._write

    def write(this, claim, fields, changes, **how):
        client, this._client = this._client, _Unbound(this._client)
        try:
            return true(this, claim, fields, changes, **how)
        finally:
            this._client = client

    patch.setattr(ClaimRecorder, "_write", write)


class _Unbound:
    def __init__(self, client):
        self._client = client

    def patch_status(self, current, status, *, resource_version=None):
        return self._client.patch_status(current, status)


def _contested(patch):
    patch.setattr(scope, "contested", lambda claims: False)
    patch.setattr(monitor, "contested", lambda claims: False)
    patch.setattr(SlotScope, "extra_claims", [])


def _one_at_a_time(patch):
    _input(other_job_unfinished=False)(patch)
    patch.setattr(SlotReconciler, "_end_reversed_boots", lambda this, seen, done: False)


def _names(patch):
    """Names that another process would not find again; `stage` of the lister tells which process runs."""
    true = Boot.begin

    def begin(this, seen, claim, adopting=None):
        generation = this._locks.owner.rpartition("/")[2]
        with_process = f"{claim.name}-startup-{generation}"
        patch.setattr(boot, "startup_job_name", lambda name, uid: with_process)
        return true(this, seen, claim, adopting)

    patch.setattr(Boot, "begin", begin)


GUARDS = {
    "the second read": Guard(_put(release, "still_asked", lambda *_: ""), UNWANTED, 1, 1, "wants the machine"),
    "the claim's uid in the second read": Guard(_claim_of_the_second_read, OFF, 1, 1, "does not want the machine"),
    "the reclaim in the second read": Guard(_reclaim_read_last, OFF, 1, 1, "owner's hands"),
    "row 0": Guard(_input(held=False), UNWANTED, 1, 1, "owner's hands"),
    "the look after the release": Guard(_put(release, "_gone_since", lambda *_: ""), UNWANTED, 1, 1, "and stays"),
    "Jobs are made suspended": Guard(_suspend, UNWANTED, 1, 1, "wants the machine"),
    "Jobs have deterministic names": Guard(_names, OFF, 0, 1, ""),
    "suspended Jobs are settled": Guard(
        _put(SlotReconciler, "_settle_suspended", lambda *_: False), UNWANTED, 0, 1, "stays for ever"
    ),
    "one operation at a time": Guard(_one_at_a_time, OFF, 1, 1, "while Job a-startup runs"),
    "reversed boots are ended": Guard(
        _put(SlotReconciler, "_end_reversed_boots", lambda *_: False), OFF, 1, 1, "stays for ever"
    ),
    "stray pods are seen off": Guard(_put(Jobs, "stop_strays", lambda *_: False), OFF, 1, 1, "while pod"),
    "the lock of a later leader binds": Guard(_put(Locks, "ours_to_take", lambda *_: True), UNWANTED, 0, 2, "binds"),
    "locks without an operation are cleared": Guard(
        _put(Locks, "clear_stale", lambda *_: False), OFF, 1, 1, "stays locked"
    ),
    "the finalizer comes before the Job": Guard(
        _put(Boot, "_finalize", lambda this, claim: claim), OFF, 1, 0, "does not remember"
    ),
    "claims are written at the version that was read": Guard(_versions, OFF, 1, 1, "moves from"),
    "power debt": Guard(_put(scope, "in_debt", lambda *_, **__: False), OFF, 1, 1, "a machine that is on"),
    "silence has to be seen": Guard(
        _put(KubeletPulse, "read", lambda *_: Pulse.SILENT), SICK, 1, 0, "a machine that is on"
    ),
    "off has to be confirmed": Guard(
        _put(claim_controller, "may_release", lambda value: row(value).number in (10, 12)), LIED, 0, 1, "that is on"
    ),
    "unknown is not silent": Guard(_put(SlotScope, "silent", True), LIED, 0, 1, "a machine that is on"),
    "a kubelet that lives is not off": Guard(_input(kubelet_alive=False), UNWANTED, 0, 1, "nothing says so"),
    "nothing fires while two claims are live": Guard(_contested, TWO, 0, 1, "two claims are live"),
    "the settle window": Guard(_put(SlotScope, "settle_until", lambda _: None), READY, 1, 0, "just switched"),
    "a shutdown in flight": Guard(_input(shutdown_in_flight=False), READY, 1, 0, "just switched"),
    "shutdowns are counted before their Job": Guard(
        _put(ClaimRecorder, "count_shutdown", lambda this, owner, *_: owner), READY, 1, 0, "without being counted"
    ),
    "shutdown attempts have a bound": Guard(
        _put(shutdown, "next_attempt", lambda attempts, *_: attempts + 1), READY, 1, 1, "in a row"
    ),
    "boots have a deadline": Guard(
        _put(claim_controller, "overdue", lambda *_: False), NEVER, 0, 1, "past its deadline"
    ),
    "a ready claim's machine is watched": Guard(
        _put(ClaimReconciler, "_watch_machine", lambda *_: None), READY, 0, 1, "stays ready"
    ),
    "node objects of machines that are off go": Guard(
        _put(NodeMarks, "delete", lambda *_: None), READY, 1, 0, "node object"
    ),
}
