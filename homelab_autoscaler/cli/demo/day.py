"""The demo's day: two pods need machines, get them, go, and the machines go off again.

Every part is the real one and a process of its own: the embedded control plane, the manager, the small autoscaler.
This process plays the person: it declares the pool, creates the pods, deletes them, and watches.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from homelab_api import names
from homelab_api.core import Lease, Pod, Secret
from homelab_api.v2alpha1 import ClaimPhase, Group, Node, NodeClaim, PowerState, SlotPhase
from homelab_autoscaler.cli.cluster import cluster_config
from homelab_autoscaler.cli.demo import pool
from homelab_autoscaler.cli.demo.kills import LEASE_FLAGS, Killer
from homelab_autoscaler.cli.failure import CommandError
from homelab_autoscaler.cli.kinds import CustomResourceDefinition, Namespace
from homelab_autoscaler.cli.listening import free_port
from homelab_autoscaler.cli.snapshot import Snapshot, take
from homelab_autoscaler.runtime import ApiError, Client, NotFoundError, SystemClock
from homelab_autoscaler.runtime.client.transport import Transport
from homelab_autoscaler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import KubeObject
    from homelab_autoscaler.cli.demo.processes import Children
    from homelab_autoscaler.cli.demo.screen import Screen

_LOOK_EVERY: Final = 0.2
"""Seconds between two looks at the pool; fast enough for the eye, slow enough to leave the processors to the others."""
_START_WITHIN: Final = 30.0
"""Seconds for a process to start, whatever the time factor: starting Python is not scaled."""
_GRACE: Final = 30.0
"""Seconds added to every scaled deadline, for what a busy computer takes and no factor shortens."""
_PER_KILL: Final = 8.0
"""Seconds added to every deadline for each death of the manager: its lease is waited out, Python starts."""
_OPERATIONS: Final = 80.0
"""Seconds of the model's time that machines are on the way on or off in an undisturbed day."""
_MOVING: Final = (SlotPhase.PENDING, SlotPhase.BOOTING, SlotPhase.DRAINING)
OWN_NAMESPACE: Final = names.DEFAULT_NAMESPACE
LEASE: Final = "homelab-autoscaler"
CLIENT_SECRET: Final = "homelab-autoscaler-grpc-client"  # noqa: S105 - the name of an object


@dataclass(frozen=True, slots=True)
class DayOptions:
    """What a demo is about.

    Attributes:
        machines: how many slots the pool has; at least as many as pods.
        pods: how many pods will need a machine each.
        time_factor: every wait of the model and of the simulation is divided by this.
        work: seconds that the pods run, of the model's time.
        kills: how often the manager is killed outright during the day.
        seed: of the moments of the kills; chosen if None.
    """

    machines: int = 3
    pods: int = 2
    time_factor: float = 20.0
    work: float = 120.0
    kills: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the embedded control plane is reached, as it wrote itself when it was ready."""

    kubeconfig: str
    bmc: str
    writes: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The day at its end, for the summary.

    Attributes:
        leading_after: seconds from starting the manager's process until it led.
        manager_peak: greatest resident memory of the manager, in MiB.
    """

    place: Place
    snapshot: Snapshot
    leading_after: float
    manager_peak: float


class Day:
    """Plays the day. Each step waits for its effect, and says what is missing when that does not come in time."""

    def __init__(self, options: DayOptions, directory: Path, children: Children, screen: Screen) -> None:
        """Nothing happens yet.

        Args:
            options: what is played.
            directory: for logs, kubeconfig and certificates; exists.
            children: starts the processes.
            screen: shows it.
        """
        self._options = options
        self._directory = directory
        self._children = children
        self._screen = screen
        self._settings = Settings().scaled(options.time_factor)
        self._snapshot = Snapshot()
        self._over = False
        self._grpc_port = free_port()

    def run(self) -> Outcome:
        """From nothing to machines that were on and are off.

        Raises:
            CommandError: something did not start, or did not happen within its deadline; the text says what.
        """
        place = self._start_control_plane()
        config = cluster_config(place.kubeconfig)
        clock = SystemClock()
        client = Client(config, clock, transport=Transport(config, clock, user_agent="demo"))
        try:
            self._apply_definitions(client)
            leading_after = self._start_manager(client, place)
            self._declare_pool(client)
            self._start_autoscaler(client, place)
            with self._killer(client) as killer:
                self._work(client)
                self._rest(client)
                if self._options.kills:
                    self._outlive(client, killer)
            manager = self._children.named("manager")
            return Outcome(place, self._look(client), leading_after, peak_memory(manager.pid))
        finally:
            client.close()

    def _killer(self, client: Client) -> Killer:
        return Killer(
            self._children,
            self._screen,
            lambda: client.get(Lease, LEASE, OWN_NAMESPACE).spec.holder_identity or "",
            lambda: self._over or any(slot.status.phase in _MOVING for slot in self._snapshot.slots),
            kills=self._options.kills,
            length=_OPERATIONS / self._options.time_factor,
            seed=self._options.seed,
        )

    # --- chapters -----------------------------------------------------------------------------------------------

    def _start_control_plane(self) -> Place:
        self._screen.step("Start the embedded control plane")
        ready = self._directory / "sandbox.json"
        machines = self._directory / "machines.yaml"
        machines.write_text(json.dumps(pool.machines(self._options.machines)), encoding="utf-8")
        self._children.start(
            "control plane",
            [
                "sandbox",
                f"--data-dir={self._directory}",
                f"--machines={machines}",
                f"--time-factor={self._options.time_factor:g}",
            ],
        )
        self._wait(ready.exists, "the control plane did not start", _START_WITHIN)
        found = json.loads(ready.read_text(encoding="utf-8"))
        place = Place(found["kubeconfig"], found["bmc"], found["writes"])
        self._screen.say(f"in another terminal: export KUBECONFIG={place.kubeconfig}")
        return place

    def _apply_definitions(self, client: Client) -> None:
        from homelab_api.crd import definitions  # noqa: PLC0415 - heavy: once the control plane is starting

        self._screen.step("Apply the CustomResourceDefinitions")
        for body in definitions():
            client.create_json(CustomResourceDefinition, body, None)
        self._wait(
            lambda: all(crd.established for crd in client.list(CustomResourceDefinition).items),
            "the CustomResourceDefinitions were not established",
            _START_WITHIN,
        )

    def _start_manager(self, client: Client, place: Place) -> float:
        self._screen.step("Start the manager, a process of its own that speaks HTTP to the control plane")
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
        client.create_json(Namespace, body, None)
        child = self._children.start(
            "manager",
            [
                "manager",
                f"--kubeconfig={place.kubeconfig}",
                f"--namespace={pool.NAMESPACE}",
                f"--own-namespace={OWN_NAMESPACE}",
                f"--lease-name={LEASE}",
                f"--grpc-address=127.0.0.1:{self._grpc_port}",
                "--grpc-host=127.0.0.1",
                "--grpc-host=localhost",
                "--health-address=",
                "--metrics-address=",
                f"--time-factor={self._options.time_factor:g}",
                *(LEASE_FLAGS if self._options.kills else ()),
            ],
            revive=self._options.kills > 0,
        )
        lease = self._until_exists(client, Lease, LEASE, OWN_NAMESPACE, "no manager took the lead")
        leading_after = lease.spec.acquire_time.timestamp() - child.started_at if lease.spec.acquire_time else 0.0
        self._screen.say(f"it leads {leading_after:.1f} s after its start")
        return leading_after

    def _declare_pool(self, client: Client) -> None:
        count = self._options.machines
        self._screen.step(f"Declare a pool of {count} machines; all are off")
        client.create_json(Group, pool.group(count, self._options.time_factor), pool.NAMESPACE)
        for number in range(1, count + 1):
            client.create_json(Node, pool.slot(number), pool.NAMESPACE)
        self._until(
            client,
            lambda now: len(now.slots) == count and all(slot.status.phase is SlotPhase.OFF for slot in now.slots),
            "the slots were not observed off",
            _START_WITHIN,
        )

    def _start_autoscaler(self, client: Client, place: Place) -> None:
        self._screen.step("Start the small autoscaler: gRPC with mutual TLS, certificates made by the manager")
        secret = self._until_exists(client, Secret, CLIENT_SECRET, OWN_NAMESPACE, "the manager made no certificates")
        self._children.start(
            "autoscaler",
            [
                f"--kubeconfig={place.kubeconfig}",
                f"--cloud-config={self._cloud_config(secret)}",
                f"--speed={self._options.time_factor:g}",
                # By flags and not by the Group: options of a group make current autoscalers take machines that are
                # just starting for unready ones, and ask for one more.
                "--scale-down-unneeded-time=1m",
                "--scale-down-delay-after-add=5m",
            ],
            module="homelab_autoscaler.sandbox.autoscaler",
        )

    def _cloud_config(self, secret: Secret) -> Path:
        """The file that Cluster Autoscaler gets with --cloud-config, and the PEM files that it names."""
        files = {}
        for key, entry in (("cert", "tls.crt"), ("key", "tls.key"), ("cacert", "ca.crt")):
            path = self._directory / f"autoscaler-{entry}"
            path.touch(mode=0o600)
            path.write_bytes(base64.b64decode(secret.data[entry]))
            files[key] = str(path)
        config = self._directory / "cloud-config.yaml"
        config.write_text(json.dumps({"address": f"127.0.0.1:{self._grpc_port}", **files}), encoding="utf-8")
        return config

    def _work(self, client: Client) -> None:
        count = self._options.pods
        self._screen.step(f"Create {count} pods. No node has room for them")
        for number in range(1, count + 1):
            client.create_json(Pod, pool.pod(number), pool.NAMESPACE)
        budget = self._settings.boot_budget + _GRACE
        self._until(client, lambda now: len(_live(now)) == count, f"{count} claims did not appear", _START_WITHIN)
        self._screen.step(f"The autoscaler asked for {count} machines: claims, startup Jobs, boots")
        self._until(
            client,
            lambda now: sum(claim.phase is ClaimPhase.READY for claim in now.claims) == count,
            f"{count} claims did not become ready",
            budget,
        )
        self._screen.step("The machines are ready; the pods run")
        self._until(client, lambda now: _running(now) == count, "the pods did not run", budget)
        self._watch_for(client, self._options.work / self._options.time_factor)

    def _rest(self, client: Client) -> None:
        self._screen.step("The work is done: the pods go, and nobody needs the machines")
        for number in range(1, self._options.pods + 1):
            client.delete(Pod, f"work-{number}", pool.NAMESPACE)
        waits = self._settings
        budget = waits.job_timeout + waits.off_settle + waits.lease_silence + waits.finalizer_poll
        unneeded = 1500 / self._options.time_factor  # more than the autoscaler's own patience
        self._until(
            client,
            lambda now: any(claim.marked for claim in now.claims),
            "the autoscaler did not withdraw",
            unneeded + _GRACE,
        )
        self._screen.step("The autoscaler withdrew: cordon, drain, shutdown Jobs")
        self._until(
            client,
            lambda now: _all_over(now, self._options.pods),
            "the machines did not go off, or claims did not end completed",
            budget + unneeded + _GRACE,
        )
        self._screen.step("All machines are off, their nodes are gone, the claims ended completed")

    def _outlive(self, client: Client, killer: Killer) -> None:
        """Let the rest of the kills come, and see that nothing moved and nobody was switched on again."""
        self._screen.step("Nothing is left to do; the rest of the kills must not change that")
        self._over = True
        self._wait(lambda: killer.done, "not all kills were made", _START_WITHIN)
        self._watch_for(client, 2 * self._settings.off_settle)
        self._until(
            client, lambda now: _all_over(now, self._options.pods), "a machine or a claim came back", _START_WITHIN
        )

    # --- waiting ------------------------------------------------------------------------------------------------

    def _look(self, client: Client) -> Snapshot:
        self._snapshot = take(client, pool.NAMESPACE)
        self._screen.show(self._snapshot)
        return self._snapshot

    def _until(self, client: Client, reached: Callable[[Snapshot], bool], problem: str, seconds: float) -> None:
        self._wait(lambda: reached(self._look(client)), problem, seconds)

    def _until_exists(self, client: Client, kind: type[Any], name: str, namespace: str, problem: str) -> Any:
        found: list[KubeObject] = []

        def look() -> bool:
            try:
                found.append(client.get(kind, name, namespace))
            except NotFoundError:
                return False
            return True

        self._wait(look, problem, _START_WITHIN)
        return found[0]

    def _watch_for(self, client: Client, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._children.check()
            self._look(client)
            time.sleep(_LOOK_EVERY)

    def _wait(self, reached: Callable[[], bool], problem: str, seconds: float) -> None:
        seconds += self._options.kills * _PER_KILL
        end = time.monotonic() + seconds
        while True:
            self._children.check()
            try:
                if reached():
                    return
            except ApiError as error:
                raise CommandError(f"{problem}: {error}") from error
            if time.monotonic() > end:
                raise CommandError(f"{problem} within {seconds:.0f} s. Logs are in {self._directory}")
            time.sleep(_LOOK_EVERY)


def _live(now: Snapshot) -> list[NodeClaim]:
    return [claim for claim in now.claims if claim.live]


def _running(now: Snapshot) -> int:
    return sum(pod.status.phase == "Running" and pod.metadata.labels.get("app") == "work" for pod in now.pods)


def _all_over(now: Snapshot, claims: int) -> bool:
    """Everybody is off and nothing is left but the digests of the claims: a withdrawn claim goes when it is over."""
    machines = {slot.spec.kubernetes_node_name for slot in now.slots}
    digests = [slot.status.last_claim for slot in now.slots if slot.status.last_claim]
    return (
        not now.claims
        and len(digests) >= claims  # a loaded computer may make the autoscaler impatient: it asks for one more then
        and all(digest.phase is ClaimPhase.COMPLETED for digest in digests)
        and all(slot.status.phase is SlotPhase.OFF and slot.status.power_state is PowerState.OFF for slot in now.slots)
        and not any(node.name in machines for node in now.nodes)
    )


def peak_memory(pid: int) -> float:
    """Greatest resident memory that a process had, in MiB; 0 where /proc does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 0.0
    return int(peak.split()[1]) / 1024
