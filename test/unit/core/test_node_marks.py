from homelab_api import names
from homelab_autoscaler.lifecycle.node_marks import drain_patch, identity_patch, ready_patch, undrain_patch

READY_LABELS = {names.LABEL_GROUP: "pool", names.LABEL_NODE: "worker-01"}


def test_a_drain_cordons_and_taints_and_says_whose_cordon_it_is(make):
    patch = drain_patch(make.node(), make.now)
    assert patch["spec"]["unschedulable"] is True
    assert patch["metadata"]["annotations"] == {names.ANNOTATION_CORDONED_BY: "drain"}
    assert patch["spec"]["taints"] == [
        {"key": names.TAINT_DRAINING, "effect": "NoSchedule", "timeAdded": "2026-03-04T09:38:15Z"}
    ]


def test_a_cordon_that_was_there_before_is_not_marked_as_ours(make):
    patch = drain_patch(make.node(cordoned=True), make.now)
    assert "metadata" not in patch
    assert "unschedulable" not in patch["spec"]


def test_a_drain_that_runs_already_writes_nothing(make):
    ours = {"key": names.TAINT_DRAINING, "effect": "NoSchedule", "timeAdded": "2026-03-04T09:00:00Z"}
    node = make.node(cordoned=True, taints=[ours], annotations={names.ANNOTATION_CORDONED_BY: "drain"})
    assert drain_patch(node, make.now) == {}


def test_taking_a_drain_back_leaves_the_marks_of_others(make):
    foreign = {"key": "example.com/maintenance", "effect": "NoSchedule"}
    ours = {"key": names.TAINT_DRAINING, "effect": "NoSchedule"}
    node = make.node(cordoned=True, taints=[foreign, ours])
    assert undrain_patch(node) == {"spec": {"taints": [foreign]}}
    marked = make.node(cordoned=True, taints=[foreign, ours], annotations={names.ANNOTATION_CORDONED_BY: "drain"})
    assert undrain_patch(marked)["spec"] == {"unschedulable": None, "taints": [foreign]}


def test_a_booted_node_gets_its_pools_labels_and_taints_and_loses_the_autoscalers(make):
    group = make.group(nodeLabels={"tier": "lab"}, nodeTaints=[{"key": "lab", "effect": "NoSchedule"}])
    slot = make.slot(spec={"taintsToRemove": [{"key": "boot", "effect": "NoSchedule"}]})
    node = make.node(
        cordoned=True,
        taints=[
            {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
            {"key": "boot", "effect": "NoSchedule"},
            {"key": "keep", "effect": "NoExecute"},
        ],
        annotations={names.ANNOTATION_CORDONED_BY: "drain"},
    )
    patch = ready_patch(node, slot, group, make.claim(phase="booting"))
    assert patch["metadata"]["labels"] == {"tier": "lab", **READY_LABELS}
    assert patch["metadata"]["annotations"] == {names.ANNOTATION_CORDONED_BY: None}
    assert patch["spec"]["unschedulable"] is None
    assert patch["spec"]["taints"] == [
        {"key": "keep", "effect": "NoExecute"},
        {"key": "lab", "effect": "NoSchedule"},
    ]


def test_a_machine_claimed_by_hand_is_protected_from_the_autoscaler(make):
    patch = ready_patch(make.node(labels=READY_LABELS), make.slot(), make.group(), make.claim(call="Manual"))
    assert patch == {"metadata": {"annotations": {names.ANNOTATION_SCALE_DOWN_DISABLED: "true"}}}


def test_a_node_that_is_all_it_should_be_is_not_written(make):
    assert ready_patch(make.node(labels=READY_LABELS), make.slot(), make.group(), make.claim()) == {}


def test_a_foreign_cordon_is_never_lifted(make):
    patch = ready_patch(make.node(cordoned=True, labels=READY_LABELS), make.slot(), make.group(), make.claim())
    assert patch == {}


def test_a_provider_id_is_stamped_only_where_there_is_none(make):
    bare = identity_patch(make.node(labels=READY_LABELS), make.slot(), make.group(), "homelab://lab/worker-01/u")
    assert bare == {"spec": {"providerID": "homelab://lab/worker-01/u"}}
    node = make.node(labels=READY_LABELS)
    known = node.model_copy(update={"spec": node.spec.model_copy(update={"provider_id": "k3s://node-worker-01"})})
    assert identity_patch(known, make.slot(), make.group(), "homelab://x") == {}


def test_a_draining_taint_with_a_time_ahead_of_now_is_written_anew(make):
    now = make.now
    node = make.node(
        cordoned=True,
        taints=[{"key": names.TAINT_DRAINING, "effect": "NoSchedule", "timeAdded": "2036-03-01T00:00:00Z"}],
    )
    (taint,) = drain_patch(node, now)["spec"]["taints"]
    assert taint["timeAdded"] == "2026-03-04T09:38:15Z"
