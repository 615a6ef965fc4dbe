"""One writer for each field, mark and kind: asserted on the source.

Whatever two places of the code write, they write differently one day. A field is written by the module that names it
as a key, an annotation or finalizer is touched by the modules that name its constant, and a kind is written by the
modules that patch, create or delete it. Not guaranteed: a key that is put together at run time.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3] / "homelab_autoscaler"
ACTING = ("phase", "claim", "lifecycle", "controllers", "provider", "webhook")

FIELDS = {
    # field on the wire: the one module that writes it
    "phase": {"claim/recorder.py", "phase/history.py"},  # of a claim, of a slot
    "attempt": {"claim/recorder.py"},
    "shutdownAttempts": {"claim/recorder.py"},
    "lastShutdownAttemptAt": {"claim/recorder.py"},
    "inheritedDebt": {"claim/recorder.py"},
    "startedAt": {"claim/recorder.py"},
    "powerRequestedAt": {"claim/recorder.py"},
    "readyAt": {"claim/recorder.py"},
    "finishedAt": {"claim/recorder.py"},
    "deadlineAt": {"claim/recorder.py"},
    "powerState": {"lifecycle/report.py"},
    "recentTransitions": {"phase/history.py"},
    "recentActivations": {"phase/history.py"},
    "activationsTotal": {"phase/history.py"},
    "previousPhase": {"phase/history.py"},
    "lastClaim": {"controllers/claim.py"},
    "target": {"controllers/group.py"},
    "health": {"controllers/group.py"},
    "lastScaleAt": {"controllers/group.py"},
    "unschedulable": {"lifecycle/node_marks.py"},
    "taints": {"lifecycle/node_marks.py"},
    "providerID": {"lifecycle/node_marks.py"},
    "suspend": {"lifecycle/job_spec.py"},
}

MARKS = {
    # constant: the modules that may name it, and what each does with it
    "FINALIZER_MACHINE": {"lifecycle/boot.py": "adds it", "controllers/claim.py": "takes it off"},
    "FINALIZER_SLOT": {"controllers/slot.py": "both"},
    "FINALIZER_GROUP": {"controllers/group.py": "both"},
    "ANNOTATION_LOCK": {"lifecycle/lock.py": "both"},
    "ANNOTATION_LOCK_OWNER": {"lifecycle/lock.py": "both"},
    "ANNOTATION_LOCK_TIMESTAMP": {"lifecycle/lock.py": "both"},
    "ANNOTATION_LOCK_TIMEOUT": {"lifecycle/lock.py": "both"},
    "ANNOTATION_SHUTDOWN_SEQ": {"lifecycle/shutdown.py": "both"},
    "ANNOTATION_SHUTDOWN_LEDGER": {
        "lifecycle/ledger.py": "reads it",
        "lifecycle/shutdown.py": "writes it with the lock",
        "controllers/slot.py": "clears the attempts of a machine that is off",
    },
    "ANNOTATION_CORDONED_BY": {"lifecycle/node_marks.py": "both", "phase/usable.py": "reads it"},
    "ANNOTATION_END_REASON": {"claim/create.py": "the deleter", "controllers/claim.py": "reads it"},
    "ANNOTATION_ACKNOWLEDGED": {"provider/scale.py": "writes it", "provider/view.py": "reads it"},
    "ANNOTATION_ABANDON": {
        "controllers/claim.py": "reads it",
        "controllers/slot_checks.py": "reads it",
        "controllers/slot.py": "takes it off when it has done its work; a person writes it",
        "lifecycle/shutdown.py": "names it to people",
    },
    "ANNOTATION_SCALE_DOWN_DISABLED": {"lifecycle/node_marks.py": "writes it"},
    "ANNOTATION_RETURN_UNTIL": {"lifecycle/scope.py": "reads it"},
}

KINDS = {
    # (call, kind): the modules that may make it
    ("patch", "CoreNode"): {"lifecycle/node_marks.py"},
    ("delete", "CoreNode"): {"lifecycle/node_marks.py"},
    ("create_json", "Job"): {"lifecycle/jobs.py"},
    ("patch", "Job"): {"lifecycle/jobs.py"},
    ("delete", "Job"): {"lifecycle/jobs.py"},
    ("evict", "pod"): {"lifecycle/drain.py"},
    ("patch_status", "claim"): {"claim/recorder.py"},
    ("patch_status", "group"): {"controllers/group.py"},
    ("patch_status", "slot"): {"controllers/claim.py", "controllers/slot_conditions.py", "lifecycle/report.py"},
    ("patch", "Node"): {"controllers/slot.py", "lifecycle/lock.py"},
    ("patch", "Group"): {"controllers/group.py"},
    ("delete", "NodeReclaim"): {"controllers/slot.py"},  # with a slot that is being deleted
}

MOVES = {
    # what a claim is moved to: the modules that do it
    "ClaimPhase.BOOTING": {"lifecycle/boot.py"},
    "ClaimPhase.READY": {"lifecycle/gate.py"},
    "ClaimPhase.COMPLETED": {"controllers/claim.py"},
    "ClaimPhase.FAILED": {"claim/recorder.py"},  # in `fail`
    "fail": {"controllers/claim.py", "controllers/slot.py", "lifecycle/boot.py", "lifecycle/gate.py"},
    "Reason.MACHINE_GONE": {"controllers/claim.py"},
    "Reason.DEADLINE_EXCEEDED": {"controllers/claim.py"},
    "Reason.ATTEMPT_LIMIT_EXCEEDED": {"controllers/claim.py"},
    "Reason.READINESS_GATE_TIMEOUT": {"lifecycle/gate.py"},
    "Reason.STUCK_TRANSITION": {"controllers/slot.py"},
}


def sources():
    for package in ACTING:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "pb" not in path.parts and "testing" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def keys(tree):
    """Keys of dictionaries that are written out, and of assignments to an item."""
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=written):
                yield from (key.value for key in written if isinstance(key, ast.Constant))
            case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store()):
                yield key


def marks(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="names"), attr=constant):
                yield constant


def writes(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=call), args=[ast.Name(id=kind), *_]):
                yield call, kind


def moves(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="move"), args=[_, to, *_]):
                yield ast.unparse(to)
            case ast.Call(func=ast.Attribute(attr="fail", value=ast.Attribute()), args=[_, reason, *_]):
                yield from ("fail", ast.unparse(reason))
            case ast.Call(func=ast.Attribute(attr="fail", value=ast.Attribute())):
                yield "fail"


def modules_of(scan):
    found = defaultdict(set)
    for module, tree in sources():
        for one in scan(tree):
            found[one].add(module)
    return found


@pytest.mark.parametrize(
    ("scan", "table"),
    [(keys, FIELDS), (marks, MARKS), (writes, KINDS), (moves, MOVES)],
    ids=["fields", "marks", "kinds", "moves"],
)
def test_each_has_the_writers_that_are_listed_and_no_other(scan, table):
    found = modules_of(scan)
    assert {what: found[what] for what in table} == {what: set(modules) for what, modules in table.items()}


@pytest.mark.parametrize(
    ("scan", "code", "seen"),
    [
        (keys, "client.patch_status(slot, {'lastClaim': x})", ["lastClaim"]),
        (keys, "status['powerState'] = 'on'", ["powerState"]),
        (keys, "x = status['powerState']", []),
        (marks, "metadata = {'finalizers': [names.FINALIZER_MACHINE]}", ["FINALIZER_MACHINE"]),
        (writes, "self._client.delete(CoreNode, node.name)", [("delete", "CoreNode")]),
        (moves, "self._claims.move(claim, ClaimPhase.READY, reason)", ["ClaimPhase.READY"]),
        (moves, "self._claims.fail(claim, Reason.MACHINE_GONE, text)", ["fail", "Reason.MACHINE_GONE"]),
        (moves, "self._claims.fail(claim, *ended)", ["fail", "*ended"]),
    ],
)
def test_a_writer_is_seen(scan, code, seen):
    assert list(scan(ast.parse(code))) == seen
