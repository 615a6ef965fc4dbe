"""What a monitor is, and the picture of the cluster that it looks at while a record is replayed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from homelab_api import names
from lab.record import Change, Command, Power

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.settings import Settings
    from lab.interposer import Write
    from lab.record import Entry

LIVE = frozenset({"", "pending", "booting", "ready"})


@dataclass(frozen=True, slots=True)
class TargetRead:
    """An answer of the autoscaler's provider.

    Attributes:
        at: when it was given.
        target: the target size.
        settled: everything was over, so that it cannot be an older truth.
    """

    at: datetime
    target: int
    settled: bool


@dataclass
class History:
    """Everything that is known of a run.

    Attributes:
        entries: the record, in order.
        settings: of the manager.
        wire: requests that managers sent.
        targets: answers of the provider.
        logs: lines that managers logged.
        struck_at: when the fault happened; None if none did.
        ended_at: when the story was over; None if it did not end.
        converged_within: from the fault to the end (guarantee L5).
        late: by how much later than it was made a change may be recorded.
        canary: a secret that must appear nowhere; "" for none.
    """

    entries: Sequence[Entry]
    settings: Settings
    wire: Sequence[Write] = ()
    targets: Sequence[TargetRead] = ()
    logs: Sequence[str] = ()
    struck_at: datetime | None = None
    ended_at: datetime | None = None
    canary: str = ""
    converged_within: timedelta = timedelta(minutes=45)
    late: timedelta = timedelta()


@dataclass
class Stage:
    """The cluster after the entry that a monitor is told of.

    Attributes:
        objects: what exists, by kind and name.
        senders: Jobs that ever were, by name, as last seen.
        power: true power by machine; absent is off.
    """

    history: History
    objects: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    senders: dict[str, JsonObject] = field(default_factory=dict)
    power: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    authors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authors = {write.version: write.author for write in self.history.wire if write.version}

    def take(self, entry: Entry) -> None:
        """Let an entry happen."""
        if isinstance(entry, Power):
            self.power[entry.machine] = entry.power
        elif isinstance(entry, Command):
            self.commands.append(entry)
        elif entry.after is None:
            self.objects.pop((entry.kind, entry.name), None)
        else:
            self.objects[entry.kind, entry.name] = entry.after
            if entry.kind == "job":
                self.senders[entry.name] = entry.after

    def author(self, change: Change) -> str:
        """Which manager wrote it, as `<identity>/<transitions>`; "" if it was none of ours."""
        return self.authors.get(change.version, "")

    def all(self, kind: str) -> list[JsonObject]:
        """Objects of a kind."""
        return [body for (found, _), body in self.objects.items() if found == kind]

    def claims(self, slot: str) -> list[JsonObject]:
        """Claims that name a slot."""
        return [claim for claim in self.all("claim") if claim["spec"]["slotRef"]["name"] == slot]

    def on(self, machine: str) -> bool:
        """Whether the machine draws power, in truth."""
        return self.power.get(machine, "off") != "off"


class Monitor(ABC):
    """Watches one guarantee; a new one for each record."""

    guarantee: ClassVar[str]

    @abstractmethod
    def see(self, entry: Entry, stage: Stage) -> Iterator[str]:
        """What the entry violates. The stage is the one after it."""

    def end(self, stage: Stage) -> Iterator[str]:
        """What the end of a run that came to its end violates."""
        del stage
        return iter(())


# --- reading objects ------------------------------------------------------------------------------------------------


def phase(claim: JsonObject | None) -> str:
    return str(((claim or {}).get("status") or {}).get("phase") or "")


def marked(body: JsonObject) -> bool:
    return "deletionTimestamp" in body["metadata"]


def wants_machine(claim: JsonObject) -> bool:
    return phase(claim) in LIVE and not marked(claim)


def committed(claim: JsonObject | None) -> bool:
    return names.FINALIZER_MACHINE in ((claim or {}).get("metadata", {}).get("finalizers") or [])


def conditions(body: JsonObject) -> dict[str, str]:
    """Status by type."""
    found = (body.get("status") or {}).get("conditions") or []
    return {entry["type"]: entry["status"] for entry in found}


def annotations(body: JsonObject | None) -> dict[str, str]:
    return (body or {}).get("metadata", {}).get("annotations") or {}


def job_type(job: JsonObject) -> str:
    return str((job["metadata"].get("labels") or {}).get(names.LABEL_JOB_TYPE, ""))


def job_slot(job: JsonObject) -> str:
    return str((job["metadata"].get("labels") or {}).get(names.LABEL_NODE, ""))


def owner_uid(body: JsonObject) -> str:
    """Uid of the controller."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def suspended(job: JsonObject | None) -> bool:
    return bool(((job or {}).get("spec") or {}).get("suspend"))


def finished(job: JsonObject) -> bool:
    states = conditions(job)
    return "True" in (states.get("Complete"), states.get("Failed"))


def released(entry: Entry) -> JsonObject | None:
    """The Job, if the entry is its release: from now on its pod runs."""
    if not isinstance(entry, Change) or entry.kind != "job" or entry.after is None or suspended(entry.after):
        return None
    return entry.after if entry.created or suspended(entry.before) else None


def instant(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
