"""Everything that runs in a manager, in one list: caches with their indexes, collaborators, controllers, monitors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from homelab_api.core import CoreNode, Job
from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.claim.create import ClaimFactory
from homelab_autoscaler.claim.recorder import ClaimRecorder
from homelab_autoscaler.controllers.claim import ClaimReconciler
from homelab_autoscaler.controllers.group import GroupReconciler
from homelab_autoscaler.controllers.observation import ObservationReconciler
from homelab_autoscaler.controllers.slot import SlotReconciler
from homelab_autoscaler.controllers.slot_conditions import SlotConditions
from homelab_autoscaler.lifecycle.boot import Boot
from homelab_autoscaler.lifecycle.drain import Drainer
from homelab_autoscaler.lifecycle.gate import ReadinessGate
from homelab_autoscaler.lifecycle.job_spec import JobOptions
from homelab_autoscaler.lifecycle.jobs import Jobs
from homelab_autoscaler.lifecycle.lock import Locks
from homelab_autoscaler.lifecycle.monitor import Monitors, OperationMonitor
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
from homelab_autoscaler.runtime import ControllerBuilder, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_autoscaler.runtime import Manager
    from homelab_autoscaler.settings import Settings


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """What an installation decides beside the settings.

    Attributes:
        namespace: watch only this namespace's pools; None for all.
        jobs: defaults of lifecycle Jobs.
        own_node: the Kubernetes node that runs this manager, so that it is not switched off under it.
        workers: passes that may run at once, per controller.
    """

    namespace: str | None = None
    jobs: JobOptions = field(default_factory=JobOptions)
    own_node: str = ""
    workers: int = 4


def assemble(manager: Manager, settings: Settings, options: AssemblyOptions) -> None:
    """Register caches, controllers and monitors with the manager."""
    client, clock, recorder, cache = manager.client, manager.clock, manager.recorder, manager.cache
    namespace = options.namespace
    cache.informer(
        Node, namespace=namespace, indexers={INDEX_NODE_NAME: node_name_of_slot, INDEX_GROUP: group_of_slot}
    )
    cache.informer(Group, namespace=namespace)
    cache.informer(NodeClaim, namespace=namespace, indexers={INDEX_SLOT: slot_of_claim})
    cache.informer(NodeReclaim, namespace=namespace)
    cache.informer(CoreNode)
    cache.informer(Job, namespace=namespace, indexers={INDEX_SLOT: slot_of_job})
    slots, claims = cache.lister(Node), cache.lister(NodeClaim)

    pulse = KubeletPulse(client, clock, settings.lease_silence)
    scopes = CachedScopes(cache, pulse, clock, settings.off_settle)
    live = LiveScopes(client, pulse, clock, settings.off_settle)
    claim_recorder = ClaimRecorder(client, recorder, clock)
    locks = Locks(client, clock, manager.leadership, settings.lock_timeout)
    jobs = Jobs(client, clock, settings)
    releaser = Releaser(live, jobs)
    marks = NodeMarks(client)
    reporter = Reporter(client, settings)
    gate = ReadinessGate(client, claim_recorder, locks, marks, reporter, recorder, settings)
    boot = Boot(
        client, claim_recorder, locks, jobs, releaser, marks, pulse, gate, recorder, settings, options.jobs
    )
    drainer = Drainer(client, clock, settings.drain_pass)
    shutdown = Shutdown(
        claim_recorder, locks, jobs, releaser, marks, drainer, recorder, settings, options.jobs, options.own_node
    )
    monitors = Monitors(OperationMonitor(scopes, boot, shutdown), clock, settings.monitor_poll)
    manager.add(monitors)

    def of_slots(kubernetes_node: str) -> list[Request]:
        return [Request(slot.namespace, slot.name) for slot in slots.by_index(INDEX_NODE_NAME, kubernetes_node)]

    def claims_of(slot_namespace: str, slot_name: str) -> list[Request]:
        found = claims.by_index(INDEX_SLOT, f"{slot_namespace}/{slot_name}")
        return [Request(claim.namespace, claim.name) for claim in found]

    def slot_of_a_claim(claim: NodeClaim) -> Iterable[Request]:
        monitors.wake(claim.namespace, claim.slot_name)
        return (Request(claim.namespace, claim.slot_name),)

    def slots_of_a_node(node: CoreNode) -> Iterable[Request]:
        found = of_slots(node.name)
        for request in found:
            monitors.wake(request.namespace, request.name)
        return found

    def slot_of_a_job(job: Job) -> Iterable[Request]:
        for key in slot_of_job(job):
            owner = next((ref.name for ref in job.metadata.owner_references if ref.kind == "Node"), "")
            request = Request(job.namespace, owner or key.partition("/")[2])
            monitors.wake(request.namespace, request.name)
            yield request

    def slot_of_a_reclaim(reclaim: NodeReclaim) -> Iterable[Request]:
        return (Request(reclaim.namespace, reclaim.name),)

    def slots_of_a_group(group: Group) -> Iterable[Request]:
        return [
            Request(slot.namespace, slot.name)
            for slot in slots.by_index(INDEX_GROUP, f"{group.namespace}/{group.name}")
        ]

    def group_of_a_slot(slot: Node) -> Iterable[Request]:
        return (Request(slot.namespace, slot.group),) if slot.group else ()

    def group_of_a_claim(claim: NodeClaim) -> Iterable[Request]:
        slot = slots.get(claim.slot_name, claim.namespace)
        return group_of_a_slot(slot) if slot else ()

    def groups_of_a_node(node: CoreNode) -> Iterable[Request]:
        return [Request(slot.namespace, slot.group) for slot in slots.by_index(INDEX_NODE_NAME, node.name) if slot.group]

    slot_reconciler = SlotReconciler(
        client=client,
        clock=clock,
        settings=settings,
        recorder=recorder,
        scopes=scopes,
        slots=slots,
        claims=claims,
        claim_recorder=claim_recorder,
        factory=ClaimFactory(client, clock, settings),
        locks=locks,
        jobs=jobs,
        marks=marks,
        boot=boot,
        shutdown=shutdown,
        monitors=monitors,
        reporter=reporter,
    )
    (
        ControllerBuilder(manager, "slot")
        .for_(Node)
        .watches(NodeClaim, slot_of_a_claim)
        .watches(CoreNode, slots_of_a_node)
        .watches(Job, slot_of_a_job)
        .watches(NodeReclaim, slot_of_a_reclaim)
        .watches(Group, slots_of_a_group)
        .with_options(workers=options.workers)
        .complete(slot_reconciler)
    )
    claim_reconciler = ClaimReconciler(
        client=client,
        clock=clock,
        settings=settings,
        scopes=scopes,
        claims=claims,
        slots=slots,
        claim_recorder=claim_recorder,
        slot_conditions=SlotConditions(client, clock),
        marks=marks,
    )
    (
        ControllerBuilder(manager, "claim")
        .for_(NodeClaim)
        .watches(Node, lambda slot: claims_of(slot.namespace, slot.name))
        .watches(
            CoreNode,
            lambda node: [found for request in of_slots(node.name) for found in claims_of(*request)],
        )
        .watches(Job, lambda job: [found for request in slot_of_a_job(job) for found in claims_of(*request)])
        .watches(NodeReclaim, lambda reclaim: claims_of(reclaim.namespace, reclaim.name))
        .with_options(workers=options.workers)
        .complete(claim_reconciler)
    )
    (
        ControllerBuilder(manager, "observation")
        .for_(Node)
        .watches(CoreNode, slots_of_a_node)
        .with_options(workers=1)
        .complete(ObservationReconciler(scopes, reporter, pulse))
    )
    (
        ControllerBuilder(manager, "group")
        .for_(Group)
        .watches(Node, group_of_a_slot)
        .watches(NodeClaim, group_of_a_claim)
        .watches(CoreNode, groups_of_a_node)
        .with_options(workers=1)
        .complete(
            GroupReconciler(
                client=client,
                clock=clock,
                settings=settings,
                recorder=recorder,
                groups=cache.lister(Group),
                slots=slots,
                claims=claims,
                nodes=cache.lister(CoreNode),
            )
        )
    )
