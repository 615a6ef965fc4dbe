"""JSON, merge and strategic patches as functions."""

import contextlib
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.apiserver.builtin.types import shape_of
from homelab_autoscaler.sandbox.apiserver.semantics import json_patch, merge_patch, strategic_patch

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text("xyz", max_size=2), values, max_size=4)
pointers = st.lists(st.sampled_from(["x", "y", "z", "0", "1", "-", "-1", "~0", "~1", ""]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "jump"]), "path": pointers},
        optional={"value": values, "from": pointers},
    ),
    max_size=4,
)


@given(documents, operations)
def test_a_json_patch_either_applies_or_fails_as_a_patch(document, patch):
    untouched = copy.deepcopy(patch)
    with contextlib.suppress(json_patch.JsonPatchError):
        json_patch.apply(copy.deepcopy(document), patch)
    assert patch == untouched


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": {"b/c": 1}}, {"op": "remove", "path": "/a/b~1c"}, {"a": {}}),
        ({"a": 1}, {"op": "replace", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": {"x": 1}}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}),
    ],
)
def test_json_patch_operations_do_what_rfc_6902_says(document, operation, expected):
    assert json_patch.apply(document, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/none"},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_json_patch_operations_that_cannot_apply_fail(operation):
    with pytest.raises(json_patch.JsonPatchError):
        json_patch.apply({"a": 1}, [operation])


@given(documents, documents)
def test_a_merge_patch_applied_twice_changes_nothing_more(document, patch):
    once = merge_patch.merge(copy.deepcopy(document), copy.deepcopy(patch))
    assert merge_patch.merge(copy.deepcopy(once), copy.deepcopy(patch)) == once


POD = shape_of("core.v1.Pod")


def test_a_strategic_patch_merges_containers_by_name_and_keeps_the_rest():
    target = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}}
    found = strategic_patch.apply(target, patch, POD)
    assert [(item["name"], item["image"]) for item in found["spec"]["containers"]] == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
    ]


def test_a_strategic_patch_replaces_lists_that_have_no_merge_key():
    target = {"spec": {"tolerations": [{"key": "a"}]}}
    assert strategic_patch.apply(target, {"spec": {"tolerations": [{"key": "b"}]}}, POD)["spec"]["tolerations"] == [
        {"key": "b"}
    ]


def test_a_list_item_without_its_merge_key_is_refused():
    with pytest.raises(strategic_patch.StrategicPatchError, match="merge key: name"):
        strategic_patch.apply({"spec": {"containers": []}}, {"spec": {"containers": [{"image": "x"}]}}, POD)


@given(documents, st.dictionaries(st.sampled_from(["spec", "metadata", "$patch", "status"]), documents, max_size=3))
def test_a_strategic_patch_of_any_shape_either_applies_or_fails_as_a_patch(document, patch):
    untouched = copy.deepcopy(patch)
    with contextlib.suppress(strategic_patch.StrategicPatchError):
        strategic_patch.apply(copy.deepcopy(document), copy.deepcopy(patch), POD)
    assert patch == untouched
