from datetime import timedelta

import pytest

from homelab_api import names
from homelab_api.v2alpha1 import Call, Node, NodeClaim, Reason
from homelab_autoscaler.claim.create import ClaimFactory, Request, SlotGoneError, SlotTakenError
from homelab_autoscaler.claim.names import claim_name
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.runtime.errors import (
    ConflictError,
    ForbiddenError,
    InternalServerError,
    TransportError,
    UnavailableError,
)

BY_HAND = Request(Call.MANUAL)


@pytest.fixture
def factory(store, clock, settings):
    return ClaimFactory(store, clock, settings)


@pytest.fixture
def slot(store, slot_of):
    return store.put(slot_of("w1"))


def live(store):
    return [claim for claim in store.all(NodeClaim) if claim.wants_machine]


def rival(store, claim_of, slot, **how):
    return store.put(claim_of(slot, name=how.pop("name", "by-hand"), **how))


def test_a_claim_carries_slot_group_owner_times_and_no_attempt(factory, clock, settings, slot):
    claim = factory.create(slot, Request(Call.INCREASE_SIZE, timedelta(minutes=20)), read_at=clock.monotonic())
    assert claim.name == claim_name("w1", slot.uid, "")
    assert claim.metadata.labels == {names.LABEL_GROUP: "lab", names.LABEL_NODE: "w1"}
    assert [(owner.kind, owner.uid) for owner in claim.metadata.owner_references] == [("Node", slot.uid)]
    assert (claim.slot_name, claim.spec.group, claim.spec.call) == ("w1", "lab", Call.INCREASE_SIZE)
    assert claim.spec.requested_at == clock.now()
    assert claim.spec.deadline_at == clock.now() + timedelta(minutes=20)
    assert claim.spec.max_node_provision_time == timedelta(minutes=20)
    assert claim.status.attempt == 0
    assert not claim.committed


def test_the_deadline_is_never_earlier_than_the_boot_budget(factory, clock, settings, slot):
    claim = factory.create(slot, Request(Call.MANUAL, timedelta(minutes=1)), read_at=clock.monotonic())
    assert claim.spec.deadline_at == clock.now() + timedelta(seconds=settings.boot_budget)


def test_a_slow_startup_job_moves_the_deadline_by_its_excess(factory, clock, settings, store, slot_of):
    slot = store.put(slot_of("w2", startupPodSpec={"image": "wol", "timeoutSeconds": 400}))
    claim = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert claim.spec.deadline_at == clock.now() + timedelta(seconds=settings.boot_budget + 100)


def test_a_second_creator_with_the_same_knowledge_is_told_which_claim_has_the_slot(factory, clock, store, slot):
    first = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    with pytest.raises(SlotTakenError, match=f'"w1" already has the live claim "{first.name}" in phase "pending"'):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.uid for claim in live(store)] == [first.uid]


def test_an_ended_claim_with_the_name_makes_the_creator_wait_for_its_digest(factory, clock, store, slot):
    first = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    store.change(first, {"status": {"phase": "failed", "reason": "StartupJobFailed"}})
    clock.on_sleep.append(
        lambda: store.change(slot, {"status": {"lastClaim": {"name": first.name, "uid": first.uid, "phase": "failed"}}})
    )
    second = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert second.name == claim_name("w1", slot.uid, first.uid)


def test_without_a_digest_the_wait_ends_within_a_second_and_the_slot_is_taken(factory, clock, store, slot):
    first = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    store.change(first, {"status": {"phase": "failed", "reason": "StartupJobFailed"}})
    begun = clock.monotonic()
    with pytest.raises(SlotTakenError, match="waits for the digest of its ended claim"):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert 1.0 <= clock.monotonic() - begun <= 1.1
    assert not live(store)


def test_the_wait_for_the_digest_ends_when_the_ended_claim_is_collected(factory, clock, store, slot):
    first = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    ended = store.change(first, {"status": {"phase": "completed"}})
    clock.on_sleep.append(lambda: store.erase(ended) if ended.uid in {c.uid for c in store.all(NodeClaim)} else None)
    assert factory.create(slot, BY_HAND, read_at=clock.monotonic()).name == first.name


def test_a_cancelled_pending_claim_leaves_its_name_free(factory, clock, store, slot):
    first = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert factory.withdraw(first, Reason.DELETED_BY_HAND)
    second = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert second.name == first.name
    assert second.uid != first.uid


def test_a_read_older_than_ten_seconds_is_repeated_before_the_create(factory, clock, store, slot):
    read_at = clock.monotonic()
    store.change(slot, {"status": {"lastClaim": {"name": "x", "uid": "ended", "phase": "completed"}}})
    clock.step(10.5)
    claim = factory.create(slot, BY_HAND, read_at=read_at)
    assert claim.name == claim_name("w1", slot.uid, "ended")


def test_a_slot_that_was_replaced_while_its_creator_slept_is_not_claimed(factory, clock, store, slot, slot_of):
    read_at = clock.monotonic()
    store.erase(slot)
    store.put(slot_of("w1", uid="another"))
    clock.step(11)
    with pytest.raises(SlotGoneError, match="deleted and made again"):
        factory.create(slot, BY_HAND, read_at=read_at)
    assert not store.all(NodeClaim)


def test_a_slot_that_is_being_deleted_is_not_claimed(factory, clock, store, slot):
    marked = store.change(slot, {"metadata": {"deletionTimestamp": "2026-03-04T12:00:00Z"}})
    with pytest.raises(SlotGoneError, match="being deleted"):
        factory.create(marked, BY_HAND, read_at=clock.monotonic())


def test_a_live_claim_that_was_there_before_wins_and_ours_is_withdrawn(factory, clock, store, slot, claim_of):
    other = rival(store, claim_of, slot, created=clock.now() - timedelta(seconds=30))
    with pytest.raises(SlotTakenError, match='live claim "by-hand"'):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.uid for claim in live(store)] == [other.uid]


def test_a_claim_created_after_ours_is_withdrawn_if_nothing_was_done_with_it(factory, clock, store, slot, claim_of):
    store.faults.append(
        Fault(verb="list", meanwhile=lambda: rival(store, claim_of, slot, created=clock.now() + timedelta(seconds=1)))
    )
    ours = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.uid for claim in live(store)] == [ours.uid]


def test_within_one_second_the_order_of_writes_tells_which_claim_is_newer(factory, clock, store, slot, claim_of):
    store.faults.append(Fault(verb="list", meanwhile=lambda: rival(store, claim_of, slot, created=clock.now())))
    ours = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.uid for claim in live(store)] == [ours.uid]


def test_a_claim_of_the_same_second_that_is_under_way_keeps_the_slot(factory, clock, store, slot, claim_of):
    store.faults.append(
        Fault(verb="list", meanwhile=lambda: rival(store, claim_of, slot, created=clock.now(), phase="booting"))
    )
    with pytest.raises(SlotTakenError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.name for claim in live(store)] == ["by-hand"]


def test_if_the_newer_claim_moves_before_it_can_be_withdrawn_ours_goes(factory, clock, store, slot, claim_of):
    def appear():
        other = rival(store, claim_of, slot, created=clock.now() + timedelta(seconds=1))
        boot = {"metadata": {"finalizers": [names.FINALIZER_MACHINE]}, "status": {"phase": "booting"}}
        store.faults.append(Fault(verb="delete", meanwhile=lambda: store.change(other, boot)))

    store.faults.append(Fault(verb="list", meanwhile=appear))
    with pytest.raises(SlotTakenError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [claim.name for claim in live(store)] == ["by-hand"]


def test_two_creators_that_see_each_other_leave_exactly_one_claim(factory, clock, store, settings, slot, slot_of):
    # The second creator read the slot with another digest, so its name differs and the server admits both.
    stale = slot_of("w1", uid=slot.uid, status={"lastClaim": {"name": "x", "uid": "old", "phase": "completed"}})
    first = factory.place(slot, BY_HAND, read_at=clock.monotonic())
    second = factory.place(stale, BY_HAND, read_at=clock.monotonic())
    refused = {**factory.settle([second]), **factory.settle([first])}
    assert list(refused) == [second.uid]
    assert [claim.uid for claim in live(store)] == [first.uid]


def test_a_marked_claim_still_has_its_slot(factory, clock, store, slot, claim_of):
    rival(store, claim_of, slot, phase="ready", marked=True, created=clock.now() - timedelta(hours=1))
    with pytest.raises(SlotTakenError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert not live(store)


def test_claims_of_other_slots_are_no_rivals(factory, clock, store, slot, slot_of, claim_of):
    rival(store, claim_of, slot_of("w2"))
    assert factory.create(slot, BY_HAND, read_at=clock.monotonic()).slot_name == "w1"


@pytest.mark.parametrize("error", [TransportError("reset"), InternalServerError("boom", status=500)])
def test_a_create_whose_reply_is_lost_is_found_again_and_not_made_twice(factory, clock, store, slot, error):
    store.faults.append(Fault(error, verb="create", committed=True))
    claim = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [other.uid for other in store.all(NodeClaim)] == [claim.uid]


def test_a_create_that_never_arrived_is_repeated(factory, clock, store, slot):
    store.faults.append(Fault(TransportError("reset"), verb="create"))
    claim = factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert [other.uid for other in store.all(NodeClaim)] == [claim.uid]


def test_a_lost_reply_does_not_make_another_creators_claim_ours(factory, clock, store, slot, claim_of):
    name = claim_name("w1", slot.uid, "")
    store.faults.append(
        Fault(TransportError("reset"), verb="create", meanwhile=lambda: rival(store, claim_of, slot, name=name))
    )
    with pytest.raises(SlotTakenError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert len(live(store)) == 1


def test_when_the_api_server_stays_away_the_error_is_passed_on(factory, clock, store, slot):
    store.faults.append(Fault(TransportError("refused"), times=99))
    with pytest.raises(TransportError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())


def test_if_the_list_after_the_create_fails_the_claim_is_taken_back(factory, clock, store, slot):
    store.faults.append(Fault(UnavailableError("no", status=503), verb="list"))
    with pytest.raises(UnavailableError):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert not store.all(NodeClaim)


def test_a_refusal_by_admission_is_passed_on_with_its_message(factory, clock, store, slot):
    store.faults.append(Fault(ForbiddenError("one live claim per slot", status=403), verb="create"))
    with pytest.raises(ForbiddenError, match="one live claim per slot"):
        factory.create(slot, BY_HAND, read_at=clock.monotonic())


def test_a_withdrawn_committed_claim_is_marked_with_its_reason(factory, clock, store, slot, claim_of):
    claim = rival(store, claim_of, slot, phase="ready")
    assert factory.withdraw(claim, Reason.NODE_DELETED)
    (marked,) = store.all(NodeClaim)
    assert marked.marked
    assert marked.metadata.annotations[names.ANNOTATION_END_REASON] == "NodeDeleted"


def test_withdrawing_twice_writes_nothing_more(factory, store, slot, claim_of):
    claim = rival(store, claim_of, slot, phase="ready")
    factory.withdraw(claim, Reason.NODE_DELETED)
    (marked,) = store.all(NodeClaim)
    writes = list(store.writes)
    assert factory.withdraw(marked, Reason.CANCELLED_BY_DECREASE)
    assert store.writes == writes


def test_a_claim_that_moves_while_it_is_withdrawn_is_read_again(factory, store, slot, claim_of):
    claim = rival(store, claim_of, slot, phase="booting")
    store.change(claim, {"status": {"phase": "ready"}})
    assert factory.withdraw(claim, Reason.NODE_DELETED)
    assert not live(store)


@pytest.mark.parametrize("verb", ["patch", "delete"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_lost_reply_while_withdrawing_is_read_back(factory, store, slot, claim_of, verb, committed):
    claim = rival(store, claim_of, slot, phase="ready")
    store.faults.append(Fault(TransportError("reset"), verb=verb, committed=committed))
    assert factory.withdraw(claim, Reason.NODE_DELETED)
    (marked,) = store.all(NodeClaim)
    assert marked.marked


def test_only_pending_leaves_a_claim_alone_whose_boot_began_in_between(factory, store, slot, claim_of):
    claim = rival(store, claim_of, slot)
    store.change(claim, {"metadata": {"finalizers": [names.FINALIZER_MACHINE]}, "status": {"phase": "booting"}})
    assert not factory.withdraw(claim, Reason.CANCELLED_BY_DECREASE, only_pending=True)
    assert len(live(store)) == 1


def test_a_claim_that_never_stops_changing_is_reported_as_a_conflict(factory, store, slot, claim_of):
    claim = rival(store, claim_of, slot, phase="ready")
    store.faults.append(Fault(ConflictError("modified", status=409), verb="patch", times=99))
    with pytest.raises(ConflictError):
        factory.withdraw(claim, Reason.NODE_DELETED)
    assert len(live(store)) == 1


def test_a_claim_of_the_same_name_but_another_uid_is_not_withdrawn(factory, store, slot, claim_of):
    claim = rival(store, claim_of, slot)
    store.erase(claim)
    rival(store, claim_of, slot)
    assert factory.withdraw(claim, Reason.NODE_DELETED)
    assert len(live(store)) == 1


def test_the_slot_itself_is_never_written(factory, clock, store, slot):
    factory.create(slot, BY_HAND, read_at=clock.monotonic())
    assert store.get(Node, "w1", "pool").metadata.resource_version == slot.metadata.resource_version
