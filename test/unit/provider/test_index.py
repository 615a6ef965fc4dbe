from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.provider.index import Key, PoolIndex

SLOT = Key("pool", "w1")


def test_an_older_watch_event_does_not_undo_what_a_write_put_in(claim_of, slot_of):
    index = PoolIndex()
    slot = slot_of("w1")
    index.put(claim_of(slot, uid="u", phase="ready", version="20"), confirmed=False)
    index.put(claim_of(slot, uid="u", phase="booting", version="10"))
    assert [claim.phase for claim in index.claims_of(SLOT)] == ["ready"]


def test_a_newer_event_replaces_what_a_write_put_in(claim_of, slot_of):
    index = PoolIndex()
    slot = slot_of("w1")
    index.put(claim_of(slot, uid="u", phase="booting", version="9"), confirmed=False)
    index.put(claim_of(slot, uid="u", phase="ready", version="10"))
    assert [claim.phase for claim in index.claims_of(SLOT)] == ["ready"]


def test_late_events_of_a_claim_that_we_saw_go_do_not_bring_it_back(claim_of, slot_of):
    index = PoolIndex()
    claim = claim_of(slot_of("w1"), uid="u", version="10")
    index.put(claim, confirmed=False)
    index.remove(claim, confirmed=False)
    index.put(claim)
    assert index.claims_of(SLOT) == []
    index.remove(claim)
    assert index.claims_of(SLOT) == []


def test_a_claim_of_the_same_name_replaces_its_predecessor(claim_of, slot_of):
    index = PoolIndex()
    slot = slot_of("w1")
    old = claim_of(slot, uid="old", version="10")
    index.put(old)
    index.put(claim_of(slot, uid="new", version="11"))
    index.remove(old)
    assert [claim.uid for claim in index.claims_of(SLOT)] == ["new"]


def test_an_uncached_list_takes_out_what_it_lacks_and_keeps_what_is_newer(claim_of, slot_of):
    index = PoolIndex()
    slot, other = slot_of("w1"), slot_of("w2")
    index.put(claim_of(slot, name="a", uid="a", version="10"))
    index.put(claim_of(other, name="b", uid="b", version="30"), confirmed=False)
    index.replace(NodeClaim, "pool", [], "20")
    assert index.claims_of(SLOT) == []
    assert [claim.uid for claim in index.claims_of(Key("pool", "w2"))] == ["b"]


def test_a_list_of_one_namespace_leaves_others_alone(claim_of, slot_of):
    index = PoolIndex()
    foreign = slot_of("w1", namespace="attic")
    index.put(claim_of(foreign, uid="f", version="10"))
    index.replace(NodeClaim, "pool", [], "20")
    assert [claim.uid for claim in index.claims_of(Key("attic", "w1"))] == ["f"]


def test_an_object_is_known_by_its_uid_and_version_alone(claim_of, slot_of):
    index = PoolIndex()
    held = claim_of(slot_of("w1"), name="a", uid="u", version="10")
    index.put(held)

    def known(**changes):
        metadata = {"namespace": "pool", "name": "a", "uid": "u", "resourceVersion": "10"}
        return index.known(NodeClaim, {**metadata, **changes})

    assert known() is held
    strangers = [
        {"uid": "v"},
        {"resourceVersion": "11"},
        {"resourceVersion": "9"},
        {"name": "b"},
        {"namespace": "attic"},
    ]
    assert [known(**changes) for changes in strangers] == [None] * len(strangers)


def test_versions_that_are_no_numbers_count_as_newer(claim_of, slot_of):
    index = PoolIndex()
    slot = slot_of("w1")
    index.put(claim_of(slot, uid="u", phase="booting", version="xyz"))
    index.put(claim_of(slot, uid="u", phase="ready", version="abc"))
    assert [claim.phase for claim in index.claims_of(SLOT)] == ["ready"]


def test_what_we_wrote_is_unconfirmed_until_a_watch_shows_it(claim_of, slot_of):
    index = PoolIndex()
    claim = claim_of(slot_of("w1"), uid="u", version="10")
    index.put(claim, confirmed=False)
    assert list(index.claims.unconfirmed) == ["u"]
    index.put(claim)
    assert index.claims.unconfirmed == {}


def test_a_claim_that_moves_to_another_slot_name_is_found_there_only(claim_of, slot_of):
    index = PoolIndex()
    index.put(claim_of(slot_of("w1"), uid="a", name="c", version="1"))
    index.put(claim_of(slot_of("w2"), uid="b", name="c", version="2"))
    assert index.claims_of(SLOT) == []
    assert [claim.uid for claim in index.claims_of(Key("pool", "w2"))] == ["b"]


def test_a_job_is_related_to_its_slot_by_owner_and_not_by_label(job_of, slot_of):
    index = PoolIndex()
    job = job_of(slot_of("w1"), "startup")
    index.put(job.model_copy(update={"metadata": job.metadata.model_copy(update={"labels": {}})}))
    assert [found.name for found in index.jobs_of(SLOT)] == ["job"]
