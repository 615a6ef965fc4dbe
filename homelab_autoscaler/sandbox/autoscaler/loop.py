"""The loop: the calls of the real autoscaler in their order.

Order and conclusions follow what is documented of the real one (the contract notes' sections 3 and 4), release line by
release line. Start here: `Autoscaler.loop_once` for tests, `Autoscaler.run` for a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_autoscaler.runtime.errors import ApiError
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError
from homelab_autoscaler.sandbox.autoscaler.grow import Grower
from homelab_autoscaler.sandbox.autoscaler.mend import Mender
from homelab_autoscaler.sandbox.autoscaler.observe import Observer
from homelab_autoscaler.sandbox.autoscaler.picture import cluster_is_healthy
from homelab_autoscaler.sandbox.autoscaler.shrink import Shrinker
from homelab_autoscaler.sandbox.autoscaler.step import LoopOverError, Parts, Scene

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal
    from homelab_autoscaler.sandbox.autoscaler.cloud import Cloud
    from homelab_autoscaler.sandbox.autoscaler.cluster import Cluster
    from homelab_autoscaler.sandbox.autoscaler.memory import Happening
    from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions

_ADVANCES_PER_SCAN: Final = 10
_ACTIONS: Final = frozenset({"ScaledUp", "ScaleDownStarted", "NodeDeleted"})


class Autoscaler:
    """Plays Cluster Autoscaler; making a new one is a restart, since all memory is in it.

    Args:
        cluster: nodes and pods.
        cloud: the provider.
        clock: all times.
        options: flags.
    """

    def __init__(self, cluster: Cluster, cloud: Cloud, clock: Clock, options: AutoscalerOptions) -> None:
        parts = Parts(cluster, cloud, clock, options)
        self.memory = parts.memory
        self.scene = Scene()
        self._parts = parts
        self._observer = Observer(parts)
        self._mender = Mender(parts)
        self._grower = Grower(parts)
        self._shrinker = Shrinker(parts, self._observer)

    def run(self, stop: StopSignal) -> None:
        """Loop until stopped, then say so to the provider.

        Raises:
            CrashError: an answer that would have ended the real process.
        """
        clock, options = self._parts.clock, self._parts.options
        step = options.times.scan_interval / _ADVANCES_PER_SCAN
        while not stop.is_set():
            acted = self.loop_once()
            # Newer releases loop again at once after they have scaled something.
            pauses = 1 if acted and options.generation.asks_before_refresh else _ADVANCES_PER_SCAN
            for _ in range(pauses):
                if clock.sleep(step, stop):
                    break
                self.advance()
        try:
            self._parts.cloud.cleanup()
        except CallError as error:
            self._observer.note("CleanupFailed", "", str(error))

    def loop_once(self) -> bool:
        """One loop; whether it scaled anything.

        Raises:
            CrashError: see run.
        """
        before = len(self.memory.journal)
        try:
            self._loop()
        except LoopOverError as over:
            self._observer.note("LoopEnded", "", str(over))
        except ApiError as error:
            self._observer.note("LoopFailed", "", f"the API server: {error}")
        return any(entry.kind in _ACTIONS for entry in self.memory.journal[before:])

    def advance(self) -> None:
        """Move deletions on between two loops; an unreachable API server leaves them where they are."""
        try:
            self._shrinker.advance()
        except ApiError as error:
            self._observer.note("LoopFailed", "", f"the API server: {error}")

    def journal(self, kind: str) -> list[Happening]:
        """What happened of one kind, in order."""
        return [entry for entry in self.memory.journal if entry.kind == kind]

    def _loop(self) -> None:
        options = self._parts.options
        self.scene = scene = self._observer.observe()
        self._mender.settle_requests(scene)
        self._mender.note_create_errors(scene)
        if self._mender.remove_overdue(scene):
            raise LoopOverError("unregistered instances were removed")
        if not cluster_is_healthy(scene.ready, options.ok_total_unready, options.max_total_unready_percentage):
            raise LoopOverError("the cluster is not ready for autoscaling: too many nodes are unready")
        self._mender.clean_create_errors(scene)
        self._mender.fix_sizes(scene)
        self._shrinker.advance()
        if not self._grower.grow(scene):
            self._shrinker.shrink(scene)
        if options.enforce_min_size:
            self._grower.enforce_min_size(scene)
