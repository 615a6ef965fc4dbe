"""Creating a claim so that a slot never has two live ones from our own creators.

Creators are the provider (IncreaseSize), schedules, adoption and the command line; they may run in different
processes and know nothing of each other. The API server is the only arbiter: a claim's name follows from what its
creator has read (`names.claim_name`), so of two creators with the same knowledge one is refused. A creator with old
knowledge is caught by age, by the digest of the ended claim that still has the name, or by the list after the create.
Source: model section 9, "One live claim per slot, by construction".

Guarantee: when `create` returns a claim, it was stored, and no other live claim named the slot at the read that
followed. Non-guarantee: claims made by hand do not take part; admission and newest-wins deal with those.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from homelab_api import names
from homelab_api.meta import KubeObject, ObjectMeta
from homelab_api.v2alpha1 import Call, ClaimPhase, Node, NodeClaim, NodeClaimSpec, Reason, SlotRef
from homelab_autoscaler.claim.names import claim_name_of, slot_labels
from homelab_autoscaler.claim.of_slot import ClaimReader, claims_of_slots
from homelab_autoscaler.runtime.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InternalServerError,
    NotFoundError,
    ServerTimeoutError,
    TransportError,
)
from homelab_autoscaler.runtime.patch import MergePatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.patch import Patch
    from homelab_autoscaler.settings import Settings

T = TypeVar("T", bound=KubeObject)

_DIGEST_POLL: Final = 0.05
"""Seconds between two looks at a slot whose ended claim waits for its digest."""
_TRIES: Final = 3
"""Rounds of a conditional delete against an object that keeps changing, and of a create whose reply got lost."""


class ClaimStore(ClaimReader, Protocol):
    """The part of `runtime.Client` that creating and withdrawing claims needs: uncached reads and writes."""

    def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """See runtime.Client."""
        ...

    def create(self, obj: T) -> T:
        """See runtime.Client."""
        ...

    def patch(self, kind: type[T], name: str, namespace: str | None, patch: Patch) -> T:
        """See runtime.Client."""
        ...

    def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """See runtime.Client."""
        ...


class SlotUnavailableError(Exception):
    """The slot cannot be claimed now; nothing of the attempt is left. The text says why, for people."""


class SlotTakenError(SlotUnavailableError):
    """Another claim has the slot.

    Attributes:
        claim: the claim that has it, as last read.
    """

    def __init__(self, slot_name: str, claim: NodeClaim, why: str) -> None:
        super().__init__(f'slot "{slot_name}" {why}')
        self.claim = claim


class SlotGoneError(SlotUnavailableError):
    """The slot was deleted, or is being deleted, or was replaced by another of its name."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a creator wants.

    Attributes:
        call: who asks.
        max_node_provision_time: a floor of the boot window that also is written into the claim; None: the budget alone.
        ttl_seconds_after_finished: how long the ended claim is kept; None means the CRD's default.
        annotations: further annotations of the claim.
    """

    call: Call
    max_node_provision_time: timedelta | None = None
    ttl_seconds_after_finished: int | None = None
    annotations: Mapping[str, str] | None = None


class ClaimFactory:
    """Builds, creates and withdraws claims. Safe to share between threads; it keeps no state.

    Args:
        store: uncached reads and writes.
        clock: for ages, for the wait for a digest, and for `requestedAt`.
        settings: boot window and waits.
    """

    def __init__(self, store: ClaimStore, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    def build(self, slot: Node, request: Request) -> NodeClaim:
        """The claim as it would be created now: name, owner, labels, group, `requestedAt` and `deadlineAt`.

        It carries no attempt: that is seeded from the digest by the claim's controller.
        """
        now = self._clock.now()
        window = self._settings.boot_window(request.max_node_provision_time, slot.spec.startup_pod_spec.timeout_seconds)
        spec = NodeClaimSpec(
            slot_ref=SlotRef(name=slot.name),
            call=request.call,
            group=slot.group,
            requested_at=now,
            deadline_at=now + timedelta(seconds=window),
            max_node_provision_time=request.max_node_provision_time,
        )
        if request.ttl_seconds_after_finished is not None:
            spec = spec.model_copy(update={"ttl_seconds_after_finished": request.ttl_seconds_after_finished})
        return NodeClaim(
            metadata=ObjectMeta(
                name=claim_name_of(slot),
                namespace=slot.namespace,
                labels=slot_labels(slot),
                annotations={**(request.annotations or {}), names.ANNOTATION_REQUEST_ID: secrets.token_hex(8)},
                owner_references=[slot.owner_reference()],
            ),
            spec=spec,
        )

    def create(self, slot: Node, request: Request, *, read_at: float) -> NodeClaim:
        """Claim the slot, or raise with nothing left behind.

        Args:
            slot: as it was read.
            request: what is wanted.
            read_at: `clock.monotonic()` from before that read; older than `creatorStale` makes us read again.

        Raises:
            SlotTakenError: a live claim has the slot, or an ended one still has the name.
            SlotGoneError: the slot is gone.
            ApiError: the API server refuses or does not answer, and reading back did not settle it.
        """
        claim = self.place(slot, request, read_at=read_at)
        refusals = self.settle([claim])
        if claim.uid in refusals:
            raise refusals[claim.uid]
        return claim

    def place(self, slot: Node, request: Request, *, read_at: float) -> NodeClaim:
        """The first half of `create`: store the claim. The caller must `settle` it, or withdraw it.

        It is a step of its own so that many claims can share the one list that follows.
        """
        if self._clock.monotonic() - read_at > self._settings.creator_stale:
            slot = self._read_again(slot)
        if slot.marked:
            raise SlotGoneError(f'slot "{slot.name}" is being deleted')
        try:
            return self._store_claim(slot, request)
        except AlreadyExistsError:
            slot = self._wait_for_digest(slot)
        try:
            return self._store_claim(slot, request)
        except AlreadyExistsError:
            raise self._taken(slot) from None

    def settle(self, placed: Sequence[NodeClaim]) -> dict[str, SlotTakenError]:
        """The second half of `create`: look once whether other live claims name the slots; the newer of two goes.

        If the other one is the newer but cannot be withdrawn any more, ours goes: a claim that is under way is left
        in peace.

        Args:
            placed: fresh claims of one namespace, each of another slot.

        Returns:
            uid of each claim of ours that was withdrawn, and why. The others are settled.

        Raises:
            ApiError: the list or a withdrawal failed. Every claim that is not settled was asked to be withdrawn.
        """
        if not placed:
            return {}
        try:
            refusals = self._refusals(placed)
        except ApiError:
            # Without the list the guarantee cannot be given, so no claim must stay.
            self.withdraw_all(placed, Reason.CANCELLED_BY_DECREASE)
            raise
        self.withdraw_all([claim for claim in placed if claim.uid in refusals], Reason.CANCELLED_BY_DECREASE)
        return refusals

    def _refusals(self, placed: Sequence[NodeClaim]) -> dict[str, SlotTakenError]:
        live: dict[str, list[NodeClaim]] = {}
        for claim in claims_of_slots(self._store, placed[0].namespace, {ours.slot_name for ours in placed}):
            if claim.live:
                live.setdefault(claim.slot_name, []).append(claim)
        refusals: dict[str, SlotTakenError] = {}
        for ours in placed:
            for other in live.get(ours.slot_name, []):
                if other.uid == ours.uid or (_newer(ours, other) == "other" and self._take_away(other)):
                    continue
                refusals[ours.uid] = _taken_by(ours.slot_name, other)
                break
        return refusals

    def withdraw_all(self, claims: Iterable[NodeClaim], reason: Reason) -> None:
        """Withdraw each of them, the rest also when one fails.

        Raises:
            ApiError: the first failure.
        """
        failure: ApiError | None = None
        for claim in claims:
            try:
                self.withdraw(claim, reason)
            except ApiError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def withdraw(self, claim: NodeClaim, reason: Reason, *, only_pending: bool = False) -> bool:
        """Delete a live claim, with the reason that `completed` will give; repeating it is harmless.

        The reason is written first, and the delete requires the version that has it: whoever ends the claim later does
        not find a reason without a delete that meant it, unless we die in between.

        Args:
            claim: the claim as last read; it is read again when it has moved.
            reason: for the annotation `end-reason`.
            only_pending: leave it alone once it is committed or past `pending`.

        Returns:
            True if it is gone, marked or ended now; False if `only_pending` kept it.

        Raises:
            ApiError: the API server refuses or does not answer, or the claim changed on every try.
        """
        failure: ApiError | None = None
        current: NodeClaim | None = claim
        for _ in range(_TRIES):
            if current is None or current.uid != claim.uid or not current.wants_machine:
                return True
            if only_pending and (current.committed or current.phase is not ClaimPhase.PENDING):
                return False
            try:
                current = self._annotate(current, reason)
                self._store.delete(
                    NodeClaim,
                    current.name,
                    current.namespace,
                    uid=current.uid,
                    resource_version=current.metadata.resource_version,
                )
            except NotFoundError:
                return True
            except (ConflictError, InternalServerError, ServerTimeoutError, TransportError) as error:
                failure = error
            else:
                return True
            current = self._find(claim.name, claim.namespace)
        if current is None or current.uid != claim.uid or not current.wants_machine:
            return True
        assert failure is not None
        raise failure

    def _annotate(self, claim: NodeClaim, reason: Reason) -> NodeClaim:
        if claim.metadata.annotations.get(names.ANNOTATION_END_REASON) == reason:
            return claim
        body = {
            "metadata": {
                "resourceVersion": claim.metadata.resource_version,
                "annotations": {names.ANNOTATION_END_REASON: str(reason)},
            }
        }
        return self._store.patch(NodeClaim, claim.name, claim.namespace, MergePatch(body))

    def _read_again(self, slot: Node) -> Node:
        try:
            fresh = self._store.get(Node, slot.name, slot.namespace)
        except NotFoundError:
            raise SlotGoneError(f'slot "{slot.name}" was deleted') from None
        if fresh.uid != slot.uid:
            raise SlotGoneError(f'slot "{slot.name}" was deleted and made again')
        return fresh

    def _find(self, name: str, namespace: str) -> NodeClaim | None:
        try:
            return self._store.get(NodeClaim, name, namespace)
        except NotFoundError:
            return None

    def _store_claim(self, slot: Node, request: Request) -> NodeClaim:
        """Create the claim; a lost reply is settled by reading back whose claim has the name."""
        claim = self.build(slot, request)
        failure: ApiError | None = None
        for _ in range(_TRIES):
            try:
                return self._store.create(claim)
            except (InternalServerError, ServerTimeoutError, TransportError) as error:
                failure = error
                found = self._find(claim.name, claim.namespace)
            except AlreadyExistsError:
                if failure is None:
                    raise
                found = self._find(claim.name, claim.namespace)  # perhaps our own first try, committed late
                if found is None or not _same_request(found, claim):
                    raise
            if found is not None:
                if _same_request(found, claim):
                    return found
                raise AlreadyExistsError(f'claim "{claim.name}" exists', status=409) from failure
        assert failure is not None
        raise failure

    def _wait_for_digest(self, slot: Node) -> Node:
        """The slot with another name to offer: an ended claim has the present one until it is digested.

        Raises:
            SlotTakenError: the claim is live, or its digest did not come within `nameWait`.
        """
        name = claim_name_of(slot)
        deadline = self._clock.monotonic() + self._settings.name_wait
        while True:
            slot = self._read_again(slot)
            if claim_name_of(slot) != name:
                return slot
            holder = self._find(name, slot.namespace)
            if holder is None:
                return slot
            if holder.live or self._clock.monotonic() >= deadline:
                raise self._taken(slot, holder)
            self._clock.sleep(min(_DIGEST_POLL, self._settings.name_wait))

    def _taken(self, slot: Node, holder: NodeClaim | None = None) -> SlotUnavailableError:
        holder = holder or self._find(claim_name_of(slot), slot.namespace)
        if holder is None:
            return SlotUnavailableError(f'slot "{slot.name}" is being claimed and released by others: try again')
        return _taken_by(slot.name, holder)

    def _take_away(self, other: NodeClaim) -> bool:
        """Withdraw a newer claim of another creator, unless it has moved since it was read."""
        try:
            self._store.delete(
                NodeClaim,
                other.name,
                other.namespace,
                uid=other.uid,
                resource_version=other.metadata.resource_version,
            )
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True


def _taken_by(slot_name: str, holder: NodeClaim) -> SlotTakenError:
    if holder.live:
        why = f'already has the live claim "{holder.name}" in phase "{holder.phase}"'
    else:
        why = f'still waits for the digest of its ended claim "{holder.name}": try again'
    return SlotTakenError(slot_name, holder, why)


def _newer(ours: NodeClaim, other: NodeClaim) -> Literal["ours", "other"]:
    """Which of two live claims came later; every creator answers this the same way.

    Creation times have whole seconds. Within one second the resourceVersion decides: ours is the one of its creation;
    the other's can only be later than its creation, so a smaller one proves that it came before. A greater one proves
    nothing if the claim was worked on since, and then it counts as the established one.
    """
    created, others = ours.metadata.creation_timestamp, other.metadata.creation_timestamp
    if created is not None and others is not None and created != others:
        return "ours" if created > others else "other"
    untouched = not other.committed and not other.marked and other.status.phase is None and not other.status.attempt
    try:
        later = int(other.metadata.resource_version) > int(ours.metadata.resource_version)
    except ValueError:
        later = other.uid > ours.uid
    return "other" if untouched and later else "ours"


def _same_request(found: NodeClaim, claim: NodeClaim) -> bool:
    """Whether the stored claim is the one that we tried to create (and not one with the same name)."""
    key = names.ANNOTATION_REQUEST_ID
    return found.metadata.annotations.get(key) == claim.metadata.annotations[key]
