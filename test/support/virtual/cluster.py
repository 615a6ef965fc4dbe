"""A cluster with machines and the operator, told what to do in plain statements while virtual time passes."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

import orjson
import yaml
from lab.world import CRDS

from homelab_api import names
from homelab_api.core import CoreNode, Job, Pod
from homelab_api.v2alpha1 import Call, Group, Node, NodeClaim
from homelab_autoscaler.claim.create import ClaimFactory
from homelab_autoscaler.claim.create import Request as ClaimRequest
from homelab_autoscaler.controllers.assemble import AssemblyOptions
from homelab_autoscaler.provider.failure import CallError
from homelab_autoscaler.provider.index import PoolIndex
from homelab_autoscaler.provider.pool import Pool
from homelab_autoscaler.provider.scale import Scaler
from homelab_autoscaler.runtime import Client, ClientConfig, MergePatch, NotFoundError, ServerClock
from homelab_autoscaler.runtime.client.transport import Reply
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.sandbox import resources
from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.apiserver.request import ADMIN, ApiRequest, User
from homelab_autoscaler.sandbox.apiserver.store.objects import Key
from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.controlplane import ControlPlane, ControlPlaneOptions
from homelab_autoscaler.sandbox.kubelet.kubelet import Kubelet
from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings, NodeSpec
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.simulators import SimulatorOptions
from homelab_autoscaler.settings import Settings
from virtual.operator import WATCHED, Died, Leadership, Operator, Said
from virtual.scripts import Script, ScriptRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject, KubeObject

NAMESPACE = "lab"
START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
_OPERATOR = User("system:serviceaccount:homelab:manager", ("system:authenticated",))


@cache
def _definitions() -> list[JsonObject]:
    return [body for file in sorted(CRDS.glob("*.yaml")) for body in yaml.safe_load_all(file.read_text("utf-8"))]


class VirtualClock:
    """The sandbox's clock, as the product's code asks for it. Waits inside a pass take no time.

    Attributes:
        skew: by how much the operator's machine is ahead of everybody else.
    """

    def __init__(self, clock: ManualSandboxClock) -> None:
        self._clock = clock
        self.skew = timedelta()

    def now(self) -> datetime:
        return self._clock.now() + self.skew

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float, stop: Any = None) -> bool:
        del seconds
        return bool(stop and stop.is_set())

    def wait(self, condition: Any, timeout: float | None) -> bool:
        del condition, timeout
        return False


class Wire:
    """A transport to the API server in this process, each request answered before it returns.

    Attributes:
        before: called with (method, target, body) of each request before the server has it; may raise.
        after: the same, when the server has answered and the caller does not know yet.
    """

    def __init__(self, handle: Any, user: User, time: ManualSandboxClock, clock: Any) -> None:
        self._handle = handle
        self._user = user
        self._time = time
        self._clock = clock
        self.before: Callable[[str, str, bytes], None] = lambda *_: None
        self.after: Callable[[str, str, bytes], None] = lambda *_: None
        self.writes: list[str] = []

    def request(self, method: str, target: str, *, body: bytes | None = None, content_type: str = "", **_: Any) -> Any:
        self.before(method, target, body or b"")
        parts = urlsplit(target)
        headers = {"content-type": content_type or "application/json", "accept": "application/json"}
        asked = ApiRequest(method, parts.path, parse_qs(parts.query), headers, body or b"", {}, self._user)
        answer = at_once(self._handle(asked))
        if answer.abort:
            raise TransportError(f"{method} {target}: injected")
        if method != "GET" and answer.status < 300:
            self.writes.append(f"{method} {parts.path}")
        self.after(method, target, body or b"")
        if isinstance(self._clock, ServerClock):
            self._clock.heard(format_datetime(self._time.now(), usegmt=True), self._clock.monotonic())
        return Reply(answer.status, {key.lower(): value for key, value in answer.headers}, answer.body)

    def close(self) -> None:
        return None


def at_once(work: Any) -> Any:
    """Run a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AssertionError("the API server had to wait: use no latencies and no webhooks here")


class Cluster:
    """Everything, from `with` to its end. Times are true seconds, but they are virtual."""

    def __init__(self, *, settings: Settings | None = None, server: ApiServerOptions | None = None) -> None:
        self.settings = settings or Settings()
        self.time = ManualSandboxClock(START)
        self.clock = VirtualClock(self.time)
        self._loop = asyncio.new_event_loop()
        options = ControlPlaneOptions(server=server or ApiServerOptions(), simulators=SimulatorOptions(host_node=False))
        self.plane = ControlPlane(options, self.time)
        self.said: list[Said] = []
        self._lives = 0
        self._changed: asyncio.Event | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.operator: Operator | None = None
        self.assembly = AssemblyOptions(namespace=NAMESPACE)
        self.failure: BaseException | None = None

    # --- its life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._run(self.plane.start())
        self.client = self._client(ADMIN, self.clock)
        for body in _definitions():
            at_once(self.plane.server.local().create(resources.path(resources.CRDS), body))
        self._admin("create", resources.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.scripts = ScriptRuntime(self.time, self.plane.fleet)
        host = NodeSpec(
            "host",
            labels={"node-role.kubernetes.io/control-plane": ""},
            taints=({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},),
        )
        timings = KubeletTimings(ready_after=0.0)
        self._kubelet = Kubelet(self.plane.server.local("system:node:host"), self.time, host, self.scripts, timings)
        self._spawn(self._kubelet.run())
        self.plane.server.store.listeners.append(lambda _: self._changed and self._changed.set())
        self.group()
        self.run(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.operator is not None:
            self.operator.bugs.clear()  # The test has failed already, and says why.
        self.kill()
        for task in [*self._tasks, *self.scripts.tasks]:
            task.cancel()
        self._run(asyncio.gather(*self._tasks, *self.scripts.tasks, return_exceptions=True))
        self._run(self.plane.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _client(self, user: User, clock: Any) -> Client:
        wire = Wire(self.plane.server.handle, user, self.time, clock)
        return Client(ClientConfig(host="http://virtual"), clock, transport=wire)  # type: ignore[arg-type]

    def start(self) -> Operator:
        """Begin a life of the operator, with empty caches."""
        assert self.operator is None, "one at a time"
        self._lives += 1
        clock = ServerClock(self.clock)
        client = self._client(_OPERATOR, clock)
        leadership = Leadership(f"manager-{self._lives}", self._lives)
        self.operator = Operator(
            self.plane.server.store, client, clock, self.settings, self.assembly, leadership, self.said
        )
        self._changed = asyncio.Event()
        self._changed.set()
        self._life = self._spawn(self._live(self.operator, self._changed))
        return self.operator

    def kill(self) -> None:
        """End the operator between two instructions."""
        if self.operator is None:
            return
        assert not self.operator.bugs, self.operator.bugs
        self.operator = None
        self._life.cancel()
        self._run(asyncio.gather(self._life, return_exceptions=True))

    def restart(self) -> Operator:
        """A new process in the place of the old one."""
        self.kill()
        return self.start()

    async def _live(self, operator: Operator, changed: asyncio.Event) -> None:
        try:
            while True:
                changed.clear()
                wait = operator.turn()
                if not changed.is_set():
                    await self._pause(changed, wait)
                else:
                    await asyncio.sleep(0)
        except Died:
            return
        except AssertionError as error:
            self.failure = error

    async def _pause(self, changed: asyncio.Event, wait: float | None) -> None:
        waits = {asyncio.ensure_future(changed.wait())}
        if wait is not None:
            waits.add(asyncio.ensure_future(self.time.sleep(max(wait, 0.001))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _spawn(self, work: Any) -> Any:
        task = self._loop.create_task(work)
        self._tasks.append(task)
        return task

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    # --- time -------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self._run(self.time.advance(seconds))
        if self.failure is not None:
            raise self.failure
        assert self.operator is None or not self.operator.bugs, self.operator.bugs

    def until(self, what: str, holds: Callable[[], Any], within: float = 3600, step: float = 1.0) -> float:
        """Let time pass until something holds; the seconds that it took."""
        begin = self.time.monotonic()
        while not holds():
            assert self.time.monotonic() - begin < within, f"not within {within} s: {what}\n{self.describe()}"
            self.run(step)
        return self.time.monotonic() - begin

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.time.monotonic()

    # --- people, Git and the autoscaler -----------------------------------------------------------------------

    def group(self, name: str = "pool", **spec: Any) -> None:
        """A pool, or new settings of it."""
        with contextlib.suppress(NotFoundError):
            self.client.patch(Group, name, NAMESPACE, MergePatch({"spec": spec}))
            return
        self.client.create_json(Group, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}, NAMESPACE)

    def slot_body(self, name: str, group: str = "pool", **spec: Any) -> JsonObject:
        return {
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.LABEL_GROUP: group}},
            "spec": {
                "kubernetesNodeName": f"node-{name}",
                "startupPodSpec": {"image": "power", "command": ["on", name]},
                "shutdownPodSpec": {"image": "power", "command": ["off", name]},
                **spec,
            },
        }

    def machine(
        self,
        name: str = "m",
        *,
        on: bool = False,
        slot: JsonObject | None = None,
        group: str = "pool",
        provider_id: str = "",
        declare: bool = True,
        **behaviour: Any,
    ) -> str:
        """A machine and its slot."""
        node = NodeSpec(f"node-{name}", labels={names.LABEL_GROUP: group}, provider_id=provider_id)
        quick = {"boot_seconds": 60.0, "stop_seconds": 5.0, "firmware_delay": 1.0, **behaviour}
        spec = MachineSpec(name, node, Behaviour().changed(quick), initially_on=on)
        self.in_loop(lambda: self.plane.fleet.add(spec) and None)
        if declare:
            self.client.create_json(Node, self.slot_body(name, group, **(slot or {})), NAMESPACE)
        return name

    def in_loop(self, action: Callable[[], Any]) -> Any:
        """Call something on the event loop."""

        async def call() -> Any:
            return action()

        return self._run(call())

    def at(self, machine: str) -> Any:
        """The machine itself."""
        return self.plane.fleet[machine]

    def behave(self, machine: str, **values: Any) -> None:
        """From now on the machine behaves otherwise."""
        self.in_loop(lambda: self.at(machine).change(self.at(machine).behaviour.changed(values)))

    def script(self, command: str, machine: str, **values: Any) -> None:
        """From now on the script does this."""
        self.scripts.scripts[command, machine] = Script(**values)

    def claim(self, slot: str = "m", call: Call = Call.INCREASE_SIZE, **request: Any) -> NodeClaim:
        """What the provider, a schedule or a person at the command line does."""
        clock = self.operator.clock if self.operator else self.clock
        factory = ClaimFactory(self.client, clock, self.settings)
        found = self.client.get(Node, slot, NAMESPACE)
        return factory.create(found, ClaimRequest(call=call, **request), read_at=clock.monotonic())

    def claim_by_hand(self, name: str, slot: str = "m", **spec: Any) -> NodeClaim:
        """A claim as a person writes it."""
        body = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"slotRef": {"name": slot}, "call": "Manual", "group": "pool", **spec},
        }
        return self.client.create_json(NodeClaim, body, NAMESPACE)

    def unclaim(self, claim: NodeClaim, reason: str = "NodeDeleted") -> None:
        """Withdraw a claim."""
        patch = MergePatch({"metadata": {"annotations": {names.ANNOTATION_END_REASON: reason}}})
        self.client.patch(NodeClaim, claim.name, NAMESPACE, patch)
        self.client.delete(NodeClaim, claim.name, NAMESPACE)

    def ready(self, slot: str = "m", **request: Any) -> NodeClaim:
        """A claim that has become ready."""
        claim = self.claim(slot, **request)
        self.until("ready", lambda: self.phase(claim) == "ready")
        return claim

    def pod(self, name: str, node: str = "node-m", labels: JsonObject | None = None, **annotations: str) -> None:
        """A workload's pod on a node."""
        body = {
            "metadata": {"name": name, "labels": labels or {"app": name}, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "app"}]},
        }
        self._admin("create", resources.PODS, body)

    def budget(self, name: str, labels: JsonObject, allowed: int = 0) -> None:
        """A disruption budget that allows no more than that; when it returns the budget counts its pods."""
        spec = {"maxUnavailable": allowed, "selector": {"matchLabels": labels}}
        self._admin("create", resources.BUDGETS, {"metadata": {"name": name}, "spec": spec})
        self.run(5)

    def _admin(self, verb: str, resource: Any, body: JsonObject) -> JsonObject:
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        target = resources.path(resource, NAMESPACE if resource.namespaced else None)
        return at_once(getattr(self.plane.server.local(), verb)(target, full))

    # --- the autoscaler's side --------------------------------------------------------------------------------

    def provider(self) -> tuple[Pool, Scaler]:
        """The provider as a process that has just started sees the pool; it reads claims anew where it decides."""
        self.run(0)
        index = PoolIndex()
        assert self.operator is not None
        for kind in WATCHED:
            for found in self.operator.cache.of[kind].list():
                index.put(found)
        clock = self.operator.clock
        pool = Pool(index, clock, self.settings, NAMESPACE)
        return pool, Scaler(self.operator.client, pool, clock, self.settings)

    def target(self, group: str = "pool") -> int:
        """NodeGroupTargetSize."""
        return self.provider()[0].view(group).target

    def increase(self, delta: int = 1, group: str = "pool") -> bool:
        """NodeGroupIncreaseSize; whether it was granted."""
        try:
            self.provider()[1].increase(group, delta)
        except CallError:
            return False
        return True

    def keep_asking(self, machines: int, seconds: float, group: str = "pool", every: float = 10.0) -> int:
        """An autoscaler with pods that wait: it asks for what the target lacks. How often it was granted something."""
        granted = 0
        end = self.seconds + seconds
        while self.seconds < end:
            lacking = machines - self.target(group)
            while lacking > 0 and not self.increase(lacking, group):
                lacking -= 1
            granted += max(0, lacking)
            self.run(every)
        return granted

    # --- looking ----------------------------------------------------------------------------------------------

    def get(self, kind: type[KubeObject], name: str, namespace: str | None = NAMESPACE) -> Any:
        """An object, None if it is not there."""
        with contextlib.suppress(NotFoundError):
            return self.client.get(kind, name, namespace)
        return None

    def raw(self, group: str, plural: str, name: str, namespace: str = NAMESPACE) -> JsonObject:
        """An object as it is stored, with fields that our types do not know."""
        stored = self.plane.server.store.collection(f"{group}/{plural}").get(Key(namespace, name))
        assert stored is not None
        return stored.load()

    def slot(self, name: str = "m") -> Any:
        return self.get(Node, name)

    def node(self, machine: str = "m") -> Any:
        return self.get(CoreNode, f"node-{machine}", None)

    def claims(self) -> list[NodeClaim]:
        return self.client.list(NodeClaim, NAMESPACE).items

    def jobs(self) -> list[Job]:
        return self.client.list(Job, NAMESPACE).items

    def pods(self) -> list[Pod]:
        return self.client.list(Pod, NAMESPACE).items

    def fresh(self, claim: NodeClaim) -> Any:
        """The claim as it is now; None if it is gone, or another of its name."""
        found = self.get(NodeClaim, claim.name)
        return found if found is not None and found.uid == claim.uid else None

    def phase(self, claim: NodeClaim) -> str:
        found = self.fresh(claim)
        return "gone" if found is None else str(found.phase)

    def reason(self, claim: NodeClaim) -> str:
        found = self.fresh(claim)
        return "" if found is None else str(found.status.reason)

    def condition(self, obj: Any, kind: str) -> Any:
        """A condition that holds, None if it does not."""
        return next((entry for entry in obj.status.conditions if entry.type == kind and entry.status == "True"), None)

    def power(self, machine: str = "m") -> str:
        """The truth."""
        return str(self.at(machine).power.value)

    def commands(self, machine: str = "m") -> list[str]:
        """Power commands that reached the machine, in order."""
        return [entry.command for entry in self.plane.ledger.entries(machine)]

    def reasons(self, about: str = "") -> list[str]:
        """Reasons of events, of one object or of all."""
        return [entry.reason for entry in self.said if about in {"", entry.name}]

    def writes(self, since: int = 0) -> list[Any]:
        """What was written to the API server."""
        return self.plane.server.writes.since(since)

    def describe(self) -> str:
        """For what a failing test says."""
        lines = [f"at {self.seconds:.1f} s, machines {[(m.name, m.power.value) for m in self.plane.fleet]}"]
        for slot in self.client.list(Node, NAMESPACE).items:
            said = [f"{entry.type}={entry.status}/{entry.reason}" for entry in slot.status.conditions]
            lines.append(f"slot {slot.name}: {slot.status.phase} {said} {slot.metadata.annotations}")
        lines += [
            f"claim {claim.name}: {claim.phase} {claim.status.reason} marked={claim.marked} "
            f"committed={claim.committed} shutdowns={claim.status.shutdown_attempts} {claim.status.message}"
            for claim in self.claims()
        ]
        lines += [
            f"job {job.name}: suspended={job.suspended} {orjson.dumps(job.to_json()['status'])!r}"
            for job in self.jobs()
        ]
        lines += [f"pod {pod.name}: {pod.status.phase}" for pod in self.pods()]
        lines += [f"{entry.at:%H:%M:%S} {entry.name} {entry.reason} {entry.message}" for entry in self.said[-12:]]
        return "\n".join(lines)
