"""What must hold at every write and at every power command, and where a run may come to rest.

A rule speaks about objects and the machine, never about calls. `at_write` is asked for each change that the product
makes, `at_command` for each power command that a Job's pod sends, `at_rest` for each end of a run in which nothing
goes wrong any more.
"""

from __future__ import annotations

from typing import NamedTuple

from homelab_api import names
from homelab_api.v2alpha1 import ClaimPhase, Reason, ReclaimCondition
from homelab_autoscaler.claim.moves import LEGAL_MOVES
from homelab_autoscaler.lifecycle.ledger import ShutdownLedger
from homelab_autoscaler.lifecycle.lock import read_lock

from .product import SETTINGS
from .stage import NODE, SLOT
from .stored import NOW, TICK, age_of

OVERDUE = 1
"""Ticks past its deadline within which a boot must have ended: the pass that ends it may be late by one."""


def models(world, kind):
    return [entry.model for entry in world if entry.kind == kind]


def kind_of(job):
    return job.metadata.labels.get(names.LABEL_JOB_TYPE, "")


def owner_uid(job):
    owner = job.metadata.controller_owner()
    return owner.uid if owner else ""


def unfinished(job):
    return not job.finished


class Fact(NamedTuple):
    """Something that happened at a write and that the state must judge.

    Attributes:
        what: "released" or "let go".
        kind: type of the released Job.
        name: of the Job or claim.
        owner: uid of the Job's owner or of the claim.
    """

    what: str
    kind: str
    name: str
    owner: str


def at_write(world, before, after):
    """Judge a write of the product.

    Args:
        world: key -> Stored, before the write.
        before: the object before, None if it is created.
        after: the object after, None if it is gone.

    Returns:
        (broken rule or "", excusable, Fact or None). A rule broken at a release is excusable if it was kept at the
        second read and something changed between that and the release.
    """
    kind = (before or after).kind
    if kind == "Job" and after is not None and not after.model.suspended and (before is None or before.model.suspended):
        return _at_release(world, after.model)
    if kind == "NodeClaim" and before is not None:
        return _at_claim_write(world, before.model, after.model if after else None)
    if kind == "Node" and after is not None:
        return _at_lock(before.model, after.model), False, None
    return "", False, None


def _at_lock(before, after):
    """A lock that binds is taken from nobody but an earlier leader."""
    old, new = read_lock(before), read_lock(after)
    if old is None or new is None or old.owner == new.owner or old.expires_at <= NOW:
        return ""
    if old.generation[1] >= new.generation[1]:
        return f"{new.owner} takes the lock of {old.owner}, which binds"
    return ""


def _at_release(world, job):
    objects = list(world.values())
    claims = models(objects, "NodeClaim")
    fact = Fact("released", kind_of(job), job.name, owner_uid(job))
    others = [
        entry for entry in models(objects, "Job") if entry.uid != job.uid and unfinished(entry) and not entry.suspended
    ]
    if others:
        return f"Job {job.name} is released while Job {others[0].name} runs", False, fact
    pods = [entry for entry in objects if entry.kind == "Pod" and entry.body["job"] != job.uid]
    if pods:
        return f"Job {job.name} is released while pod {pods[0].name} runs", False, fact
    if any(entry.kind == "NodeReclaim" for entry in objects):
        return f"Job {job.name} is released while the machine is in its owner's hands", True, fact
    live = [claim for claim in claims if claim.live]
    if kind_of(job) == names.JOB_TYPE_STARTUP:
        if not any(claim.uid == owner_uid(job) and claim.wants_machine for claim in live):
            return f"Job {job.name} is released though its claim does not want the machine", True, fact
        if not any(claim.uid == owner_uid(job) and claim.committed for claim in live):
            return f"Job {job.name} is released though its claim does not remember the machine", True, fact
        if len(live) > 1:
            return f"Job {job.name} is released while two claims are live", "heals", fact
    else:
        wanting = next((claim for claim in live if claim.wants_machine), None)
        if wanting is not None:
            return f"Job {job.name} is released while claim {wanting.name} wants the machine", True, fact
        if not _counted(objects, job):
            return f"Job {job.name} is released without being counted", False, fact
    return "", False, fact


def _counted(objects, job):
    """On the claim that asks, or for a shutdown without a claim in the slot's ledger."""
    asking = next((claim for claim in models(objects, "NodeClaim") if claim.uid == owner_uid(job)), None)
    if asking is not None:
        return asking.status.shutdown_job_name == job.name
    ledger = ShutdownLedger.read(next(entry.model for entry in objects if entry.kind == "Node"))
    return ledger.job_name == job.name and ledger.attempts > 0


def _at_claim_write(world, before, after):
    if after is not None and after.status.shutdown_attempts > SETTINGS.max_attempts:
        return f"claim {before.name} counts shutdown {after.status.shutdown_attempts} in a row", False, None
    if after is not None and after.phase is not before.phase:
        legal = LEGAL_MOVES[before.phase].get(after.phase, frozenset())
        if after.status.reason not in legal:
            return (
                f"claim {before.name} moves from {before.phase} to {after.phase} as {after.status.reason}",
                False,
                None,
            )
    if before.committed and (after is None or not after.committed):
        return _at_letting_go(list(world.values()), before)
    return "", False, None


def _at_letting_go(objects, claim):
    if claim.live:
        return f"claim {claim.name} lets go of its machine while it is live", False, None
    running = [job for job in models(objects, "Job") if owner_uid(job) == claim.uid and unfinished(job)]
    if running:
        return f"claim {claim.name} lets go while Job {running[0].name} is unfinished", False, None
    others = [
        entry for entry in models(objects, "NodeClaim") if entry.live and entry.committed and entry.uid != claim.uid
    ]
    slot = next(entry.model for entry in objects if entry.kind == "Node")
    doubted = any(entry.type == "PowerUnknown" and entry.status == "True" for entry in slot.status.conditions)
    if others or doubted or claim.status.reason is Reason.EMERGENCY_RECLAIM:
        return "", False, None
    return "", False, Fact("let go", "", claim.name, claim.uid)


def about_fact(state, fact):
    """Judge a fact against the true machine and what happened before; "" if all is well."""
    what, kind, name, owner = fact
    if what == "let go":
        # The owner of a claim that ended without proof says so on the claim.
        claim = state.find("NodeClaim", name)
        unproven = claim is not None and claim.model.status.reason is Reason.ABANDONED
        if state.power and not state.meddled and not unproven and not state.lied:
            return f"claim {name} lets go of a machine that is on"
        return ""
    if kind == names.JOB_TYPE_STARTUP:
        if owner in state.asked:
            return f"a second power-on is asked for claim {owner}"
        return ""
    if not state.power and not state.meddled:
        settle = SETTINGS.off_settle / TICK
        for job in models(state.objects, "Job"):
            done = job.succeeded and kind_of(job) == names.JOB_TYPE_SHUTDOWN and job.name != name
            done = done and owner_uid(job) == owner
            if done and _age(state, job) < settle and "nodes" not in state.frozen:
                return f"Job {name} is released though Job {job.name} has just switched the machine off"
    return ""


def _blind(state):
    """Nobody can know: the machine never joined, and a script said that it switched it off and did not."""
    return state.lied and state.find("CoreNode", NODE) is None


def _age(state, job):
    body = state.find("Job", job.name).body
    return age_of(body["status"]["completionTime"])


def at_command(state, pod):
    """Judge a power command at the moment it leaves its pod; "" if all is well."""
    kind = pod.body["metadata"]["labels"][names.LABEL_JOB_TYPE]
    claims = models(state.objects, "NodeClaim")
    reclaim = next(iter(models(state.objects, "NodeReclaim")), None)
    stopped = reclaim is not None and any(
        entry.type == ReclaimCondition.JOBS_STOPPED and entry.status == "True" for entry in reclaim.status.conditions
    )
    if stopped:
        return f"pod {pod.name} sends its command after JobsStopped"
    if any(entry.body["metadata"]["uid"] != pod.uid for entry in state.all("Pod")):
        return f"pod {pod.name} sends its command beside another"
    if kind == names.JOB_TYPE_STARTUP:
        if not any(claim.uid == pod.body["owner"] and claim.committed for claim in claims):
            heirs = [claim for claim in claims if claim.committed and claim.live]
            if not heirs:
                return f"pod {pod.name} switches on a machine that nobody remembers"
    else:
        wanting = [claim for claim in claims if claim.wants_machine and claim.phase is not ClaimPhase.PENDING]
        if wanting:
            return f"pod {pod.name} switches off the machine of claim {wanting[0].name}"
    return ""


def at_tick(state):
    """Judge the passing of time."""
    for entry in state.all("NodeClaim"):
        claim = entry.model
        deadline = entry.body["spec"].get("deadlineAt")
        if claim.wants_machine and claim.phase is not ClaimPhase.READY and deadline and age_of(deadline) > OVERDUE:
            return f"claim {claim.name} is {claim.phase} long past its deadline"
    return ""


def at_rest(cycle):
    """Judge where a run without further faults comes to rest: one state, or a circle of them.

    Returns:
        "" if the machine is as it is wanted, its owner has it, or a condition says what a person must do.
    """
    if any(_visible(state) for state in cycle):
        return ""
    for state in cycle:
        why = _restless(state)
        if why:
            return why
    return "the run never comes to rest" if len({_without_time(state) for state in cycle}) > 1 else ""


def _without_time(state):
    return (state.power, tuple(entry.name for entry in state.objects))


def _visible(state):
    slot = state.find("Node", SLOT).model
    conditions = [(entry.type, entry.status) for entry in slot.status.conditions]
    for claim in models(state.objects, "NodeClaim"):
        conditions += [(entry.type, entry.status) for entry in claim.status.conditions]
    said = {"NeedsHuman", "PowerUnknown", "KubeletAlive", "Protected", "PowerFlapping"}
    return any(kind in said and status == "True" for kind, status in conditions)


def _restless(state):
    claims = models(state.objects, "NodeClaim")
    jobs = [job for job in models(state.objects, "Job") if unfinished(job)]
    held = bool(state.all("NodeReclaim"))
    if jobs:
        return f"Job {jobs[0].name} stays for ever"
    live = [claim for claim in claims if claim.live]
    if held:
        return f"claim {live[0].name} stays live while the machine is in its owner's hands" if live else ""
    if len(live) > 1:
        return "two claims stay live"
    if live:
        claim = live[0]
        if claim.marked or claim.phase is not ClaimPhase.READY:
            return f"claim {claim.name} stays {'marked' if claim.marked else claim.phase} for ever"
        if not state.power and "nodes" not in state.frozen:
            return f"claim {claim.name} stays ready though its machine is off"
        return ""
    if any(claim.committed for claim in claims):
        return "an ended claim never lets go of its machine"
    if state.power and not (state.meddled and "kubelet" in state.frozen) and not _blind(state):
        return "a machine that nobody wants stays on, and nothing says so"
    slot = state.find("Node", SLOT).model
    if names.ANNOTATION_LOCK in slot.metadata.annotations:
        return "the slot stays locked"
    # Only a shutdown Job that succeeded proves that a silent machine is off and not cut off. Where something went wrong
    # that Job may be gone, or may have failed after it had worked: then the node object stays until the next boot.
    if state.spotless and state.find("CoreNode", NODE) is not None:
        return "the node object of a machine that is off stays"
    return ""
