"""Sets of fields and server-side apply as functions."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.apiserver.semantics import fieldset, ownership
from homelab_autoscaler.sandbox.apiserver.semantics.ownership import Manager
from homelab_autoscaler.sandbox.apiserver.semantics.structural import shape_of_schema
from homelab_autoscaler.sandbox.status import ApiStatusError

SHAPE = shape_of_schema(
    {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "words": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
            },
        },
    }
)
letters = st.sampled_from("abc")
configs = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(0, 3),
        "words": st.dictionaries(letters, letters, min_size=1, max_size=3),
        "whole": st.dictionaries(letters, letters, min_size=1, max_size=2),
        "tags": st.lists(letters, unique=True, min_size=1, max_size=3),
        "plain": st.lists(letters, min_size=1, max_size=2),
        "parts": st.dictionaries(letters, letters, min_size=1, max_size=3).map(
            lambda items: [{"name": name, "value": value} for name, value in items.items()]
        ),
    },
)
steps = st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), configs), max_size=6)


def apply(live, config, owners, name, *, force=True):
    config = copy.deepcopy(config)
    return ownership.apply(live, config, SHAPE, owners, Manager(name, "Apply"), "v1", "now", force=force)


def run(script):
    live, owners, last = {}, {}, {}
    for name, config in script:
        live, owners = apply(copy.deepcopy(live), config, owners, name)
        last[name] = config
    return live, owners, last


@given(steps, configs)
def test_after_a_forced_apply_everything_applied_is_there(script, config):
    live, owners, _ = run(script)
    merged, _ = apply(copy.deepcopy(live), config, owners, "one")
    wanted = fieldset.fields_of(config, SHAPE)
    present = fieldset.fields_of(merged, SHAPE)
    assert not wanted or fieldset.minus(wanted, present) in (None, {})
    assert merged.get("size") == config.get("size", merged.get("size"))


@given(steps, configs)
def test_applying_the_same_again_changes_nothing(script, config):
    live, owners, _ = run(script)
    once, owners = apply(copy.deepcopy(live), config, owners, "one")
    twice, after = apply(copy.deepcopy(once), config, owners, "one", force=False)
    assert twice == once
    assert after == owners


@given(steps)
def test_when_all_managers_let_go_nothing_is_left(script):
    live, owners, last = run(script)
    for name in last:
        live, owners = apply(copy.deepcopy(live), {}, owners, name)
    assert owners == {}
    assert live == {}


@given(configs, configs)
def test_union_minus_and_intersection_agree(one, other):
    left, right = fieldset.fields_of(one, SHAPE), fieldset.fields_of(other, SHAPE)
    both = fieldset.union(left, right)
    assert set(fieldset.leaves(both)) >= set(fieldset.leaves(left)) | set(fieldset.leaves(right))
    rest = fieldset.minus(left, right)
    assert set(fieldset.leaves(rest or {})) == set(fieldset.leaves(left)) - set(fieldset.leaves(right))
    common = fieldset.intersection(left, right)
    assert set(fieldset.leaves(common or {})) == set(fieldset.leaves(left)) & set(fieldset.leaves(right))


@given(configs, configs)
def test_a_comparison_finds_nothing_exactly_when_nothing_differs(old, new):
    changed, removed = fieldset.compare(old, new, SHAPE)
    same = {**old, "tags": sorted(old.get("tags", []))} == {**new, "tags": sorted(new.get("tags", []))}
    parts = sorted(map(str, old.get("parts", []))) == sorted(map(str, new.get("parts", [])))
    if not changed and not removed:
        assert parts
        assert {**old, "tags": 0, "parts": 0} == {**new, "tags": 0, "parts": 0}
    elif same:
        raise AssertionError("equal values differ")


def test_another_managers_value_is_a_conflict_and_the_same_value_is_shared():
    live, owners = apply({}, {"size": 1}, {}, "one")
    shared, owners = apply(live, {"size": 1}, owners, "two", force=False)
    assert shared == {"size": 1}
    with pytest.raises(ApiStatusError, match=r'conflicts with "one":\n- \.size') as caught:
        apply(shared, {"size": 2}, owners, "three", force=False)
    assert {cause["message"] for cause in caught.value.status["details"]["causes"]} == {
        'conflict with "one"',
        'conflict with "two"',
    }


def test_a_plain_write_takes_fields_from_their_owner():
    live, owners = apply({}, {"size": 1, "words": {"a": "x"}}, {}, "one")
    new = {**live, "size": 2}
    after = ownership.after_update(owners, live, new, SHAPE, Manager("plain", "Update"), "v1", "now")
    assert after[Manager("plain", "Update")].fields == {"f:size": {}}
    assert after[Manager("one", "Apply")].fields == {"f:words": {"f:a": {}}}
