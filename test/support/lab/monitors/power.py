"""Guarantees about power commands."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from homelab_api import names
from lab.monitors.base import (
    Monitor,
    annotations,
    conditions,
    finished,
    job_slot,
    job_type,
    owner_uid,
    released,
    suspended,
    wants_machine,
)
from lab.record import Change, Command, Power

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lab.monitors.base import Stage
    from lab.record import Entry

HAND = "hand"


class NoPowerOffWhileWanted(Monitor):
    """S1: a shutdown Job that was released while a claim wanted the machine sends nothing."""

    guarantee = "S1"

    def __init__(self) -> None:
        self._unasked: dict[str, str] = {}

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        job = released(entry)
        if job is not None and job_type(job) == names.JOB_TYPE_SHUTDOWN:
            wanting = [claim["metadata"]["name"] for claim in stage.claims(job_slot(job)) if wants_machine(claim)]
            if wanting:
                self._unasked[job["metadata"]["name"]] = ", ".join(wanting)
        if isinstance(entry, Command) and entry.command == "off" and entry.sender in self._unasked:
            yield f"{entry.sender} switched {entry.machine} off though {self._unasked[entry.sender]} wants it"


class OneOperationAtATime(Monitor):
    """S2: at most one lifecycle Job of a slot runs; a Job, and a claim, asks once."""

    guarantee = "S2"

    def __init__(self) -> None:
        self._sent: Counter[tuple[str, str]] = Counter()
        self._asked: Counter[str] = Counter()

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if released(entry) is not None:
            running: Counter[str] = Counter(
                job_slot(job) for job in stage.all("job") if not suspended(job) and not finished(job)
            )
            yield from (f"{count} lifecycle Jobs of slot {slot} run" for slot, count in running.items() if count > 1)
        if not isinstance(entry, Command) or entry.sender == HAND:
            return
        self._sent[entry.sender, entry.command] += 1
        if self._sent[entry.sender, entry.command] > 1:
            yield f"Job {entry.sender} sent {entry.command} to {entry.machine} more than once"
        claim = owner_uid(stage.senders[entry.sender]) if entry.sender in stage.senders else ""
        if entry.command == "on" and claim:
            self._asked[claim] += 1
            if self._asked[claim] > 1:
                yield f"claim {claim} switched {entry.machine} on more than once"


class BoundedCommands(Monitor):
    """S6: boots per streak, machines on per group, commands per request and shutdowns per hour are bounded."""

    guarantee = "S6"

    def __init__(self) -> None:
        self._shutdowns: dict[str, list[datetime]] = {}
        self._requests = 0

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        settings = stage.history.settings
        if isinstance(entry, Change) and entry.kind == "claim" and entry.created:
            self._requests += 1
        job = released(entry)
        if job is not None and job_type(job) == names.JOB_TYPE_STARTUP:
            for claim in stage.claims(job_slot(job)):
                attempt = (claim.get("status") or {}).get("attempt", 0)
                if claim["metadata"]["uid"] == owner_uid(job) and not 1 <= attempt <= settings.max_attempts:
                    yield f"claim {claim['metadata']['name']} boots with attempt {attempt}"
        if job is not None and job_type(job) == names.JOB_TYPE_SHUTDOWN:
            window = timedelta(seconds=settings.flapping_window)
            recent = [at for at in self._shutdowns.get(job_slot(job), []) if at > entry.at - window]
            self._shutdowns[job_slot(job)] = [*recent, entry.at]
            if len(recent) >= settings.flapping_limit:
                yield f"slot {job_slot(job)} was asked to stop {len(recent) + 1} times within {window}"
        if isinstance(entry, Command) and entry.command == "on" and entry.sender != HAND:
            asked = sum(command.command == "on" and command.sender != HAND for command in stage.commands)
            if asked > self._requests:
                yield f"{asked} power-ons for {self._requests} requests"
        if isinstance(entry, Power):
            yield from self._too_many(stage)

    def _too_many(self, stage: Stage) -> Iterator[str]:
        for group in stage.all("group"):
            name, most = group["metadata"]["name"], (group.get("spec") or {}).get("maxSize")
            members = [
                slot["metadata"]["name"]
                for slot in stage.all("slot")
                if (slot["metadata"].get("labels") or {}).get(names.LABEL_GROUP) == name
            ]
            asked = {command.machine for command in stage.commands if command.command == "on"}
            on = [machine for machine in members if stage.on(machine) and machine in asked]
            if most is not None and len(on) > most:
                yield f"{len(on)} machines of group {name} are on, its maxSize is {most}"


class OwnersMachine(Monitor):
    """S9: while a NodeReclaim names the slot, nothing of ours is released for it.

    A Job that was released at the very instant of the reclaim is called back; one that is created later, or released
    after `JobsStopped`, must not exist.
    """

    guarantee = "S9"

    def __init__(self) -> None:
        self._late: set[str] = set()

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        created = entry.after if isinstance(entry, Change) and entry.kind == "job" and entry.created else None
        if created is not None and self._held(job_slot(created), stage) is not None:
            self._late.add(created["metadata"]["name"])
        job = released(entry)
        if job is not None and job_type(job) != names.JOB_TYPE_RECLAIM:
            reclaim = self._held(job_slot(job), stage)
            stopped = reclaim is not None and conditions(reclaim).get("JobsStopped") == "True"
            if reclaim is not None and (stopped or job["metadata"]["name"] in self._late):
                yield f"Job {job['metadata']['name']} was released while slot {job_slot(job)} is in its owner's hands"
        if isinstance(entry, Command) and entry.sender in self._late and self._held(entry.machine, stage) is not None:
            yield f"{entry.sender} sent {entry.command} to {entry.machine}, which is in its owner's hands"

    def _held(self, slot: str, stage: Stage) -> dict[str, object] | None:
        return next((body for body in stage.all("reclaim") if body["spec"]["slotRef"]["name"] == slot), None)


class AllowedTargets(Monitor):
    """S10: machines without a slot and control-plane nodes are never power targets."""

    guarantee = "S10"

    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        if isinstance(entry, Command) and entry.sender != HAND:
            job = stage.senders.get(entry.sender)
            if job is None:
                yield f"{entry.machine} got {entry.command} from {entry.sender}, which is no Job"
            elif ("slot", entry.machine) not in stage.objects:
                yield f"{entry.machine} got {entry.command} and has no slot"
            elif job_slot(job) != entry.machine:
                yield f"{entry.machine} got {entry.command} from a Job of slot {job_slot(job)}"
        job = released(entry)
        if job is None or job_type(job) != names.JOB_TYPE_SHUTDOWN:
            return
        slot = stage.objects.get(("slot", job_slot(job)))
        node = stage.objects.get(("node", slot["spec"]["kubernetesNodeName"])) if slot else None
        if slot is None or node is None or slot["spec"].get("allowControlPlane"):
            return
        if set(names.CONTROL_PLANE_LABELS) & (node["metadata"].get("labels") or {}).keys():
            yield f"control-plane node {node['metadata']['name']} is being switched off"


def abandoned(slot: dict[str, object] | None, claim: dict[str, object]) -> bool:
    """Whether a person has given the machine up: it may still be on."""
    said = (annotations(slot).get(names.ANNOTATION_ABANDON), annotations(claim).get(names.ANNOTATION_ABANDON))
    return any(said)
