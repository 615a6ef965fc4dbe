import pytest

from homelab_autoscaler.pod_policy import PodPolicy
from homelab_autoscaler.runtime.webhook import AdmissionRequest
from homelab_autoscaler.webhook.claims import NO_DEADLINE, ClaimAdmission
from homelab_autoscaler.webhook.slots import GroupAdmission, SlotAdmission

MANAGER = "system:serviceaccount:homelab-autoscaler-system:homelab-autoscaler"


def review(obj, operation="CREATE", old=None, user="alice", subresource=""):
    return AdmissionRequest(
        uid="1",
        operation=operation,
        namespace="lab",
        name=obj.name if obj else old.name,
        user=user,
        subresource=subresource,
        object=obj.to_json() if obj else None,
        old_object=old.to_json() if old else None,
    )


def claim_admission(make, *claims, slot=True):
    return ClaimAdmission(lambda ns, n: make.slot(n) if slot else None, lambda ns, n: claims, MANAGER)


def causes(decision):
    return {cause.path: cause.message for cause in decision.causes}


def test_a_second_live_claim_is_refused_and_the_message_names_slot_claim_and_phase(make):
    decision = claim_admission(make, make.claim("worker-01-7f4b9c", phase="booting"))(review(make.claim("second")))
    assert not decision.allowed
    assert causes(decision)["spec.slotRef"] == (
        'Forbidden: slot "worker-01" already has the live NodeClaim "worker-01-7f4b9c" in phase "booting": '
        "one live claim per slot"
    )


def test_an_ended_claim_frees_its_slot(make):
    ended = make.claim("old", phase="failed", reason="DeadlineExceeded", committed=True)
    assert claim_admission(make, ended)(review(make.claim("next"))).allowed


@pytest.mark.parametrize(("operation", "subresource"), [("DELETE", ""), ("UPDATE", "status"), ("UPDATE", "")])
def test_deletes_status_writes_and_updates_are_never_refused(make, operation, subresource):
    admission = claim_admission(make, make.claim("other", phase="ready"), slot=False)
    old = make.claim("mine", phase="ready")
    new = None if operation == "DELETE" else make.claim("mine", phase="failed")
    assert admission(review(new, operation, old, subresource=subresource)).allowed


def test_a_claim_for_a_missing_slot_is_refused_by_name(make):
    decision = claim_admission(make, slot=False)(review(make.claim(slot="worker-99")))
    assert causes(decision) == {"spec.slotRef": 'Not found: "worker-99" is no slot in namespace "lab"'}


def test_only_the_manager_adopts(make):
    adopt = make.claim(call="Adopt")
    assert "Adopt" in causes(claim_admission(make)(review(adopt)))["spec.call"]
    assert claim_admission(make)(review(adopt, user=MANAGER)).allowed


def test_a_claim_without_a_deadline_is_allowed_with_a_warning(make):
    assert list(claim_admission(make)(review(make.claim())).warnings) == [NO_DEADLINE]
    dated = make.claim(spec={"deadlineAt": "2026-03-04T09:50:25Z"})
    assert not claim_admission(make)(review(dated)).warnings


def slot_admission(make, slots=(), claims=(), policy=None, *, group=True):
    return SlotAdmission(lambda ns, n: group, lambda node: slots, lambda ns, n: claims, policy or PodPolicy())


def test_two_slots_cannot_name_one_node(make):
    other = make.slot("worker-02", spec={"kubernetesNodeName": "node-worker-01"})
    decision = slot_admission(make, slots=[other])(review(make.slot()))
    assert causes(decision)["spec.kubernetesNodeName"] == (
        'Duplicate value: "node-worker-01" belongs to slot lab/worker-02: one slot per node'
    )


def test_the_node_name_is_fixed_while_a_claim_is_live(make):
    renamed = make.slot(spec={"kubernetesNodeName": "node-new"})
    live = slot_admission(make, claims=[make.claim(phase="ready")])(review(renamed, "UPDATE", make.slot()))
    assert "end the claim first" in causes(live)["spec.kubernetesNodeName"]
    ended = slot_admission(make, claims=[make.claim(phase="failed")])(review(renamed, "UPDATE", make.slot()))
    assert ended.allowed


def test_an_unknown_group_is_a_warning_since_slots_may_come_first(make):
    decision = slot_admission(make, group=False)(review(make.slot()))
    assert decision.allowed
    assert 'Group "pool" is not in namespace "lab" yet' in decision.warnings[0]


POLICY = PodPolicy(
    forbidden_service_accounts=frozenset({"homelab-autoscaler"}),
    forbidden_secrets=frozenset({"grpc-ca"}),
    secrets=("bmc-*",),
    images=("registry.lab/power:*", "local"),
)


@pytest.mark.parametrize(
    ("pod", "path", "text"),
    [
        ({"serviceAccount": "homelab-autoscaler"}, "spec.startupPodSpec.serviceAccount", "manager's own"),
        ({"image": "evil"}, "spec.startupPodSpec.image", 'use one of "registry.lab/power:*"'),
        (
            {"volumes": [{"name": "v", "mountPath": "/v", "secretName": "grpc-ca"}]},
            "spec.startupPodSpec.volumes[0].secretName",
            "belongs to the manager",
        ),
        (
            {"volumes": [{"name": "v", "mountPath": "/v", "secretName": "other"}]},
            "spec.startupPodSpec.volumes[0].secretName",
            'use one of "bmc-*"',
        ),
    ],
)
def test_a_slot_cannot_name_what_would_give_it_the_managers_rights(make, pod, path, text):
    slot = make.slot(spec={"startupPodSpec": {"image": "local", **pod}, "shutdownPodSpec": {"image": "local"}})
    decision = slot_admission(make, policy=POLICY)(review(slot))
    assert text in causes(decision)[path]


def test_a_slot_from_before_a_policy_stays_editable(make):
    old = make.slot(spec={"startupPodSpec": {"image": "old"}, "shutdownPodSpec": {"image": "local"}})
    new = make.slot(spec={"startupPodSpec": {"image": "old"}, "shutdownPodSpec": {"image": "local"}, "paused": True})
    assert slot_admission(make, policy=POLICY)(review(new, "UPDATE", old)).allowed


def test_a_slot_that_is_being_deleted_is_never_refused(make):
    other = make.slot("worker-02", spec={"kubernetesNodeName": "node-worker-01"})
    leaving = make.slot(metadata={"deletionTimestamp": "2026-03-04T09:00:00Z"})
    assert slot_admission(make, slots=[other])(review(leaving, "UPDATE", make.slot())).allowed


def test_a_minimum_that_cannot_be_reached_is_a_warning(make):
    decision = GroupAdmission(lambda ns, n: [make.slot()])(review(make.group(minSize=3)))
    assert decision.allowed
    assert "spec.minSize is 3, but the pool has 1 slots" in decision.warnings[0]
