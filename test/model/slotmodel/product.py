"""The product under test: its own assembly of controllers and monitors, put on the stage."""

from __future__ import annotations

import traceback
from datetime import timedelta

from homelab_autoscaler.controllers import assemble, claim, slot
from homelab_autoscaler.lifecycle import gate, release
from homelab_autoscaler.lifecycle.lock import LockRefusedError
from homelab_autoscaler.lifecycle.pulse import _Seen
from homelab_autoscaler.lifecycle.report import Reporter
from homelab_autoscaler.runtime import ApiError, Request
from homelab_autoscaler.settings import Settings

from .stage import NAMESPACE, NODE, SLOT, Cut, Stage, StageCache, StageClient, StageClock, StageLeadership
from .stored import FLAPPING_TICKS, NOW, OLDEST, TICK

SETTINGS = Settings().model_copy(
    update={
        "job_timeout": 2.0 * TICK,
        "monitor_poll": 1.0 * TICK,
        "registration_wait": 1.0 * TICK,
        "gate_timeout": 2.0 * TICK,
        "uncordon_retry_max": 1.0,
        "deadline_slack": TICK - 1.0,
        "lock_timeout": 2.0 * TICK,
        "stuck_floor": 1.0 * TICK,
        "drain_pass": 1.0,
        "never_used_wait": 1.0 * TICK,
        "return_grace": 2.0 * TICK,
        "job_failure_target_grace": 1.0 * TICK,
        "off_settle": 2.0 * TICK,
        "lease_silence": 1.0 * TICK,
        "shutdown_pause": 5.0 * TICK,
        "flapping_limit": 4,
        "flapping_window": float(FLAPPING_TICKS * TICK),
        "flapping_pause": 3.0 * TICK,
        "max_attempts": 2,
        "exhausted_after": 5.0 * TICK,
        "finalizer_poll": 1.0 * TICK,
        "claim_ttl": 5.0 * TICK,
        "collect_min": 3.0 * TICK,
        "idle_resync": 5.0 * TICK,
    }
)
"""Every number in few ticks, in the order of size that the real ones have."""
JOB_TTL = 4
"""Ticks that a finished Job is kept."""
NODE_LAG = 1
"""Ticks after which the node of a silent kubelet turns Unknown."""
WINDOW = round(SETTINGS.boot_budget / TICK)

PASSES = ("slot", "claim a", "claim b", "monitor")


class _Silent:
    def event(self, *args, **kwargs):
        pass

    info = warning = exception = debug = event


class _Manager:
    """The manager as `assemble` needs it."""

    def __init__(self, stage):
        self.clock = StageClock(stage)
        self.client = StageClient(stage)
        self.cache = StageCache(stage)
        self.recorder = _Silent()
        self.leadership = StageLeadership(stage)


class _Builder:
    """In place of the ControllerBuilder: keeps the reconciler, connects nothing."""

    made: dict = {}  # noqa: RUF012 - filled by one assembly, read right after it

    def __init__(self, manager, name):
        self._name = name

    def complete(self, reconciler):
        self.made[self._name] = reconciler
        return self

    def __getattr__(self, verb):
        return lambda *args, **kwargs: self


class Product:
    """Runs one pass of one controller, or one step of the monitor."""

    def __init__(self, patch):
        """Assemble; `patch` is pytest's monkeypatch or the like."""
        for module in (claim, slot, gate, release):
            patch.setattr(module, "log", _Silent())
        # What a slot reports is input to nothing, and the search does not keep it: it need not be computed.
        patch.setattr(Reporter, "_phase", lambda reporter, scope: {})
        patch.setattr(assemble, "ControllerBuilder", _Builder)
        self.stage = Stage()
        manager = _Manager(self.stage)
        assemble.assemble(manager, SETTINGS, assemble.AssemblyOptions())
        self._slot = _Builder.made["slot"]
        self._claim = _Builder.made["claim"]
        self._pulse = self._slot._scopes._pulse
        self._slot._started_at = NOW - timedelta(seconds=TICK * OLDEST)
        operations = _Builder.made["operation"]
        self._monitor = operations._monitor
        operations.ensure = self._ensure_monitor
        self.surprises = {}

    def _ensure_monitor(self, namespace, name):
        self.stage.monitoring = True

    def run(self, which, memory):
        """Run a pass on the stage as it was set.

        Args:
            which: one of PASSES.
            memory: what the process knows of the kubelet: () or (same lease as now, age in ticks, changed).

        Returns:
            (memory afterwards, finished or cut, what ended it early or None)
        """
        self._pulse._seen = _recall(memory)
        ended = None
        try:
            if which == "slot":
                self._slot.reconcile(Request(NAMESPACE, SLOT))
            elif which == "monitor":
                if self._monitor.step(NAMESPACE, SLOT) is not None:
                    self.stage.monitoring = True
            else:
                self._claim.reconcile(Request(NAMESPACE, which.removeprefix("claim ")))
        except Cut:
            return _note(self._pulse._seen), False, None
        except (ApiError, LockRefusedError) as error:
            # A monitor that failed tries again; a controller's request is queued again.
            self.stage.monitoring = self.stage.monitoring or which == "monitor"
            ended = error
        except Exception as error:  # noqa: BLE001 - the runtime catches everything, too, and counts it
            self.stage.monitoring = self.stage.monitoring or which == "monitor"
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.surprises.setdefault(f"{which}: {type(error).__name__}: {error} ({where.name}:{where.lineno})", error)
            ended = error
        return _note(self._pulse._seen), True, ended


_PRESENT_LEASE = "lease/1"


def _recall(memory):
    if not memory:
        return {}
    same, age, changed = memory
    return {NODE: _Seen(_PRESENT_LEASE if same else "lease/0", -float(age * TICK), changed)}


def _note(seen):
    entry = seen.get(NODE)
    if entry is None:
        return ()
    return (entry.version == _PRESENT_LEASE, min(2, round(-entry.since / TICK)), entry.changed)
