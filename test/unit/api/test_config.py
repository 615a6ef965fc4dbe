"""config/: what people apply is complete and says what the samples promise."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from homelab_api import names
from homelab_api.crd import definitions
from homelab_api.v2alpha1 import Call, Group, Node, NodeClaim
from homelab_autoscaler.settings import Settings

CONFIG = Path(__file__).resolve().parents[3] / "config"


def documents(path):
    return list(yaml.safe_load_all((CONFIG / path).read_text(encoding="utf-8")))


def samples(kind):
    found = [
        body
        for path in sorted((CONFIG / "samples").glob("*.yaml"))
        for body in documents(path)
        if body["kind"] == kind.resource.kind and body["apiVersion"] == kind.resource.api_version
    ]
    return [kind.from_json(body) for body in found]


def test_the_kustomization_of_the_crds_lists_every_one():
    (body,) = documents("crd/kustomization.yaml")
    assert body["resources"] == [f"bases/{path.name}" for path in sorted((CONFIG / "crd" / "bases").glob("*.yaml"))]
    assert len(body["resources"]) == len(definitions())


def test_the_kustomization_of_the_samples_switches_nothing_on():
    (body,) = documents("samples/kustomization.yaml")
    kinds = {document["kind"] for name in body["resources"] for document in documents(f"samples/{name}")}
    assert kinds == {"Group", "Node"}


def test_the_sample_pool_adopts_machines_that_run_and_says_why():
    (group,) = samples(Group)
    assert group.spec.adopt_running_machines
    text = (CONFIG / "samples" / "group.yaml").read_text(encoding="utf-8")
    before = text[: text.index("adoptRunningMachines")].splitlines()[-6:]
    assert sum(line.strip().startswith("#") for line in before) >= 4


def test_the_sample_slots_belong_to_the_sample_pool():
    (group,) = samples(Group)
    slots = samples(Node)
    assert len(slots) == 3
    assert {slot.group for slot in slots} == {group.name}
    assert len({slot.spec.kubernetes_node_name for slot in slots}) == 3
    assert group.spec.max_size == len(slots)


def test_the_sample_claim_names_a_sample_slot_and_has_a_deadline_to_come():
    (claim,) = samples(NodeClaim)
    slot = next(slot for slot in samples(Node) if slot.name == claim.slot_name)
    assert claim.spec.call is Call.MANUAL
    assert claim.spec.group == slot.group
    assert claim.metadata.labels == {names.LABEL_GROUP: slot.group, names.LABEL_NODE: slot.name}
    budget = timedelta(seconds=Settings.model_construct().boot_budget)
    assert claim.spec.deadline_at - budget > datetime(2030, 1, 1, tzinfo=UTC)


def test_no_sample_carries_a_secret():
    for slot in samples(Node):
        for pod in (slot.spec.startup_pod_spec, slot.spec.shutdown_pod_spec):
            assert not pod.env
            assert [volume.secret_name for volume in pod.volumes] == [f"bmc-{slot.name}"]
