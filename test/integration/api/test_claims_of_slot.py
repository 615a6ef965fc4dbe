"""The API server itself picks a slot's claims, by the field that makes them the slot's."""

import pytest

CLAIMS = {"a": "rack-1", "b": "rack-2", "c": "rack-1"}


@pytest.fixture
def claims(api, place):
    for name, slot in CLAIMS.items():
        info = {"apiVersion": "infra.homecluster.dev/v2alpha1", "kind": "NodeClaim", "metadata": {"name": name}}
        api.create(
            f"{place}/nodeclaims", info | {"spec": {"slotRef": {"name": slot}, "call": "Manual", "group": "rack"}}
        )
    return f"{place}/nodeclaims"


def test_claims_are_selected_by_the_slot_that_they_name(api, claims):
    found = api.request("GET", f"{claims}?fieldSelector=spec.slotRef.name%3Drack-1").json()
    assert sorted(item["metadata"]["name"] for item in found["items"]) == ["a", "c"]


def test_a_field_that_is_not_declared_is_refused_as_old_servers_refuse_every_field(api, claims):
    answer = api.request("GET", f"{claims}?fieldSelector=spec.group%3Drack")
    assert answer.status == 400
    assert answer.json()["reason"] == "BadRequest"
