from homelab_autoscaler.sandbox.controllers.owner_graph import OwnerGraph


def obj(uid, *owners, deleting=False, finalizers=(), blocking=False):
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "blockOwnerDeletion": blocking}
        for owner in owners
    ]
    meta = {"name": uid, "namespace": "n", "uid": uid, "ownerReferences": references, "finalizers": list(finalizers)}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def uids(entries):
    return {entry.identity.uid for entry in entries}


def test_a_new_dependent_is_looked_at_once():
    graph = OwnerGraph()
    assert graph.put(obj("kid", "owner")) == {"kid"}
    assert graph.put(obj("kid", "owner")) == set()


def test_an_object_without_owners_is_never_looked_at():
    assert OwnerGraph().put(obj("alone")) == set()


def test_when_an_owner_goes_all_its_dependents_are_looked_at():
    graph = OwnerGraph()
    graph.put(obj("owner"))
    graph.put(obj("a", "owner"))
    graph.put(obj("b", "owner", "other"))
    assert graph.remove("owner") == {"a", "b"}


def test_dependents_are_known_before_their_owner_is():
    graph = OwnerGraph()
    graph.put(obj("kid", "owner"))
    graph.put(obj("owner"))
    assert uids(graph.dependents("owner")) == {"kid"}


def test_a_dropped_reference_is_forgotten():
    graph = OwnerGraph()
    graph.put(obj("kid", "one", "two"))
    assert graph.put(obj("kid", "two")) == {"kid"}
    assert graph.dependents("one") == []


def test_an_owner_in_foreground_deletion_wakes_when_its_dependent_goes():
    graph = OwnerGraph()
    graph.put(obj("owner", deleting=True, finalizers=["foregroundDeletion"]))
    graph.put(obj("kid", "owner", blocking=True))
    assert uids(graph.blocking("owner")) == {"kid"}
    assert graph.remove("kid") == {"owner"}
    assert graph.blocking("owner") == []


def test_a_dependent_that_does_not_block_holds_nobody():
    graph = OwnerGraph()
    graph.put(obj("kid", "owner"))
    assert graph.blocking("owner") == []


def test_removing_what_was_never_seen_wakes_nobody():
    assert OwnerGraph().remove("nobody") == set()


def test_an_object_that_is_gone_leaves_nothing_behind():
    graph = OwnerGraph()
    graph.put(obj("kid", "owner"))
    graph.remove("kid")
    assert len(graph) == 0
    assert graph.dependents("owner") == []
