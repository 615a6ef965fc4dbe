"""The wire contract: committed code matches proto/, and bytes are what every release of the autoscaler reads."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from homelab_autoscaler.provider.pb import corenode_pb2 as node_pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]
SERVICE = pb.DESCRIPTOR.services_by_name["CloudProvider"]


def test_the_committed_code_is_what_the_proto_files_generate():
    command = [sys.executable, "hack/generate_proto.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_service_has_its_name_and_all_fifteen_calls():
    assert SERVICE.full_name == "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
    assert {method.name: (method.input_type.name, method.output_type.name) for method in SERVICE.methods} == {
        **{
            name: (f"{name}Request", f"{name}Response")
            for name in (
                "NodeGroups",
                "NodeGroupForNode",
                "PricingNodePrice",
                "PricingPodPrice",
                "GPULabel",
                "GetAvailableGPUTypes",
                "Cleanup",
                "Refresh",
                "NodeGroupTargetSize",
                "NodeGroupIncreaseSize",
                "NodeGroupDeleteNodes",
                "NodeGroupDecreaseTargetSize",
                "NodeGroupNodes",
                "NodeGroupTemplateNodeInfo",
            )
        },
        "NodeGroupGetOptions": ("NodeGroupAutoscalingOptionsRequest", "NodeGroupAutoscalingOptionsResponse"),
    }


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (pb.NodeGroup, {"id": 1, "minSize": 2, "maxSize": 3, "debug": 4}),
        (pb.ExternalGrpcNode, {"providerID": 1, "name": 2, "labels": 3, "annotations": 4}),
        (pb.NodeGroupIncreaseSizeRequest, {"delta": 1, "id": 2}),
        (pb.NodeGroupDeleteNodesRequest, {"nodes": 1, "id": 2}),
        (pb.NodeGroupDecreaseTargetSizeRequest, {"delta": 1, "id": 2}),
        (pb.Instance, {"id": 1, "status": 2}),
        (pb.InstanceStatus, {"instanceState": 1, "errorInfo": 2}),
        (pb.InstanceErrorInfo, {"errorCode": 1, "errorMessage": 2, "instanceErrorClass": 3}),
        (pb.NodeGroupTemplateNodeInfoResponse, {"nodeInfo": 1, "nodeBytes": 2}),
        (
            pb.PricingNodePriceRequest,
            {"node": 1, "startTime": 2, "endTime": 3, "startTimestamp": 4, "endTimestamp": 5},
        ),
        (
            pb.PricingPodPriceRequest,
            {"pod": 1, "startTime": 2, "endTime": 3, "pod_bytes": 4, "startTimestamp": 5, "endTimestamp": 6},
        ),
        (
            pb.NodeGroupAutoscalingOptions,
            {
                "scaleDownUtilizationThreshold": 1,
                "scaleDownGpuUtilizationThreshold": 2,
                "scaleDownUnneededTime": 3,
                "scaleDownUnreadyTime": 4,
                "MaxNodeProvisionTime": 5,
                "zeroOrMaxNodeScaling": 6,
                "ignoreDaemonSetsUtilization": 7,
                "scaleDownUnneededDuration": 8,
                "scaleDownUnreadyDuration": 9,
                "MaxNodeProvisionDuration": 10,
            },
        ),
    ],
)
def test_field_numbers_are_the_contracts(message, fields):
    assert {field.name: field.number for field in message.DESCRIPTOR.fields} == fields


def test_instance_states_have_the_contracts_numbers():
    states = pb.InstanceStatus.DESCRIPTOR.enum_types_by_name["InstanceState"]
    assert {value.name: value.number for value in states.values} == {
        "unspecified": 0,
        "instanceRunning": 1,
        "instanceCreating": 2,
        "instanceDeleting": 3,
    }


def test_the_old_form_of_an_instant_has_the_bytes_of_a_timestamp():
    old = pb.LegacyTime(seconds=1_700_000_000, nanos=5)
    assert old.SerializeToString() == Timestamp(seconds=1_700_000_000, nanos=5).SerializeToString()


def test_the_old_form_of_a_span_counts_nanoseconds_and_is_no_well_known_duration():
    old = pb.LegacyDuration(duration=90_000_000_000)
    assert old.SerializeToString() == bytes.fromhex("08 80 88 ac a3 cf 02")
    assert old.SerializeToString() != Duration(seconds=90).SerializeToString()


def test_a_node_has_the_bytes_that_kubernetes_decodes():
    node = node_pb.Node(
        metadata=node_pb.ObjectMeta(name="n", labels={"a": "b"}),
        spec=node_pb.NodeSpec(providerID="p", taints=[node_pb.Taint(key="k", value="v", effect="NoSchedule")]),
        status=node_pb.NodeStatus(
            capacity={"cpu": node_pb.Quantity(string="4")},
            allocatable={"pods": node_pb.Quantity(string="110")},
            conditions=[node_pb.NodeCondition(type="Ready", status="True")],
            nodeInfo=node_pb.NodeSystemInfo(operatingSystem="linux", architecture="amd64"),
        ),
    )
    assert node.SerializeToString(deterministic=True).hex(" ") == (
        "0a 0b 0a 01 6e 5a 06 0a 01 61 12 01 62 "  # metadata{name=1, labels=11}
        "12 17 1a 01 70 2a 12 0a 01 6b 12 01 76 1a 0a 4e 6f 53 63 68 65 64 75 6c 65 "  # spec{providerID=3, taints=5}
        "1a 3a 0a 0a 0a 03 63 70 75 12 03 0a 01 34 "  # status{capacity=1: a Quantity is a message
        "12 0d 0a 04 70 6f 64 73 12 05 0a 03 31 31 30 "  # allocatable=2
        "22 0d 0a 05 52 65 61 64 79 12 04 54 72 75 65 "  # conditions=4
        "3a 0e 4a 05 6c 69 6e 75 78 52 05 61 6d 64 36 34"  # nodeInfo=7 {operatingSystem=9, architecture=10}
    )


def test_node_bytes_have_no_envelope():
    assert not node_pb.Node(metadata=node_pb.ObjectMeta(name="n")).SerializeToString().startswith(b"k8s\0")


def test_unknown_fields_of_newer_releases_are_skipped():
    newer = pb.NodeGroupTargetSizeRequest(id="lab").SerializeToString() + b"\xfa\x01\x03new"
    assert pb.NodeGroupTargetSizeRequest.FromString(newer).id == "lab"
