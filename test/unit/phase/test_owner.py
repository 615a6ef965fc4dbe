"""Which claim speaks for a slot."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_api import names
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.phase import ClaimFact, claim_fact, contested, extra_claims, owning_claim

START = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


def claim(uid, phase="pending", *, age=0, marked=False, committed=False):
    created = START - timedelta(seconds=age)
    return NodeClaim.from_json(
        {
            "metadata": {
                "name": f"claim-{uid}",
                "uid": uid,
                "creationTimestamp": created.isoformat(),
                "deletionTimestamp": START.isoformat() if marked else None,
                "finalizers": [names.FINALIZER_MACHINE] if committed else [],
            },
            "spec": {"slotRef": {"name": "s"}, "call": "Manual", "group": "g"},
            "status": {"phase": phase or None},
        }
    )


@pytest.mark.parametrize(
    ("claims", "owner"),
    [
        ([], None),
        ([claim("a", phase=None)], "a"),
        ([claim("a", age=60), claim("b", age=10)], "b"),
        ([claim("a", committed=True), claim("b")], "a"),
        ([claim("a"), claim("b")], "b"),
        ([claim("a", committed=True, age=60), claim("b")], "b"),
        ([claim("a", "ready", age=60), claim("b", marked=True)], "a"),
        ([claim("a", marked=True, age=60), claim("b", marked=True)], "b"),
        ([claim("a", "booting", marked=True, age=60), claim("b", "failed")], "a"),
        ([claim("a", "failed", age=60), claim("b", "completed", age=10)], "b"),
        ([claim("a", "failed", age=60, committed=True), claim("b", "completed", age=10)], "a"),
    ],
)
def test_the_owner_is_the_newest_that_wants_then_the_withdrawn_then_the_ended(claims, owner):
    found = owning_claim(claims)
    assert (found.uid if found else None) == owner
    assert claim_fact(claims) == (ClaimFact.of(found) if found else None)


def test_every_other_live_claim_is_extra_and_ended_ones_are_not():
    claims = [claim("a", age=60), claim("b", "booting", age=30), claim("c", "failed"), claim("d", age=10, marked=True)]
    assert owning_claim(claims).uid == "b"
    assert [extra.uid for extra in extra_claims(claims)] == ["a", "d"]
    assert contested(claims)


def test_one_live_claim_contests_nothing():
    claims = [claim("a", "failed"), claim("b", "ready"), claim("c", "completed", committed=True)]
    assert not contested(claims)
    assert extra_claims(claims) == []


def test_an_ended_claim_that_is_being_deleted_counts_as_ended():
    assert ClaimFact.of(claim("a", "completed", marked=True)).kind == "terminal"


some_claims = st.lists(
    st.builds(
        claim,
        st.uuids().map(str),
        st.sampled_from(["pending", "booting", "ready", "failed", "completed", None]),
        age=st.integers(0, 2),
        marked=st.booleans(),
        committed=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda entry: entry.uid,
)


@given(some_claims, st.randoms())
def test_every_observer_finds_the_same_owner_in_whatever_order_it_reads(claims, random):
    shuffled = random.sample(claims, len(claims))
    assert owning_claim(claims) == owning_claim(shuffled)


@given(some_claims)
def test_superseding_the_extras_leaves_one_live_claim(claims):
    extras = extra_claims(claims)
    left = [entry for entry in claims if entry.live and entry not in extras]
    assert len(left) <= 1
    assert contested(claims) == bool(extras)
