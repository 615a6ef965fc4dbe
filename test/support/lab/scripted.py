"""Records that nobody lived through: what a monitor's test shows it."""

from __future__ import annotations

import copy
import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from homelab_api import names
from homelab_autoscaler.settings import Settings
from lab.interposer import Write
from lab.monitors import History, TargetRead, check
from lab.record import Change, Command, Power

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from lab.monitors import Monitor
    from lab.record import Entry

START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
MANAGER = "manager-a/3"


def text(seconds: float) -> str:
    """An instant of the script, as objects carry it."""
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


class Script:
    """One slot "m" of a group, told step by step; each step is a second.

    Every write is the manager's, unless `by=""` says that it is somebody else's.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.wire: list[Write] = []
        self.targets: list[TargetRead] = []
        self.logs: list[str] = []
        self.struck_at: datetime | None = None
        self._objects: dict[tuple[str, str], JsonObject] = {}
        self._versions = itertools.count(1)
        self.put("group", "pool", by="", spec={})
        self.put("slot", "m", labels={names.LABEL_GROUP: "pool"}, by="", spec={"kubernetesNodeName": "node-m"})

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=len(self.entries))

    def wait(self, seconds: int) -> Script:
        """Let time pass, in which a bystander writes."""
        for _ in range(seconds):
            self.entries.append(Power(self.now, "bystander", "up"))
        return self

    def put(
        self,
        kind: str,
        name: str,
        *,
        by: str = MANAGER,
        spec: JsonObject | None = None,
        status: JsonObject | None = None,
        **metadata: Any,
    ) -> Script:
        """Create an object, or change parts of it; a metadata field that is None goes."""
        before = self._objects.get((kind, name))
        after = copy.deepcopy(before) if before else {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}}
        after["spec"].update(spec or {})
        after.setdefault("status", {}).update(status or {})
        for key, value in metadata.items():
            if value is None:
                after["metadata"].pop(key, None)
            else:
                after["metadata"][key] = value
        self._objects[kind, name] = after
        return self._write(kind, name, before, copy.deepcopy(after), by)

    def gone(self, kind: str, name: str, *, by: str = MANAGER) -> Script:
        """Delete an object."""
        return self._write(kind, name, self._objects.pop((kind, name)), None, by)

    def _write(self, kind: str, name: str, before: JsonObject | None, after: JsonObject | None, by: str) -> Script:
        version = str(next(self._versions))
        if by:
            self.wire.append(Write("PATCH", f"/{kind}/{name}", b"{}", version=version, author=by))
        self.entries.append(Change(self.now, version, kind, name, copy.deepcopy(before), after))
        return self

    def claim(self, name: str, phase: str = "", *, committed: bool = False, **spec: Any) -> Script:
        """A claim of the slot; without a phase it was just requested."""
        finalizers = [names.FINALIZER_MACHINE] if committed else []
        status: JsonObject = {"phase": phase, "attempt": 1} if phase else {"attempt": 1}
        return self.put("claim", name, spec={"slotRef": {"name": "m"}, **spec}, status=status, finalizers=finalizers)

    def job(self, name: str, kind: str, *, owner: str = "", slot: str = "m") -> Script:
        """A suspended lifecycle Job."""
        owners = [{"uid": f"uid-{owner}", "controller": True}] if owner else []
        labels = {names.LABEL_NODE: slot, names.LABEL_JOB_TYPE: kind}
        return self.put("job", name, spec={"suspend": True}, labels=labels, ownerReferences=owners)

    def release(self, name: str) -> Script:
        """Let a Job run."""
        return self.put("job", name, spec={"suspend": False})

    def succeed(self, name: str) -> Script:
        """A Job has done its work."""
        return self.put("job", name, by="", status={"conditions": [{"type": "Complete", "status": "True"}]})

    def command(self, command: str, sender: str, result: str = "accepted") -> Script:
        """A command reaches machine m."""
        self.entries.append(Command(self.now, "m", command, sender, result))
        return self

    def power(self, power: str, machine: str = "m") -> Script:
        """True power changes."""
        self.entries.append(Power(self.now, machine, power))
        return self

    def send(self, method: str, path: str, body: bytes) -> Script:
        """A request of the manager that the record does not show."""
        self.wire.append(Write(method, path, body, author=MANAGER))
        return self

    def told(self, target: int, *, settled: bool = True) -> Script:
        """The autoscaler asks for the target size."""
        self.targets.append(TargetRead(self.now, target, settled))
        return self

    def fault(self) -> Script:
        """Something breaks."""
        self.struck_at = self.now
        return self

    def judged_by(self, monitor: type[Monitor], *, after_end: int = 0, canary: str = "") -> list[str]:
        """What the monitor says; the last `after_end` steps come after the story was over."""
        ended_at = START + timedelta(seconds=len(self.entries) - after_end - 0.5)
        history = History(
            entries=self.entries,
            settings=Settings(),
            wire=self.wire,
            targets=self.targets,
            logs=self.logs,
            struck_at=self.struck_at,
            ended_at=ended_at,
            canary=canary,
        )
        return check(history, [monitor])
