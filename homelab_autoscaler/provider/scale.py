"""The calls that change the pool: IncreaseSize, DeleteNodes, DecreaseTargetSize.

Each works under its group's lock on claims that were read from the API server in the same call, records what is
wanted, and answers; machines move later. Source: model section 9; the contract's 4.4 to 4.6.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.meta import KubeObject, format_time
from homelab_api.v2alpha1 import Call, ClaimPhase, NodeClaim, NodeReclaim, Reason
from homelab_autoscaler.claim.create import ClaimFactory, Request, SlotUnavailableError
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.index import Key
from homelab_autoscaler.provider.pool import has_own_node
from homelab_autoscaler.runtime.deadline import time_limit
from homelab_autoscaler.runtime.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from homelab_autoscaler.runtime.patch import MergePatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from homelab_api.v2alpha1 import Group, Node
    from homelab_autoscaler.provider.pool import NodeRef, Pool
    from homelab_autoscaler.provider.view import GroupView
    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.settings import Settings

T = TypeVar("T", bound=KubeObject)
log = structlog.get_logger(__name__)
_TAKE_BACK_LIMIT: Final = 5.0
"""Seconds for taking back one claim, also when the time of the call itself is over."""


class Scaler:
    """The writing half of the provider.

    Args:
        client: uncached reads and writes.
        pool: what is known; it is told of every write here before the call is answered.
        clock: for ages.
        settings: for the boot window of claims.
    """

    def __init__(self, client: Client, pool: Pool, clock: Clock, settings: Settings) -> None:
        self._client = client
        self._pool = pool
        self._clock = clock
        self._settings = settings
        self._factory = ClaimFactory(client, clock, settings)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._locks_guard = threading.Lock()

    def increase(
        self, group_id: str, delta: int, *, alive: Callable[[], bool] = lambda: True, within: float | None = None
    ) -> list[NodeClaim]:
        """Claim `delta` free slots, all or none.

        Args:
            group_id: the group.
            delta: how many machines more.
            alive: whether the caller still waits. One that has given up will ask again, so nothing must be left.
            within: seconds after which no further claim is started and what was created is taken back.

        Returns:
            The claims, settled.

        Raises:
            CallError: FAILED_PRECONDITION when the group cannot grow by that much; nothing was done.
        """
        if delta <= 0:
            raise CallError(Cause.INVALID_ARGUMENT, f'group "{group_id}": delta {delta} must be positive')
        with self._locked(group_id):
            placed: list[NodeClaim] = []
            try:
                with time_limit(self._clock, within):
                    read_at = self._clock.monotonic()
                    view = self._read(group_id)
                    self._check_growth(view, delta)
                    self._claim_slots(view, delta, read_at, placed)
                _check_alive(group_id, alive)
            except BaseException as error:
                self._take_back(group_id, placed)
                if isinstance(error, ApiError):
                    raise api_failure(f'group "{group_id}": no machine was claimed', error) from error
                raise
        log.info("claimed", group=group_id, delta=delta, slots=[claim.slot_name for claim in placed])
        return placed

    def delete(self, group_id: str, refs: Sequence[NodeRef]) -> list[NodeClaim]:
        """Give machines back: validate all, then mark all. Repeating it is success and lowers the target once.

        Returns:
            The claims that this call ended or acknowledged.

        Raises:
            CallError: INVALID_ARGUMENT or NOT_FOUND for a node of another group or of none; FAILED_PRECONDITION below
                minSize: nothing was done. ABORTED or UNAVAILABLE: some are marked, and a repeat marks the rest.
        """
        with self._locked(group_id):
            view = self._read(group_id)
            meant: dict[str, NodeClaim] = {}
            for ref in refs:
                found = self._pool.meant_by(view, ref)
                if found.claim is None:
                    log.info("nothing to delete", group=view.id, node=str(ref), why=found.why)
                else:
                    meant[found.claim.uid] = found.claim
            claims = list(meant.values())
            ending = [claim for claim in claims if claim.wants_machine]
            self._check_min_size(view, ending)
            failures: list[str] = []
            for claim in claims:
                try:
                    self._end(claim, Reason.NODE_DELETED)
                except ApiError as error:
                    failures.append(f"claim {claim.name}: {error}")
            if failures:
                raise CallError(Cause.ABORTED, f'group "{view.id}": not marked, try again: {"; ".join(failures)}')
        if claims:
            log.info("given back", group=view.id, slots=[claim.slot_name for claim in claims])
        return claims

    def decrease(self, group_id: str, delta: int) -> list[NodeClaim]:
        """Withdraw up to `-delta` requests that no machine has met yet, the youngest first.

        Pending ones go first, by a delete that the start of their boot defeats; then boots whose node never
        registered, which are reversed. Claims of people and schedules go only if the autoscaler has none of its own
        left to withdraw. A claim whose node exists is never touched.

        Raises:
            CallError: FAILED_PRECONDITION if there was none to withdraw; nothing was done.
        """
        if delta >= 0:
            raise CallError(Cause.INVALID_ARGUMENT, f'group "{group_id}": delta {delta} must be negative')
        with self._locked(group_id):
            view = self._read(group_id)
            open_claims = [
                i.claim for i in view.instances if i.claim.wants_machine and not self._pool.registered(i.claim)
            ]
            own = [claim for claim in open_claims if claim.spec.call is Call.INCREASE_SIZE]
            try:
                released = self._release(own, -delta) or self._release(
                    [claim for claim in open_claims if claim not in own], -delta
                )
            except ApiError as error:
                raise api_failure(f'group "{view.id}": cannot lower the target', error) from error
            if not released:
                raise CallError(
                    Cause.FAILED_PRECONDITION,
                    f'group "{view.id}": every claim in the target ({view.target}) has a node or is ready: '
                    "none can be withdrawn, delete nodes instead",
                )
        log.info("withdrawn", group=view.id, delta=delta, slots=[claim.slot_name for claim in released])
        return released

    # --- IncreaseSize -------------------------------------------------------------------------------------------

    def _check_growth(self, view: GroupView, delta: int) -> None:
        limit = view.group.spec.max_size
        wanted = f'group "{view.id}": {delta} more machines wanted'
        if view.group.marked:
            raise CallError(Cause.FAILED_PRECONDITION, f"{wanted}, but the group is being deleted")
        if limit is not None and view.target + delta > limit:
            raise CallError(
                Cause.FAILED_PRECONDITION, f"{wanted}, but {view.target} are claimed already and maxSize is {limit}"
            )
        if delta > len(view.free):
            self._refuse(view, delta, len(view.free), [])

    def _refuse(self, view: GroupView, delta: int, free: int, refusals: Sequence[str]) -> None:
        reasons = "; ".join([*refusals, *([view.why_not()] if view.refusals else [])])
        raise CallError(
            Cause.FAILED_PRECONDITION,
            f'group "{view.id}": {delta} more machines wanted, but {free} of {len(view.slots)} slots are free'
            + (f" ({reasons})" if reasons else ""),
        )

    def _claim_slots(self, view: GroupView, delta: int, read_at: float, placed: list[NodeClaim]) -> None:
        """Place and settle claims until there are `delta`; `placed` has what must be taken back if this raises."""
        request = Request(Call.INCREASE_SIZE, max_node_provision_time=self._provision_time(view.group))
        candidates = list(view.free)
        refusals: list[str] = []
        while len(placed) < delta:
            batch, candidates = candidates[: delta - len(placed)], candidates[delta - len(placed) :]
            if len(batch) < delta - len(placed):
                self._refuse(view, delta, len(placed) + len(batch), refusals)
            fresh: list[NodeClaim] = []
            for slot in batch:
                claim = self._place(slot, request, read_at, refusals)
                if claim is not None:
                    fresh.append(claim)
                    placed.append(claim)
            refused = self._factory.settle(fresh)
            refusals.extend(str(error) for error in refused.values())
            placed[:] = [claim for claim in placed if claim.uid not in refused]
            for claim in fresh:
                if claim.uid not in refused:
                    self._pool.index.put(claim, confirmed=False)

    def _place(self, slot: Node, request: Request, read_at: float, refusals: list[str]) -> NodeClaim | None:
        try:
            return self._factory.place(slot, request, read_at=read_at)
        except SlotUnavailableError as error:
            refusals.append(str(error))
        except (ForbiddenError, InvalidError) as error:
            refusals.append(f"{slot.name}: {error.message}")
        return None

    def _take_back(self, group_id: str, placed: Sequence[NodeClaim]) -> None:
        """Undo a part of an increase. What cannot be undone stays a claim: the target says so, nothing is hidden."""
        for claim in placed:
            try:
                with time_limit(self._clock, _TAKE_BACK_LIMIT):
                    self._factory.withdraw(claim, Reason.CANCELLED_BY_DECREASE)
                    self._look_again(claim)
            except ApiError as error:
                log.exception(
                    "a claim of a refused increase could not be withdrawn",
                    claim=claim.name,
                    group=group_id,
                    error=str(error),
                )

    def _provision_time(self, group: Group) -> timedelta:
        own = group.spec.max_node_provision_time
        return own if own is not None else timedelta(seconds=self._settings.autoscaler_max_node_provision_time)

    # --- DeleteNodes, DecreaseTargetSize ------------------------------------------------------------------------

    def _check_min_size(self, view: GroupView, ending: Sequence[NodeClaim]) -> None:
        """Two deletions in parallel must not undercut minSize. Requests that got no node may always go."""
        registered = [claim for claim in ending if self._pool.registered(claim)]
        least = view.group.spec.min_size
        if registered and view.target - len(ending) < least:
            raise CallError(
                Cause.FAILED_PRECONDITION,
                f'group "{view.id}": giving back {", ".join(claim.slot_name for claim in registered)} would leave '
                f"{view.target - len(ending)} machines, minSize is {least}",
            )

    def _end(self, claim: NodeClaim, reason: Reason) -> None:
        if claim.live:
            self._factory.withdraw(claim, reason)
            self._look_again(claim)
        elif names.ANNOTATION_ACKNOWLEDGED not in claim.metadata.annotations:
            body = {"metadata": {"annotations": {names.ANNOTATION_ACKNOWLEDGED: format_time(self._clock.now())}}}
            try:
                patched = self._client.patch(NodeClaim, claim.name, claim.namespace, MergePatch(body))
            except NotFoundError:
                self._pool.index.remove(claim, confirmed=False)
            else:
                self._pool.index.put(patched, confirmed=False)

    def _release(self, claims: Sequence[NodeClaim], count: int) -> list[NodeClaim]:
        newest_first = sorted(claims, key=_age, reverse=True)
        pending = [claim for claim in newest_first if claim.phase is ClaimPhase.PENDING and not claim.committed]
        committed = [claim for claim in newest_first if claim not in pending]
        released: list[NodeClaim] = []
        for claim in pending:
            if len(released) == count:
                return released
            if self._factory.withdraw(claim, Reason.CANCELLED_BY_DECREASE, only_pending=True):
                released.append(claim)
            else:
                committed.append(claim)
            self._look_again(claim)
        for claim in committed:
            if len(released) == count:
                break
            if self._node_never_came(claim):
                self._factory.withdraw(claim, Reason.CANCELLED_BY_DECREASE)
                self._look_again(claim)
                released.append(claim)
        return released

    def _node_never_came(self, claim: NodeClaim) -> bool:
        """An uncached look before a boot is reversed: a node that has just registered saves its claim."""
        slot = self._pool.index.slots.objects.get(Key(claim.namespace, claim.slot_name))
        name = claim.status.node_name or (slot.spec.kubernetes_node_name if slot else "")
        try:
            node = self._client.get(CoreNode, name) if name else None
        except NotFoundError:
            node = None
        return not has_own_node(claim, node)

    # --- reads --------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, group_id: str) -> Iterator[None]:
        """One writing call per group at a time; unknown groups get no lock."""
        self._pool.view(group_id)
        with self._locks_guard:
            lock = self._locks[group_id]
        with lock:
            yield

    def _read(self, group_id: str) -> GroupView:
        """The group as of now: its claims and reclaims straight from the API server."""
        namespace = self._pool.group_key(group_id).namespace
        try:
            self._take_in(NodeClaim, namespace)
            self._take_in(NodeReclaim, namespace)
        except ApiError as error:
            raise api_failure(f'group "{group_id}": its claims cannot be read', error) from error
        return self._pool.view(group_id, fresh=True)

    def _take_in(self, kind: type[T], namespace: str) -> None:
        index = self._pool.index
        # Most of a large pool is as the index has it; what is not decoded again is neither time nor heap.
        listed = self._client.list(kind, namespace, known=lambda metadata: index.known(kind, metadata))
        index.replace(kind, namespace, listed.items, listed.resource_version)

    def _look_again(self, claim: NodeClaim) -> None:
        """Take in what a write of ours made of the claim."""
        try:
            found = self._client.get(NodeClaim, claim.name, claim.namespace)
        except NotFoundError:
            self._pool.index.remove(claim, confirmed=False)
            return
        if found.uid != claim.uid:
            self._pool.index.remove(claim, confirmed=False)
        self._pool.index.put(found, confirmed=False)


def _age(claim: NodeClaim) -> tuple[str, str]:
    created = claim.metadata.creation_timestamp
    return (format_time(created) if created else "", claim.name)


def _check_alive(group_id: str, alive: Callable[[], bool]) -> None:
    if not alive():
        raise CallError(Cause.DEADLINE_EXCEEDED, f'group "{group_id}": the caller has given up')


def api_failure(text: str, error: ApiError) -> CallError:
    """A failed request to the API server as the end of a call."""
    unreachable = error.status == 0 or error.status >= 500 or error.status == 429
    return CallError(Cause.UNAVAILABLE if unreachable else Cause.INTERNAL, f"{text}: {error}")
