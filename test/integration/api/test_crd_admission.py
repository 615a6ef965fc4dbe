"""Admission by the CRDs alone: what a person writes wrongly is refused with the field, the value and the fix.

The same table holds on the embedded API server and on a real one.
"""

import copy
from pathlib import Path

import pytest
import yaml

from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.sandbox.status import ApiStatusError

SAMPLES = Path(__file__).resolve().parents[3] / "config" / "samples"

GROUPS, NODES, CLAIMS, RECLAIMS = "groups", "nodes", "nodeclaims", "nodereclaims"
KINDS = {GROUPS: Group, NODES: Node, CLAIMS: NodeClaim, RECLAIMS: NodeReclaim}

POD = {"image": "busybox"}
GOOD = {
    GROUPS: {},
    NODES: {"kubernetesNodeName": "w1", "startupPodSpec": POD, "shutdownPodSpec": POD},
    CLAIMS: {"slotRef": {"name": "w1"}, "call": "Manual", "group": "rack"},
    RECLAIMS: {"slotRef": {"name": "w1"}},
}

REFUSED = [
    # plural, name, change of a good spec, the field, the value as the person wrote it, the fix
    (GROUPS, "w1", {"template": {"capacity": {"cpu": "16 cores"}}}, "spec.template.capacity", '"16 cores"', '"500m"'),
    (NODES, "w1", {"capacity": {"memory": "32 GB"}}, "spec.capacity", '"32 GB"', '"32Gi"'),
    (NODES, "w1", {"capacity": {"cpu": 16}}, "spec.capacity", "integer", "string"),
    (GROUPS, "w1", {"scaleDownUnneededTime": "10"}, "spec.scaleDownUnneededTime", '"10"', "90s or 12m10s"),
    (GROUPS, "w1", {"scaleDownUnneededTime": 10}, "spec.scaleDownUnneededTime", '"10"', "90s or 12m10s"),
    (GROUPS, "w1", {"drain": {"timeout": "5 minutes"}}, "spec.drain.timeout", '"5 minutes"', "90s or 12m10s"),
    (GROUPS, "w1", {"maxNodeProvisionTime": "0s"}, "spec.maxNodeProvisionTime", '"0s"', "longer than zero"),
    (GROUPS, "w1", {"scaleDownUtilizationThreshold": "50%"}, "spec.scaleDownUtilizationThreshold", '"50%"', '"0.5"'),
    (GROUPS, "w1", {"scaleDownUtilizationThreshold": 0.5}, "spec.scaleDownUtilizationThreshold", "number", "string"),
    (GROUPS, "w1", {"minSize": -1}, "spec.minSize", "-1", "greater than or equal to 0"),
    (GROUPS, "w1", {"minSize": 3, "maxSize": 2}, "spec.minSize", "maxSize", "raise maxSize"),
    (
        GROUPS,
        "w1",
        {"nodeTaints": [{"key": "a b", "effect": "NoSchedule"}]},
        "spec.nodeTaints[0].key",
        '"a b"',
        "DOMAIN/NAME",
    ),
    (
        GROUPS,
        "w1",
        {"nodeTaints": [{"key": "a", "effect": "Never"}]},
        "spec.nodeTaints[0].effect",
        '"Never"',
        '"NoExecute"',
    ),
    (GROUPS, "w1", {"nodeTaints": [{"key": "a"}]}, "spec.nodeTaints[0].effect", "Required", "Required"),
    (
        GROUPS,
        "w1",
        {"nodeTaints": [{"key": "a", "effect": "NoExecute"}] * 2},
        "spec.nodeTaints[1]",
        "Duplicate",
        "NoExecute",
    ),
    (GROUPS, "w1", {"nodeLabels": {"my rack": "1"}}, "spec.nodeLabels", '"my rack"', "DOMAIN/NAME"),
    (GROUPS, "w1", {"nodeLabels": {"rack": "top shelf"}}, "spec.nodeLabels", '"top shelf"', "use letters"),
    (GROUPS, "g" * 64, {}, "metadata.name", "g" * 64, "choose a shorter one"),
    (NODES, "n" * 41, {}, "metadata.name", "n" * 41, "choose a shorter one"),
    (NODES, "w1", {"kubernetesNodeName": "W_1"}, "spec.kubernetesNodeName", '"W_1"', "lower-case"),
    (NODES, "w1", {"kubernetesNodeName": ""}, "spec.kubernetesNodeName", '""', "at least 1"),
    (NODES, "w1", {"startupPodSpec": {}}, "spec.startupPodSpec.image", "Required", "Required"),
    (
        NODES,
        "w1",
        {"startupPodSpec": POD | {"image": "busy box"}},
        "spec.startupPodSpec.image",
        '"busy box"',
        "no spaces",
    ),
    (
        NODES,
        "w1",
        {"shutdownPodSpec": POD | {"ttlSecondsAfterFinished": 10}},
        "spec.shutdownPodSpec.ttlSecondsAfterFinished",
        "10",
        "greater than or equal to 600",
    ),
    (
        NODES,
        "w1",
        {"startupPodSpec": POD | {"volumes": [{"name": "bmc", "mountPath": "/bmc"}]}},
        "spec.startupPodSpec.volumes[0]",
        '"bmc"',
        "exactly one of secretName and configMapName",
    ),
    (
        NODES,
        "w1",
        {"startupPodSpec": POD | {"volumes": [{"name": "bmc", "mountPath": "bmc", "secretName": "bmc"}]}},
        "spec.startupPodSpec.volumes[0].mountPath",
        '"bmc"',
        "begin with /",
    ),
    (
        NODES,
        "w1",
        {"startupPodSpec": POD | {"env": [{"name": "BMC HOST"}]}},
        "spec.startupPodSpec.env[0]",
        '"BMC HOST"',
        "use letters",
    ),
    (NODES, "w1", {"pricing": {"hourlyRate": "cheap"}}, "spec.pricing.hourlyRate", '"cheap"', '"0.012"'),
    (NODES, "w1", {"watts": {"idle": 90, "max": 60}}, "spec.watts", "watts.idle", "exchange"),
    (NODES, "w1", {"killIfCommands": [""]}, "spec.killIfCommands[0]", '""', "at least 1"),
    (CLAIMS, "c1", {"slotRef": {"name": "W1"}}, "spec.slotRef.name", '"W1"', "lower-case"),
    (CLAIMS, "c1", {"call": "manual"}, "spec.call", '"manual"', '"Manual"'),
    (CLAIMS, "c1", {"group": None}, "spec.group", "Required", "Required"),
    (CLAIMS, "c1", {"deadlineAt": "tomorrow"}, "spec.deadlineAt", '"tomorrow"', "date-time"),
    (
        CLAIMS,
        "c1",
        {"ttlSecondsAfterFinished": 60},
        "spec.ttlSecondsAfterFinished",
        "60",
        "greater than or equal to 120",
    ),
    (RECLAIMS, "w2", {}, "metadata.name", '"w2"', "one NodeReclaim per slot"),
]


def body(plural, name, change=None):
    info = KINDS[plural].resource
    spec = {key: value for key, value in (GOOD[plural] | (change or {})).items() if value is not None}
    return copy.deepcopy({"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def stored(api, place):
    """Creates a good object of that plural."""

    def create(plural, name, change=None):
        return api.create(f"{place}/{plural}", body(plural, name, change))

    return create


@pytest.mark.parametrize(("plural", "name", "change", "field", "value", "fix"), REFUSED)
def test_what_is_written_wrongly_is_refused_with_field_value_and_fix(
    api, place, plural, name, change, field, value, fix
):
    with pytest.raises(ApiStatusError) as refused:
        api.create(f"{place}/{plural}", body(plural, name, change))
    message = str(refused.value)
    assert refused.value.code == 422
    assert field in message
    assert value in message
    assert fix in message


@pytest.mark.parametrize("plural", GOOD)
def test_the_least_that_can_be_written_is_admitted_and_read_by_the_types(stored, plural):
    kind = KINDS[plural]
    read = kind.from_json(stored(plural, "w1"))
    assert read.name == "w1"
    assert read.to_json()["kind"] == kind.resource.kind


def test_the_api_server_fills_in_the_defaults_of_the_types(stored):
    assert Group.from_json(stored(GROUPS, "w3")).spec == Group().spec
    plain = Node.from_json(body(NODES, "w3"))
    assert Node.from_json(stored(NODES, "w3")).spec == plain.spec


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"slotRef": {"name": "w2"}}, "spec.slotRef is immutable: delete this claim and make a new one"),
        ({"call": "Schedule"}, "spec.call is immutable: delete this claim and make a new one"),
        ({"group": "other"}, "spec.group is immutable: delete this claim and make a new one"),
    ],
)
def test_what_a_claim_asks_for_cannot_be_changed(api, place, stored, change, says):
    stored(CLAIMS, "c2")
    with pytest.raises(ApiStatusError) as refused:
        api.patch(f"{place}/{CLAIMS}/c2", {"spec": change})
    assert says in str(refused.value)


def test_a_claims_deadline_can_be_cleared_and_set(api, place, stored):
    stored(CLAIMS, "c3", {"deadlineAt": "2026-03-04T09:53:15.123456Z", "maxNodeProvisionTime": "15m"})
    path = f"{place}/{CLAIMS}/c3"
    assert NodeClaim.from_json(api.patch(path, {"spec": {"deadlineAt": None}})).spec.deadline_at is None
    later = api.patch(path, {"spec": {"deadlineAt": "2026-03-04T10:53:15Z"}})
    assert later["spec"]["deadlineAt"] == "2026-03-04T10:53:15Z"


def test_the_escape_hatch_for_spent_shutdown_attempts_is_admitted(api, place, stored):
    stored(CLAIMS, "c4")
    path = f"{place}/{CLAIMS}/c4/status"
    api.patch(path, {"status": {"shutdownAttempts": 3, "lastShutdownAttemptAt": "2026-03-04T10:53:15Z"}})
    freed = api.patch(path, {"status": {"shutdownAttempts": 0, "lastShutdownAttemptAt": None}})
    assert NodeClaim.from_json(freed).status.shutdown_attempts == 0
    assert NodeClaim.from_json(freed).status.last_shutdown_attempt_at is None


def test_a_status_of_a_create_is_dropped_so_that_a_claim_begins_pending(api, place, stored):
    stored(CLAIMS, "c5")
    assert "status" not in api.get(f"{place}/{CLAIMS}/c5")


@pytest.mark.parametrize("status", [{"phase": "running"}, {"reason": "Because"}, {"shutdownAttempts": -1}])
def test_a_status_that_no_manager_could_read_is_refused(api, place, stored, status):
    stored(CLAIMS, "c6")
    with pytest.raises(ApiStatusError) as refused:
        api.patch(f"{place}/{CLAIMS}/c6/status", {"status": status})
    assert f"status.{next(iter(status))}" in str(refused.value)


def test_a_misspelt_field_is_named(api, place):
    wrong = body(NODES, "w4")
    wrong["spec"]["kubernetesNodename"] = "w4"
    with pytest.raises(ApiStatusError) as refused:
        api.create(f"{place}/{NODES}", wrong, fieldValidation="Strict")
    assert 'unknown field "spec.kubernetesNodename"' in str(refused.value)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_samples_are_admitted_without_a_field_that_nobody_knows(api, place, path):
    plurals = {kind.resource.kind: plural for plural, kind in KINDS.items()}
    documents = [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one["kind"] in plurals]
    for document in documents:
        created = api.create(f"{place}/{plurals[document['kind']]}", document, dryRun="All", fieldValidation="Strict")
        assert created["spec"].items() >= {k: v for k, v in document["spec"].items() if not isinstance(v, dict)}.items()
