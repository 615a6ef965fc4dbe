"""Everything a pass knows about a slot, read once, and the law's input made from it.

The same scope is built from caches (a pass) and from the API server (the second read before a power command), so the
same question is asked of both. A scope is evidence of one moment and is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from homelab_api import names
from homelab_api.core import CoreNode, Job
from homelab_api.meta import KubeObject
from homelab_api.v2alpha1 import ClaimPhase, Group, Node, NodeClaim, NodeReclaim, PowerState, Reason
from homelab_autoscaler.claim.debt import in_debt, job_type, owned_by
from homelab_autoscaler.claim.names import label_value
from homelab_autoscaler.claim.of_slot import claims_of_slots
from homelab_autoscaler.lifecycle import annotated
from homelab_autoscaler.lifecycle.pulse import KubeletPulse, Pulse
from homelab_autoscaler.phase import ClaimFact, Input, contested, extra_claims, owning_claim, power, unusable
from homelab_autoscaler.runtime import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_autoscaler.runtime import Cache, Client, Clock

T = TypeVar("T", bound=KubeObject)

INDEX_SLOT: Final = "slot"
"""Index of claims and Jobs: `<namespace>/<slot>`."""
INDEX_NODE_NAME: Final = "kubernetes-node-name"
"""Index of slots: the Kubernetes node that a slot names."""
INDEX_GROUP: Final = "group"
"""Index of slots: `<namespace>/<group>`."""


def slot_of_claim(claim: NodeClaim) -> Iterable[str]:
    """Index key of a claim: the slot that its spec names, and nothing else."""
    return (f"{claim.namespace}/{claim.slot_name}",)


def slot_of_job(job: Job) -> Iterable[str]:
    """Index key of a lifecycle Job; other people's Jobs have none."""
    slot = job.metadata.labels.get(names.LABEL_NODE)
    return (f"{job.namespace}/{slot}",) if slot and job_type(job) in _LIFECYCLE else ()


def node_name_of_slot(slot: Node) -> Iterable[str]:
    """Index key of a slot: the Kubernetes node it names."""
    return (slot.spec.kubernetes_node_name,)


def group_of_slot(slot: Node) -> Iterable[str]:
    """Index key of a slot: its group."""
    return (f"{slot.namespace}/{slot.group}",) if slot.group else ()


_LIFECYCLE: Final = frozenset({names.JOB_TYPE_STARTUP, names.JOB_TYPE_SHUTDOWN, names.JOB_TYPE_RECLAIM})


@dataclass(frozen=True)
class SlotScope:
    """A slot and all that decides about it.

    Attributes:
        slot: the slot itself.
        group: its pool; None when it names none or the Group is not there.
        claims: every claim that names the slot, ended ones too.
        reclaim: the NodeReclaim of that name, if its owner has the machine.
        node: the node that the machine's kubelet registered.
        jobs: the slot's lifecycle Jobs.
        pulse: what is known of the kubelet; asked only where it matters.
        now: when the scope was read.
        off_settle: seconds in which a machine may still look on after its shutdown Job ended.
    """

    slot: Node
    group: Group | None
    claims: tuple[NodeClaim, ...]
    reclaim: NodeReclaim | None
    node: CoreNode | None
    jobs: tuple[Job, ...]
    pulse: Pulse
    now: datetime
    off_settle: float

    @cached_property
    def owner(self) -> NodeClaim | None:
        """The claim that speaks for the slot: the live one, else an ended one that may have left its machine on.

        An ended claim without the finalizer has nothing to do with the machine any more.
        """
        return accountable(owning_claim(self.claims))

    @cached_property
    def extra_claims(self) -> list[NodeClaim]:
        """Live claims that do not own the slot."""
        return extra_claims(self.claims)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the slot."""
        return self.slot.namespace, self.slot.name

    @property
    def node_name(self) -> str:
        """The Kubernetes node that operations use: what the committed claim recorded, else what the slot says."""
        return recorded_node_name(self.owner, self.slot)

    @property
    def power(self) -> PowerState:
        """Observed power."""
        return power(self.node)

    @cached_property
    def unusable(self) -> str | None:
        """Why the node cannot take work; None if it can."""
        return unusable(self.node, self.group.spec.node_readiness_taints if self.group else ())

    def unfinished(self, *kinds: str) -> list[Job]:
        """Lifecycle Jobs that have not finished, of these types (all types if none is named)."""
        return [job for job in self.jobs if not job.finished and (not kinds or job_type(job) in kinds)]

    @cached_property
    def silent(self) -> bool:
        """Whether the kubelet is known to be silent, a missing node judged by what is known of its machine."""
        if self.pulse is not Pulse.MISSING:
            return self.pulse is Pulse.SILENT
        return self.owner is None or not self.owner.committed or not self.owes(self.owner)

    def owes(self, claim: NodeClaim) -> bool:
        """Whether the claim owes the machine a shutdown.

        Hung, cut off or off: a silent machine looks alike. It owes nothing if it went so by itself; but whoever
        withdraws its claim gets one shutdown tried first. A machine that is off already takes no harm from that.
        """
        gone = self.power is PowerState.OFF and self.pulse is Pulse.SILENT
        return in_debt(claim, self.jobs, gone_silent=gone and (not claim.marked or self._tried(claim)))

    def _tried(self, claim: NodeClaim) -> bool:
        """Whether a shutdown of the claim was tried to its end, whatever came of it.

        A Job that was counted and is not there may be about to be created; after a while it was taken away.
        """
        if any(job_type(job) == names.JOB_TYPE_SHUTDOWN and owned_by(job, claim.uid) for job in self.jobs):
            return not self.unfinished(names.JOB_TYPE_SHUTDOWN)
        counted = claim.status.last_shutdown_attempt_at
        return counted is not None and self.now >= counted + timedelta(seconds=self.off_settle)

    def shutdown_ended_at(self) -> datetime | None:
        """When the slot's latest shutdown Job ended, None if none did."""
        ends = [ended_at(job) for job in self.jobs if job.finished and job_type(job) == names.JOB_TYPE_SHUTDOWN]
        return max((end for end in ends if end), default=None)

    @property
    def proven_off(self) -> bool:
        """Whether a shutdown Job of ours put this very node's machine to rest; silence alone proves nothing."""
        ended = [
            end
            for job in self.jobs
            if job_type(job) == names.JOB_TYPE_SHUTDOWN and job.succeeded and (end := ended_at(job)) is not None
        ]
        born = self.node.metadata.creation_timestamp if self.node else None
        return bool(ended) and (born is None or max(ended) >= born)

    @property
    def returned_until(self) -> datetime | None:
        """Until when a machine that its owner gave back stays on though nobody claims it; None if it need not.

        So nobody's screen goes dark at their hand (model section 10, Return).
        """
        until = annotated.instant(self.slot.metadata.annotations.get(names.ANNOTATION_RETURN_UNTIL))
        return until if self.owner is None and until is not None and self.now < until else None

    def settle_until(self) -> datetime | None:
        """Until when a machine that still counts as on is given time to go off; None when no shutdown ended lately.

        What counts as on here is what makes the law ask for a shutdown: observed power, a kubelet that was alive just
        now, and a debt. Otherwise a shutdown that landed would be repeated until the kubelet's silence is proven.
        """
        ended = self.shutdown_ended_at()
        owner = self.owner
        unwanted = owner is None or not owner.wants_machine
        looks_on = self.power is PowerState.ON or (unwanted and self.pulse is Pulse.ALIVE)
        owes = owner is not None and unwanted and self.owes(owner)
        if ended is None or not (looks_on or owes):
            return None
        until = ended + timedelta(seconds=self.off_settle)
        return until if self.now < until else None

    def law_input(self, *, releasing: str = "") -> Input:
        """The law's input.

        Args:
            releasing: uid of the suspended Job whose release is being asked about. It is the operation itself: it is
                not counted among the slot's unfinished Jobs, and a claim that is booting because of it has not asked
                the machine for anything yet, so it stands where it stood before, at pending.
        """
        owner = self.owner
        fact = ClaimFact.of(owner) if owner else None
        if releasing and fact and fact.phase is ClaimPhase.BOOTING:
            fact = replace(fact, phase=ClaimPhase.PENDING)
        unfinished = [job for job in self.unfinished() if job.uid != releasing]
        shutting = any(job_type(job) == names.JOB_TYPE_SHUTDOWN for job in unfinished)
        off = self.power is PowerState.OFF
        return Input(
            held=self.reclaim is not None,
            claim=fact,
            power=self.power,
            usable=self.unusable is None,
            off_confirmed=off and self.silent,
            debt=owner is not None and self.owes(owner),
            kubelet_alive=off and self.pulse is Pulse.ALIVE,
            shutdown_in_flight=shutting or self.settle_until() is not None,
            contested=contested(self.claims),
            other_job_unfinished=any(job_type(job) != names.JOB_TYPE_SHUTDOWN for job in unfinished),
        )


def accountable(owner: NodeClaim | None) -> NodeClaim | None:
    """The owning claim as far as the machine is concerned: live, or committed to it.

    One that the machine's owner ended asks for nothing any more: what becomes of a machine that was given back is for
    row 2, which gives its people time, and not for row 11, which would turn their screen dark at their hand.
    """
    if owner is None or owner.live:
        return owner
    return owner if owner.committed and owner.status.reason is not Reason.EMERGENCY_RECLAIM else None


def recorded_node_name(claim: NodeClaim | None, slot: Node) -> str:
    """The node name that a committed claim recorded, else the slot's: a rename must not lose a running machine."""
    return (claim.status.node_name if claim else "") or slot.spec.kubernetes_node_name


def ended_at(job: Job) -> datetime | None:
    """When a finished Job ended: its completion, or the time of its final condition."""
    if job.status.completion_time:
        return job.status.completion_time
    final = job.condition("Complete") or job.condition("Failed")
    return final.last_transition_time if final else None


class Scopes(Protocol):
    """A source of scopes."""

    def read(self, namespace: str, name: str) -> SlotScope | None:
        """The scope of a slot; None if there is no such slot."""


def _needs_pulse(owner: NodeClaim | None, node: CoreNode | None) -> bool:
    """The kubelet is asked only where the law looks at it: nobody wants the machine and it seems off."""
    if power(node) is PowerState.ON:
        return False
    return owner is None or owner.marked or owner.phase.terminal


class CachedScopes:
    """Scopes from the caches: what a pass works with. May lag behind the API server."""

    def __init__(self, cache: Cache, pulse: KubeletPulse, clock: Clock, off_settle: float) -> None:
        self._slots = cache.lister(Node)
        self._groups = cache.lister(Group)
        self._claims = cache.lister(NodeClaim)
        self._reclaims = cache.lister(NodeReclaim)
        self._nodes = cache.lister(CoreNode)
        self._jobs = cache.lister(Job)
        self._pulse = pulse
        self._clock = clock
        self._off_settle = off_settle

    def read(self, namespace: str, name: str) -> SlotScope | None:
        """See Scopes."""
        slot = self._slots.get(name, namespace)
        if slot is None:
            return None
        claims = tuple(self._claims.by_index(INDEX_SLOT, f"{namespace}/{name}"))
        owner = accountable(owning_claim(claims))
        node = self._nodes.get(recorded_node_name(owner, slot))
        return SlotScope(
            slot=slot,
            group=self._groups.get(slot.group, namespace) if slot.group else None,
            claims=claims,
            reclaim=self._reclaims.get(name, namespace),
            node=node,
            jobs=tuple(self._jobs.by_index(INDEX_SLOT, f"{namespace}/{name}")),
            pulse=self._pulse.read(node) if _needs_pulse(owner, node) else Pulse.UNKNOWN,
            now=self._clock.now(),
            off_settle=self._off_settle,
        )


class LiveScopes:
    """Scopes from the API server itself: the second read. Costs a handful of requests; used before power commands."""

    def __init__(self, client: Client, pulse: KubeletPulse, clock: Clock, off_settle: float) -> None:
        self._client = client
        self._pulse = pulse
        self._clock = clock
        self._off_settle = off_settle

    def read(self, namespace: str, name: str) -> SlotScope | None:
        """See Scopes. The reclaim is read last: one that was created before that moment is seen."""
        slot = self._optional(Node, name, namespace)
        if slot is None:
            return None
        claims = tuple(claims_of_slots(self._client, namespace, {name}))
        owner = accountable(owning_claim(claims))
        node = self._optional(CoreNode, recorded_node_name(owner, slot), None)
        jobs = self._client.list(
            Job, namespace, label_selector=f"{names.LABEL_NODE}={label_value(slot.name, slot.uid)}"
        ).items
        return SlotScope(
            slot=slot,
            group=self._optional(Group, slot.group, namespace) if slot.group else None,
            claims=claims,
            node=node,
            jobs=tuple(job for job in jobs if job_type(job) in _LIFECYCLE),
            pulse=self._pulse.read(node) if _needs_pulse(owner, node) else Pulse.UNKNOWN,
            reclaim=self._optional(NodeReclaim, name, namespace),
            now=self._clock.now(),
            off_settle=self._off_settle,
        )

    def _optional(self, kind: type[T], name: str, namespace: str | None) -> T | None:
        try:
            return self._client.get(kind, name, namespace)
        except NotFoundError:
            return None
