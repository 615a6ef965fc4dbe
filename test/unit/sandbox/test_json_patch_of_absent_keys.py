import pytest

from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import JsonPatchError, apply

JOB = {"metadata": {"uid": "u"}, "spec": {"suspend": True}}


def test_an_absent_key_equals_null_in_a_test():
    operations = [
        {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
    assert apply(JOB, operations)["spec"] == {"suspend": False}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/uid", "value": None},
        {"op": "test", "path": "/metadata/deletionTimestamp", "value": "2026-01-01T00:00:00Z"},
        {"op": "test", "path": "/status/phase", "value": None},
    ],
)
def test_a_present_value_another_value_and_an_absent_parent_fail_the_test(operation):
    with pytest.raises(JsonPatchError):
        apply(JOB, [operation])
