"""Asking the API server for a slot's claims and for nothing else."""

import pytest

from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.claim.of_slot import claims_of_slots
from homelab_autoscaler.claim.testing import MemoryStore
from homelab_autoscaler.runtime.errors import BadRequestError, ForbiddenError
from homelab_autoscaler.runtime.testing.clock import FakeClock


class Reader:
    """A MemoryStore that counts what it hands out, and may know no field selectors."""

    def __init__(self, store, *, selects=True):
        self._store = store
        self._selects = selects
        self.handed_out = []

    def list(self, kind, namespace=None, *, field_selector=None):
        if field_selector is not None and not self._selects:
            raise BadRequestError("field label not supported: spec.slotRef.name", status=400)
        found = self._store.list(kind, namespace, field_selector=field_selector)
        self.handed_out.append(len(found.items))
        return found


@pytest.fixture
def store():
    store = MemoryStore(FakeClock())
    for name, slot, namespace in [
        ("a", "rack-1", "x"),
        ("b", "rack-2", "x"),
        ("c", "rack-1", "x"),
        ("d", "rack-1", "y"),
    ]:
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": {"infra.homecluster.dev/node": "another"}},
            "spec": {"slotRef": {"name": slot}, "call": "Manual", "group": "pool"},
        }
        store.put(NodeClaim.from_json(body))
    return store


def named(found):
    return sorted(claim.name for claim in found)


def test_a_slots_claims_are_selected_by_the_server_and_by_the_field_alone(store):
    reader = Reader(store)
    assert named(claims_of_slots(reader, "x", {"rack-1"})) == ["a", "c"]
    assert reader.handed_out == [2]


def test_a_server_that_cannot_select_gives_the_same_answer(store):
    reader = Reader(store, selects=False)
    assert named(claims_of_slots(reader, "x", {"rack-1"})) == ["a", "c"]
    assert reader.handed_out == [3]


def test_several_slots_are_answered_as_of_one_moment(store):
    reader = Reader(store)
    assert named(claims_of_slots(reader, "x", {"rack-1", "rack-2"})) == ["a", "b", "c"]
    assert reader.handed_out == [3]


def test_a_refused_read_is_not_taken_for_an_old_server(store):
    class Refusing(Reader):
        def list(self, kind, namespace=None, *, field_selector=None):
            raise ForbiddenError("no", status=403)

    with pytest.raises(ForbiddenError):
        claims_of_slots(Refusing(store), "x", {"rack-1"})
