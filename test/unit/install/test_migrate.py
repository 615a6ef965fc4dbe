"""From v1alpha1 to v2alpha1: nothing is carried over that would power a machine, and nothing is dropped unsaid."""

import pytest

from homelab_autoscaler.install.migrate import OLD_VERSION, migrated

POD = {"image": "curlimages/curl:8.17.0", "command": ["/bin/sh"], "args": ["-c", "curl http://bmc/start"]}


def old_node(metadata=None, **spec):
    metadata = {"name": "pc-1", "labels": {"group": "rack"}} if metadata is None else metadata
    spec = {"kubernetesNodeName": "pc-1", "startupPodSpec": POD, "shutdownPodSpec": POD} | spec
    return {"apiVersion": OLD_VERSION, "kind": "Node", "metadata": metadata, "spec": spec}


def old_group(**spec):
    return {"apiVersion": OLD_VERSION, "kind": "Group", "metadata": {"name": "rack"}, "spec": spec}


def told(result):
    return "\n".join(result.notes)


@pytest.mark.parametrize("value", ["on", True, "true"])
def test_a_wish_for_power_is_not_carried_over_and_told_with_what_to_do_instead(value):
    result = migrated(old_node(powerState=value))
    assert "powerState" not in result.body["spec"]
    assert "homelab-autoscaler claim pc-1" in told(result)


@pytest.mark.parametrize("value", ["off", False])
def test_a_wish_to_be_off_needs_nothing_instead(value):
    result = migrated(old_node(powerState=value))
    assert "powerState" not in result.body["spec"]
    assert "a machine is off while no NodeClaim names its slot" in told(result)


def test_a_slot_keeps_its_scripts_its_prices_and_its_pool_under_the_new_label():
    result = migrated(old_node(pricing={"hourlyRate": "1.5", "podRate": "0.0"}))
    assert result.body == {
        "apiVersion": "infra.homecluster.dev/v2alpha1",
        "kind": "Node",
        "metadata": {"name": "pc-1", "labels": {"infra.homecluster.dev/group": "rack"}},
        "spec": {
            "kubernetesNodeName": "pc-1",
            "startupPodSpec": POD,
            "shutdownPodSpec": POD,
            "pricing": {"hourlyRate": "1.5", "podRate": "0.0"},
        },
    }


def test_a_new_label_that_is_there_already_wins_over_the_old_one():
    labels = {"group": "old", "infra.homecluster.dev/group": "new", "room": "cellar"}
    result = migrated(old_node({"name": "pc-1", "labels": labels}))
    assert result.body["metadata"]["labels"] == {"infra.homecluster.dev/group": "new", "room": "cellar"}
    assert 'label "group: old" is left out' in told(result)


def test_a_slot_without_a_pool_is_told():
    assert "no label says which pool" in told(migrated(old_node({"name": "pc-1"})))


def test_what_a_server_and_the_old_operator_wrote_is_left_out():
    body = old_node(
        {
            "name": "pc-1",
            "namespace": "lab",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "finalizers": ["old/one"],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "owner": "me"},
            "labels": {"group": "rack"},
        }
    ) | {"status": {"progress": "ready", "powerState": "on"}}
    result = migrated(body)
    assert result.body["metadata"] == {
        "name": "pc-1",
        "namespace": "lab",
        "annotations": {"owner": "me"},
        "labels": {"infra.homecluster.dev/group": "rack"},
    }
    assert "status" not in result.body
    assert "metadata.finalizers is left out" in told(result)
    assert "status is left out" in told(result)


def test_fields_that_are_no_more_are_left_out_one_by_one_and_silent_values_without_a_word():
    pod = POD | {
        "restartPolicy": "Never",
        "serviceAccount": "power",
        "volumes": [{"name": "bmc", "mountPath": "/bmc", "secretName": "bmc", "configMapName": "", "subPath": "x"}],
    }
    result = migrated(old_node(startupPodSpec=pod, rack=3))
    kept = result.body["spec"]["startupPodSpec"]
    assert kept == POD | {
        "serviceAccount": "power",
        "volumes": [{"name": "bmc", "mountPath": "/bmc", "secretName": "bmc"}],
    }
    text = told(result)
    for part in ("spec.rack ", "spec.startupPodSpec.restartPolicy ", "spec.startupPodSpec.volumes[0].subPath "):
        assert f"{part}is left out" in text
    assert 'spec.startupPodSpec.serviceAccount "power" is kept' in text
    assert "configMapName" not in text


def test_a_group_keeps_its_options_and_switches_nothing_off_on_the_first_day():
    result = migrated(
        old_group(
            name="rack",
            maxSize=4,
            nodeSelector={"disk": "ssd"},
            scaleDownUtilizationThreshold="0.5",
            scaleDownGpuUtilizationThreshold="",
            scaleDownUnneededTime="10m",
            maxNodeProvisionTime=None,
            zeroOrMaxNodeScaling=False,
        )
    )
    assert result.body["spec"] == {
        "maxSize": 4,
        "scaleDownUtilizationThreshold": "0.5",
        "scaleDownUnneededTime": "10m",
        "zeroOrMaxNodeScaling": False,
        "adoptRunningMachines": True,
    }
    text = told(result)
    assert "spec.nodeSelector is left out" in text
    assert "adoptRunningMachines is set" in text
    assert "scaling options are kept" in text
    assert "spec.name" not in text


def test_a_pool_that_was_called_otherwise_is_told():
    assert 'spec.name "garage" is left out: the pool is called "rack"' in told(migrated(old_group(name="garage")))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"apiVersion": "v1", "kind": "Node"}, "v1 Node is no Group or Node of infra.homecluster.dev/v1alpha1"),
        ({"apiVersion": OLD_VERSION, "kind": "Rack"}, "Rack is no Group or Node"),
        (old_node({}), "metadata.name is missing"),
        (old_node({"name": 7}), "metadata.name is missing"),
        (old_node() | {"spec": ["x"]}, "spec is no mapping"),
        (old_node(startupPodSpec="curl"), "startupPodSpec is no mapping"),
        (old_node(startupPodSpec=POD | {"volumes": ["x"]}), r"volumes\[0\] is no mapping"),
    ],
)
def test_what_cannot_be_migrated_is_refused_by_name(body, says):
    with pytest.raises(ValueError, match=says):
        migrated(body)
