from __future__ import annotations

import pytest

from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import JsonPatchError, apply


def test_a_key_that_is_not_there_equals_null_in_a_test():
    document = {"metadata": {"uid": "a"}, "spec": {"suspend": True}}

    patched = apply(
        document,
        [
            {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
            {"op": "replace", "path": "/spec/suspend", "value": False},
        ],
    )

    assert patched["spec"] == {"suspend": False}


@pytest.mark.parametrize(
    ("path", "value"),
    [("/metadata/uid", None), ("/metadata/missing", "x"), ("/missing/uid", None), ("/list/3", None)],
)
def test_a_test_that_does_not_hold_refuses_the_patch(path, value):
    with pytest.raises(JsonPatchError):
        apply({"metadata": {"uid": "a"}, "list": []}, [{"op": "test", "path": path, "value": value}])
