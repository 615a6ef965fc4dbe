"""Where the search begins: the situations of a slot, with the first change of mind still ahead."""

from __future__ import annotations

from homelab_api import names

from . import world
from .stage import NAMESPACE, SLOT
from .state import State
from .stored import OLDEST, instant, store


def start(name, intents, faults):
    """A start state with budgets."""
    state = STARTS[name]()
    return f"start: {name}", state._replace(intents=intents, faults=faults).canonical()


def _fresh():
    claim = world.claim("a").older
    return State(objects=_sorted(world.group(), world.slot(), claim), made=frozenset({"a"}))


def _contested():
    """Two claims of one second: the webhook was down."""
    claims = world.claim("a"), world.claim("b")
    return State(objects=_sorted(world.group(), world.slot(), *claims), made=frozenset({"a", "b"}))


def _ready():
    claim = world.claim(
        "a",
        finalizers=[names.FINALIZER_MACHINE],
        phase="ready",
        reason="MachineReady",
        attempt=1,
        nodeName="n",
        jobName="a-startup",
        startedAt=instant(OLDEST),
        readyAt=instant(OLDEST),
        conditions=[{"type": "Ready", "status": "True"}, {"type": "MachineCommitted", "status": "True"}],
    )
    return State(
        objects=_sorted(world.group(), world.slot(), claim, world.node()),
        power=True,
        silent=0,
        asked=frozenset({"a"}),
        made=frozenset({"a"}),
    )


def _silent():
    """A claim for a machine that switches on and never joins."""
    return _fresh()._replace(frozen=frozenset({"kubelet"}))


def _sick():
    """A ready machine whose kubelet lives but is not ready."""
    state = _ready()
    return state.put(world.with_ready(state.find("CoreNode", "n"), "False"))._replace(frozen=frozenset({"kubelet"}))


def _unwanted():
    """A machine that is on, of a slot that was used before, and nobody wants it."""
    slot = world.slot()
    body = {**slot.body, "status": {"lastClaim": {"name": "z", "uid": "z", "phase": "completed", "attempt": 1}}}
    return State(
        objects=_sorted(world.group(), store("Node", body), world.node()),
        power=True,
        silent=0,
        made=frozenset({"a"}),
    )


def _lied():
    """A claim was deleted, its shutdown Job said that all went well, and the machine is still on."""
    state = _ready()
    before = state.find("NodeClaim", "a").body
    metadata = {**before["metadata"], "deletionTimestamp": instant(3)}
    counted = {"shutdownAttempts": 1, "shutdownJobName": "s-shutdown-1", "lastShutdownAttemptAt": instant(3)}
    marked = store("NodeClaim", {**before, "metadata": metadata, "status": {**before["status"], **counted}})
    job = store(
        "Job",
        {
            "metadata": {
                "name": "s-shutdown-1",
                "namespace": NAMESPACE,
                "uid": "s-shutdown-1~0",
                "resourceVersion": "1",
                "creationTimestamp": instant(3),
                "labels": {names.LABEL_NODE: SLOT, names.LABEL_JOB_TYPE: names.JOB_TYPE_SHUTDOWN},
                "ownerReferences": [marked.model.owner_reference(controller=True).to_json()],
            },
            "spec": {"suspend": False},
            "status": {
                "startTime": instant(3),
                "completionTime": instant(3),
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        },
    )
    return state.put(marked, job, world.slot(**{names.ANNOTATION_SHUTDOWN_SEQ: "1"}))


def _sorted(*objects):
    return tuple(sorted(objects, key=lambda entry: entry.key))


STARTS = {
    "a claim for a machine that is off": _fresh,
    "a ready machine": _ready,
    "an unwanted machine": _unwanted,
    "a machine whose kubelet is not ready": _sick,
    "a machine that never joins": _silent,
    "two claims of one second": _contested,
    "a shutdown that lied": _lied,
}
