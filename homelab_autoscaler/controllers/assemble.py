"""Everything that runs in a manager, in one list: caches with their indexes, collaborators, controllers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.claim.create import ClaimFactory
from homelab_autoscaler.claim.recorder import ClaimRecorder
from homelab_autoscaler.controllers.claim import ClaimReconciler
from homelab_autoscaler.controllers.group import GroupReconciler
from homelab_autoscaler.controllers.mappers import Mappers
from homelab_autoscaler.controllers.observation import ObservationReconciler
from homelab_autoscaler.controllers.operation import RETRY_FIRST, RETRY_LAST, OperationReconciler
from homelab_autoscaler.controllers.slot import SlotReconciler
from homelab_autoscaler.controllers.slot_conditions import SlotConditions
from homelab_autoscaler.controllers.trim import trimmed_node
from homelab_autoscaler.lifecycle.boot import Boot
from homelab_autoscaler.lifecycle.drain import Drainer
from homelab_autoscaler.lifecycle.gate import ReadinessGate
from homelab_autoscaler.lifecycle.job_spec import JobOptions
from homelab_autoscaler.lifecycle.jobs import Jobs
from homelab_autoscaler.lifecycle.lock import Locks
from homelab_autoscaler.lifecycle.monitor import OperationMonitor
from homelab_autoscaler.lifecycle.node_marks import NodeMarks
from homelab_autoscaler.lifecycle.pulse import KubeletPulse
from homelab_autoscaler.lifecycle.release import Releaser
from homelab_autoscaler.lifecycle.report import Reporter
from homelab_autoscaler.lifecycle.scope import (
    INDEX_GROUP,
    INDEX_NODE_NAME,
    INDEX_SLOT,
    CachedScopes,
    LiveScopes,
    group_of_slot,
    node_name_of_slot,
    slot_of_claim,
    slot_of_job,
)
from homelab_autoscaler.lifecycle.shutdown import Shutdown
from homelab_autoscaler.pod_policy import PodPolicy
from homelab_autoscaler.runtime import ControllerBuilder
from homelab_autoscaler.runtime.queue import ExponentialLimiter

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import Manager
    from homelab_autoscaler.settings import Settings


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """What an installation decides beside the settings.

    Attributes:
        namespace: watch only this namespace's pools; None for all.
        jobs: defaults of lifecycle Jobs.
        policy: what pods of slots may name.
        own_node: the Kubernetes node that runs this manager, so that it is not switched off under it.
        workers: passes that may run at once, per controller.
    """

    namespace: str | None = None
    jobs: JobOptions = field(default_factory=JobOptions)
    policy: PodPolicy = field(default_factory=PodPolicy)
    own_node: str = ""
    workers: int = 4


def assemble(manager: Manager, settings: Settings, options: AssemblyOptions) -> None:
    """Register caches and controllers with the manager."""
    _register_caches(manager, options.namespace)
    engine = _Engine(manager, settings, options)
    _build_slot_controller(manager, settings, options, engine)
    _build_operation_controller(manager, options, engine)
    _build_claim_controller(manager, settings, options, engine)
    _build_observation_controller(manager, settings, options, engine)
    _build_group_controller(manager, settings, options, engine)


def _register_caches(manager: Manager, namespace: str | None) -> None:
    cache = manager.cache
    cache.informer(Node, namespace=namespace, indexers={INDEX_NODE_NAME: node_name_of_slot, INDEX_GROUP: group_of_slot})
    cache.informer(Group, namespace=namespace)
    cache.informer(NodeClaim, namespace=namespace, indexers={INDEX_SLOT: slot_of_claim})
    cache.informer(NodeReclaim, namespace=namespace)
    cache.informer(CoreNode, transform=trimmed_node)
    cache.informer(Job, namespace=namespace, indexers={INDEX_SLOT: slot_of_job})


class _Engine:
    """The collaborators that controllers share, made once and in the order in which they need each other."""

    def __init__(self, manager: Manager, settings: Settings, options: AssemblyOptions) -> None:
        client, clock, recorder = manager.client, manager.clock, manager.recorder
        self.slots = manager.cache.lister(Node)
        self.claims = manager.cache.lister(NodeClaim)
        self.pulse = KubeletPulse(client, clock, settings.lease_silence)
        self.scopes = CachedScopes(manager.cache, self.pulse, clock, settings.off_settle)
        self.claim_recorder = ClaimRecorder(client, recorder, clock)
        self.locks = Locks(client, clock, manager.leadership, settings.lock_timeout)
        self.jobs = Jobs(client, clock, settings)
        self.marks = NodeMarks(client)
        self.reporter = Reporter(client, settings)
        releaser = Releaser(LiveScopes(client, self.pulse, clock, settings.off_settle), self.jobs, self.locks)
        gate = ReadinessGate(
            client=client,
            claims=self.claim_recorder,
            locks=self.locks,
            marks=self.marks,
            reporter=self.reporter,
            recorder=recorder,
            settings=settings,
        )
        self.boot = Boot(
            client=client,
            claims=self.claim_recorder,
            locks=self.locks,
            jobs=self.jobs,
            releaser=releaser,
            marks=self.marks,
            pulse=self.pulse,
            gate=gate,
            recorder=recorder,
            settings=settings,
            options=options.jobs,
            pool_nodes=self._pool_nodes,
        )
        self.shutdown = Shutdown(
            claims=self.claim_recorder,
            locks=self.locks,
            jobs=self.jobs,
            releaser=releaser,
            marks=self.marks,
            drainer=Drainer(client, clock, settings.drain_pass),
            recorder=recorder,
            settings=settings,
            options=options.jobs,
            pool_nodes=self._pool_nodes,
            own_node=options.own_node,
        )
        monitor = OperationMonitor(self.scopes, self.boot, self.shutdown)
        self.operations = OperationReconciler(monitor, clock, settings.monitor_poll)
        self.mappers = Mappers(self.slots, self.claims)

    def _pool_nodes(self) -> list[str]:
        """Nodes that slots name."""
        return self.slots.index_values(INDEX_NODE_NAME)


def _build_slot_controller(manager: Manager, settings: Settings, options: AssemblyOptions, engine: _Engine) -> None:
    reconciler = SlotReconciler(
        client=manager.client,
        clock=manager.clock,
        settings=settings,
        recorder=manager.recorder,
        scopes=engine.scopes,
        slots=engine.slots,
        claims=engine.claims,
        claim_recorder=engine.claim_recorder,
        factory=ClaimFactory(manager.client, manager.clock, settings),
        locks=engine.locks,
        jobs=engine.jobs,
        marks=engine.marks,
        policy=options.policy,
        boot=engine.boot,
        shutdown=engine.shutdown,
        operations=engine.operations,
        reporter=engine.reporter,
    )
    to, namespace = engine.mappers, options.namespace
    (
        ControllerBuilder(manager, "slot")
        .for_(Node, namespace=namespace)
        .watches(NodeClaim, to.slot_of_claim, namespace=namespace)
        .watches(CoreNode, to.slots_of_node)
        .watches(Job, to.slot_of_job, namespace=namespace)
        .watches(NodeReclaim, to.slot_of_reclaim, namespace=namespace)
        .watches(Group, to.slots_of_group, namespace=namespace)
        .with_options(workers=options.workers)
        .complete(reconciler)
    )


def _build_operation_controller(manager: Manager, options: AssemblyOptions, engine: _Engine) -> None:
    to, namespace, followed = engine.mappers, options.namespace, engine.operations.followed
    controller = (
        ControllerBuilder(manager, "operation")
        .watches(Node, followed(to.slot), namespace=namespace)
        .watches(NodeClaim, followed(to.slot_of_claim), namespace=namespace)
        .watches(CoreNode, followed(to.slots_of_node))
        .watches(Job, followed(to.slot_of_job), namespace=namespace)
        .watches(NodeReclaim, followed(to.slot_of_reclaim), namespace=namespace)
        .with_options(workers=options.workers, rate_limiter=ExponentialLimiter(RETRY_FIRST, RETRY_LAST))
        .complete(engine.operations)
    )
    engine.operations.attach(controller.enqueue)


def _build_claim_controller(manager: Manager, settings: Settings, options: AssemblyOptions, engine: _Engine) -> None:
    reconciler = ClaimReconciler(
        client=manager.client,
        clock=manager.clock,
        settings=settings,
        scopes=engine.scopes,
        claims=engine.claims,
        slots=engine.slots,
        claim_recorder=engine.claim_recorder,
        slot_conditions=SlotConditions(manager.client, manager.clock),
        marks=engine.marks,
        policy=options.policy,
    )
    to, namespace = engine.mappers, options.namespace
    (
        ControllerBuilder(manager, "claim")
        .for_(NodeClaim, namespace=namespace)
        .watches(Node, to.claims_of_slot, namespace=namespace)
        .watches(CoreNode, to.claims_of_node)
        .watches(Job, to.claims_of_job, namespace=namespace)
        .watches(NodeReclaim, to.claims_of_reclaim, namespace=namespace)
        .with_options(workers=options.workers)
        .complete(reconciler)
    )


def _build_observation_controller(
    manager: Manager, settings: Settings, options: AssemblyOptions, engine: _Engine
) -> None:
    (
        ControllerBuilder(manager, "observation")
        .for_(Node, namespace=options.namespace)
        .watches(CoreNode, engine.mappers.slots_of_node)
        .complete(ObservationReconciler(engine.scopes, engine.reporter, engine.pulse, settings.drain_pass))
    )


def _build_group_controller(manager: Manager, settings: Settings, options: AssemblyOptions, engine: _Engine) -> None:
    reconciler = GroupReconciler(
        client=manager.client,
        clock=manager.clock,
        settings=settings,
        recorder=manager.recorder,
        groups=manager.cache.lister(Group),
        slots=engine.slots,
        claims=engine.claims,
        nodes=manager.cache.lister(CoreNode),
    )
    to, namespace = engine.mappers, options.namespace
    (
        ControllerBuilder(manager, "group")
        .for_(Group, namespace=namespace)
        .watches(Node, to.group_of_slot, namespace=namespace)
        .watches(NodeClaim, to.group_of_claim, namespace=namespace)
        .watches(CoreNode, to.groups_of_node)
        .complete(reconciler)
    )
