"""Each monitor of the fault tests fires at a violation of its guarantee, and is silent at the nearest honest story."""

import pytest
from lab.monitors import MONITORS
from lab.monitors.claims import CompletedWhenOff, DeletesEnd, LegalMoves, ReadyOrEndedInTime
from lab.monitors.marks import NothingOutlivesItsOperation, OnlyOurMarksRemoved, UidsCompared
from lab.monitors.power import (
    AllowedTargets,
    BoundedCommands,
    NoPowerOffWhileWanted,
    OneOperationAtATime,
    OwnersMachine,
)
from lab.monitors.whole import ComesToRest, ConvergesAfterFaults, SecretsStaySecret, TargetIsClaims
from lab.scripted import MANAGER, Script, text

from homelab_api import names


def booted():
    """A claim whose machine is on."""
    return (
        Script()
        .claim("c", committed=True)
        .job("c-startup", "startup", owner="c")
        .release("c-startup")
        .command("on", "c-startup")
        .power("booting")
        .succeed("c-startup")
        .claim("c", "ready", committed=True)
    )


def lock(owner, taken, timeout=300):
    return {
        names.ANNOTATION_LOCK: "scale-up",
        names.ANNOTATION_LOCK_OWNER: owner,
        names.ANNOTATION_LOCK_TIMESTAMP: text(taken),
        names.ANNOTATION_LOCK_TIMEOUT: str(timeout),
    }


def node(**fields):
    return Script().put("node", "node-m", by="", spec={"unschedulable": True, **fields})


def delete(story):
    return story.put("claim", "c", by="", deletionTimestamp=text(0))


def stopped(story):
    return story.job("m-shutdown-1", "shutdown", owner="c").release("m-shutdown-1").command("off", "m-shutdown-1")


VIOLATIONS = {
    "S1 off while wanted": (NoPowerOffWhileWanted, lambda: stopped(booted())),
    "S2 two Jobs at once": (
        OneOperationAtATime,
        lambda: booted().job("a", "shutdown").job("b", "shutdown").release("a").release("b"),
    ),
    "S2 one Job asks twice": (OneOperationAtATime, lambda: stopped(booted()).command("off", "m-shutdown-1")),
    "S2 one claim asks twice": (
        OneOperationAtATime,
        lambda: booted().job("c-startup-2", "startup", owner="c").release("c-startup-2").command("on", "c-startup-2"),
    ),
    "S3 completed while on": (CompletedWhenOff, lambda: booted().claim("c", "completed", committed=True)),
    "S3 finalizer gone while on": (CompletedWhenOff, lambda: booted().put("claim", "c", finalizers=[])),
    "S3 gone before its boot came up": (
        CompletedWhenOff,
        lambda: Script().claim("c", committed=True).command("on", "c-startup").gone("claim", "c"),
    ),
    "S4 delete by name": (UidsCompared, lambda: Script().send("DELETE", "/x", b"{}")),
    "S4 careless release": (
        UidsCompared,
        lambda: Script().send("PATCH", "/x", b'[{"op":"replace","path":"/spec/suspend","value":false}]'),
    ),
    "S4 careless finalizer": (UidsCompared, lambda: Script().send("PATCH", "/x", b'{"metadata":{"finalizers":null}}')),
    "S5 illegal move": (LegalMoves, lambda: booted().claim("c", "booting")),
    "S5 after the end": (LegalMoves, lambda: booted().claim("c", "failed").claim("c", "ready")),
    "S5 foreign writer": (LegalMoves, lambda: booted().put("claim", "c", by="", status={"phase": "failed"})),
    "S6 a fourth attempt": (
        BoundedCommands,
        lambda: (
            Script()
            .claim("c")
            .put("claim", "c", status={"attempt": 4})
            .job("c-startup", "startup", owner="c")
            .release("c-startup")
        ),
    ),
    "S6 more power-ons than requests": (BoundedCommands, lambda: booted().command("on", "other-job")),
    "S6 too many shutdowns": (
        BoundedCommands,
        lambda: [
            story := Script(),
            *(story.job(f"s{number}", "shutdown").release(f"s{number}") for number in range(7)),
        ][0],
    ),
    "S6 more machines than the group may have": (
        BoundedCommands,
        lambda: booted().put("group", "pool", by="", spec={"maxSize": 0}).power("up"),
    ),
    "S7 foreign cordon": (OnlyOurMarksRemoved, lambda: node().put("node", "node-m", spec={"unschedulable": False})),
    "S7 foreign taint": (
        OnlyOurMarksRemoved,
        lambda: node(taints=[{"key": "theirs", "effect": "NoSchedule"}]).put("node", "node-m", spec={"taints": []}),
    ),
    "S7 foreign annotation": (
        OnlyOurMarksRemoved,
        lambda: Script().put("slot", "m", by="", annotations={"theirs": "1"}).put("slot", "m", annotations={}),
    ),
    "S7 foreign finalizer": (
        OnlyOurMarksRemoved,
        lambda: Script().put("slot", "m", by="", finalizers=["theirs"]).put("slot", "m", finalizers=[]),
    ),
    "S7 foreign lock": (
        OnlyOurMarksRemoved,
        lambda: Script().put("slot", "m", by="", annotations=lock("other/7", 0)).put("slot", "m", annotations={}),
    ),
    "S8 old truth": (TargetIsClaims, lambda: booted().told(0)),
    "S8 never true": (TargetIsClaims, lambda: booted().told(5, settled=False)),
    "S8 report": (TargetIsClaims, lambda: booted().put("group", "pool", status={"target": 2})),
    "S9 a new Job": (
        OwnersMachine,
        lambda: booted().put("reclaim", "m", by="", spec={"slotRef": {"name": "m"}}).job("s", "shutdown").release("s"),
    ),
    "S9 after JobsStopped": (
        OwnersMachine,
        lambda: (
            booted()
            .job("s", "shutdown")
            .put("reclaim", "m", spec={"slotRef": {"name": "m"}})
            .put("reclaim", "m", status={"conditions": [{"type": "JobsStopped", "status": "True"}]})
            .release("s")
        ),
    ),
    "S9 a command": (
        OwnersMachine,
        lambda: booted().put("reclaim", "m", spec={"slotRef": {"name": "m"}}).job("s", "shutdown").command("off", "s"),
    ),
    "S10 no slot": (AllowedTargets, lambda: booted().gone("slot", "m").command("off", "c-startup")),
    "S10 no Job": (AllowedTargets, lambda: booted().command("off", "nobody")),
    "S10 another slot's Job": (AllowedTargets, lambda: booted().job("s", "shutdown", slot="n").command("off", "s")),
    "S10 control plane": (
        AllowedTargets,
        lambda: (
            booted()
            .put("node", "node-m", by="", labels={names.CONTROL_PLANE_LABELS[0]: ""})
            .job("s", "shutdown")
            .release("s")
        ),
    ),
    "L1 hot loop": (
        ComesToRest,
        lambda: [
            story := Script(),
            *(story.put("slot", "m", status={"phase": f"{number}"}) for number in range(60)),
        ][0],
    ),
    "L2 ready too late": (
        ReadyOrEndedInTime,
        lambda: (
            Script().claim("c", "booting", deadlineAt=text(1)).wait(400).put("claim", "c", status={"phase": "ready"})
        ),
    ),
    "L2 for ever": (ReadyOrEndedInTime, lambda: Script().claim("c", "booting", deadlineAt=text(1)).wait(400)),
    "L3 silent": (DeletesEnd, lambda: delete(booted())),
    "L4 held on": (
        NothingOutlivesItsOperation,
        lambda: (
            Script().put("slot", "m", annotations=lock("other/1", 2, 10)).wait(400).put("slot", "m", annotations={})
        ),
    ),
    "L4 locked at rest": (
        NothingOutlivesItsOperation,
        lambda: Script().put("slot", "m", annotations=lock(MANAGER, 2)),
    ),
    "L4 cordoned while it serves": (
        NothingOutlivesItsOperation,
        lambda: booted().put("node", "node-m", annotations={names.ANNOTATION_CORDONED_BY: "drain"}),
    ),
    "L5 too long": (ConvergesAfterFaults, lambda: booted().fault().wait(2800)),
}

HONEST = {
    "S1": (NoPowerOffWhileWanted, lambda: stopped(delete(booted()))),
    "S2": (OneOperationAtATime, lambda: stopped(booted())),
    "S3": (CompletedWhenOff, lambda: stopped(booted()).power("off").claim("c", "completed", committed=True)),
    "S4": (UidsCompared, lambda: Script().send("DELETE", "/x", b'{"preconditions":{"uid":"u"}}')),
    "S5": (LegalMoves, lambda: booted().claim("c", "failed")),
    "S6": (BoundedCommands, booted),
    "S7 our cordon": (
        OnlyOurMarksRemoved,
        lambda: (
            node()
            .put("node", "node-m", annotations={names.ANNOTATION_CORDONED_BY: "drain"})
            .put("node", "node-m", spec={"unschedulable": False}, annotations={})
        ),
    ),
    "S7 a dead manager's lock": (
        OnlyOurMarksRemoved,
        lambda: Script().put("slot", "m", annotations=lock("before/2", 0)).put("slot", "m", annotations={}),
    ),
    "S8": (TargetIsClaims, lambda: booted().told(1)),
    "S9": (OwnersMachine, lambda: stopped(booted()).put("reclaim", "m", spec={"slotRef": {"name": "m"}})),
    "S10": (AllowedTargets, lambda: stopped(booted())),
    "L1": (ComesToRest, booted),
    "L2": (ReadyOrEndedInTime, lambda: Script().claim("c", "ready", deadlineAt=text(1)).wait(400)),
    "L3 parked": (
        DeletesEnd,
        lambda: delete(booted()).put("claim", "c", status={"conditions": [{"type": "NeedsHuman", "status": "True"}]}),
    ),
    "L4": (
        NothingOutlivesItsOperation,
        lambda: Script().put("slot", "m", annotations=lock(MANAGER, 2)).put("slot", "m", annotations={}),
    ),
    "L5": (ConvergesAfterFaults, lambda: booted().fault().wait(10)),
}


@pytest.mark.parametrize(("monitor", "story"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_monitor_fires_at_a_violation_of_its_guarantee(monitor, story):
    found = story().judged_by(monitor)
    assert found
    assert all(line.startswith(f"{monitor.guarantee}: ") for line in found)


@pytest.mark.parametrize(("monitor", "story"), HONEST.values(), ids=HONEST)
def test_a_monitor_is_silent_when_its_guarantee_holds(monitor, story):
    assert story().judged_by(monitor) == []


def test_a_write_after_everything_was_over_is_a_restless_manager():
    story = booted().put("slot", "m", status={"phase": "off"})
    assert story.judged_by(ComesToRest, after_end=1) == ["L1: slot m was written after everything was over"]


@pytest.mark.parametrize(
    "leak",
    [
        lambda story: story.put("event", "e", status={"message": "login with s3cret failed"}),
        lambda story: story.send("POST", "/jobs", b'{"args":["s3cret"]}'),
        lambda story: story.logs.append("password=s3cret"),
    ],
    ids=["object", "request", "log"],
)
def test_a_secret_that_turns_up_anywhere_is_seen(leak):
    story = booted()
    leak(story)
    assert len(story.judged_by(SecretsStaySecret, canary="s3cret")) == 1
    assert booted().judged_by(SecretsStaySecret, canary="s3cret") == []


def test_every_monitor_is_shown_a_violation():
    shown = {monitor for monitor, _ in VIOLATIONS.values()} | {SecretsStaySecret}
    assert shown == set(MONITORS)
    assert {monitor.guarantee for monitor in MONITORS} == {f"S{n}" for n in range(1, 12)} | {
        f"L{n}" for n in range(1, 6)
    }
