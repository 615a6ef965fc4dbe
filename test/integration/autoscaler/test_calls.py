"""Contract section 3: when the autoscaler calls what, and what an answer or an error leads to."""

import threading

import grpc
import pytest

from homelab_api.v2alpha1 import Group, NodeClaim
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.runtime.errors import TransportError
from homelab_autoscaler.sandbox.autoscaler.cloud import CallError
from homelab_autoscaler.sandbox.autoscaler.generation import Generation

ALL_CALLS = {
    "Refresh": pb.RefreshRequest(),
    "NodeGroups": pb.NodeGroupsRequest(),
    "NodeGroupForNode": pb.NodeGroupForNodeRequest(node=pb.ExternalGrpcNode(name="x")),
    "NodeGroupTargetSize": pb.NodeGroupTargetSizeRequest(id="lab"),
    "NodeGroupNodes": pb.NodeGroupNodesRequest(id="lab"),
    "NodeGroupTemplateNodeInfo": pb.NodeGroupTemplateNodeInfoRequest(id="lab"),
    "NodeGroupIncreaseSize": pb.NodeGroupIncreaseSizeRequest(id="lab", delta=1),
    "NodeGroupDecreaseTargetSize": pb.NodeGroupDecreaseTargetSizeRequest(id="lab", delta=-1),
    "NodeGroupDeleteNodes": pb.NodeGroupDeleteNodesRequest(id="lab"),
    "GPULabel": pb.GPULabelRequest(),
    "GetAvailableGPUTypes": pb.GetAvailableGPUTypesRequest(),
    "Cleanup": pb.CleanupRequest(),
}


def first(day, *methods):
    """Positions of the first calls of these methods."""
    names = [call.method for call in day.calls()]
    return [names.index(method) for method in methods]


@pytest.mark.parametrize("method", sorted(set(ALL_CALLS) - {"Refresh"}))
def test_every_call_works_before_the_first_refresh(day, method):
    day.group(slots=2)
    if method == "NodeGroupDecreaseTargetSize":
        day.cloud.increase("lab", 1)
    getattr(day.cloud._stub, method)(ALL_CALLS[method], timeout=5)


@pytest.mark.parametrize("method", ["PricingNodePrice", "PricingPodPrice", "NodeGroupGetOptions"])
def test_the_optional_calls_are_unimplemented_unless_configured(day, method):
    day.group(slots=1)
    requests = {
        "PricingNodePrice": pb.PricingNodePriceRequest(
            node=pb.ExternalGrpcNode(name="t", labels={"infra.homecluster.dev/group": "lab"})
        ),
        "PricingPodPrice": pb.PricingPodPriceRequest(),
        "NodeGroupGetOptions": pb.NodeGroupAutoscalingOptionsRequest(id="lab"),
    }
    request = requests[method]
    if method != "NodeGroupGetOptions":
        request.startTimestamp.FromSeconds(0)
        request.endTimestamp.FromSeconds(3600)
    with pytest.raises(grpc.RpcError) as caught:
        getattr(day.cloud._stub, method)(request, timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_one_loop_makes_its_calls_in_the_documented_order(day):
    day.group(slots=2)
    day.pod()
    day.tick(loops=2)
    assert first(day, "GPULabel", "Refresh", "NodeGroupTemplateNodeInfo", "NodeGroupTargetSize") == sorted(
        first(day, "GPULabel", "Refresh", "NodeGroupTemplateNodeInfo", "NodeGroupTargetSize")
    )
    increase = first(day, "NodeGroupIncreaseSize")[0]
    assert day.calls()[increase + 1].method == "NodeGroupTargetSize"


def test_the_target_read_right_after_an_increase_has_grown(day):
    day.group(slots=2)
    before = day.cloud.target_size("lab")
    day.cloud.increase("lab", 2)
    assert day.cloud.target_size("lab") == before + 2


def test_an_unreadable_backend_shows_in_refresh_and_the_loop_ends_there(day):
    day.group(slots=1)
    day.pod()
    day.tick()
    day.store.faults.append(Fault(TransportError("refused"), verb="list", kind=Group, times=2))
    made = len(day.calls())
    day.tick(loops=2)
    later = day.calls()[made:]
    assert [call.code for call in later if call.method == "Refresh"] == ["UNAVAILABLE", "UNAVAILABLE"]
    assert not [call for call in later if call.method in {"NodeGroupIncreaseSize", "NodeGroupNodes"}]
    assert all(call.code == "OK" for call in later if call.method == "NodeGroups")
    day.until(day.wanted)


def test_a_node_of_nobody_is_asked_about_again_and_again_and_answers_none(day):
    day.group(slots=1)
    day.node("control-plane", provider_id="k3s://control-plane")
    day.tick(loops=3)
    asked = [call for call in day.calls("NodeGroupForNode") if call.about == "control-plane"]
    assert len(asked) > 3
    assert {call.code for call in asked} == {"OK"}
    assert day.journal("NodeSkipped") == []


def test_the_gpu_label_is_asked_once_and_cached_for_ever(day):
    day.group(slots=1)
    day.tick(loops=5)
    assert len(day.calls("GPULabel")) == 1


def test_a_stopping_autoscaler_touches_no_machine(day):
    day.group(slots=1)
    day.pod()
    day.until(day.running)
    day.cloud.cleanup()
    assert day.wanted() == ["lab-0"]


def test_the_price_expander_takes_the_cheaper_group(day):
    day.group("dear")
    day.slot("d", "dear", pricing={"hourlyRate": "0.9", "podRate": "0.1"})
    day.group("cheap")
    day.slot("c", "cheap", pricing={"hourlyRate": "0.1", "podRate": "0.1"})
    day.restart_autoscaler(expander="price")
    day.pod()
    day.until(day.wanted)
    assert day.wanted() == ["c"]


@pytest.mark.parametrize("generation", [Generation.V1_33, Generation.V1_36])
def test_prices_are_understood_in_both_forms_of_the_period(day, generation):
    day.group()
    day.slot("a", pricing={"hourlyRate": "0.5", "podRate": "0.25"})
    day.restart_autoscaler(generation=generation)
    template = day.cloud.template("lab")
    assert day.cloud.node_price(template, 1_700_000_000, 7200) == pytest.approx(1.0)
    assert day.cloud.pod_price(1_700_000_000, 7200) == pytest.approx(0.5)


def test_a_refused_increase_backs_the_group_off_and_names_the_cause(day):
    day.group(slots=1, maxSize=1)
    slot = day.slot("lab-1")
    day.pod()
    # Somebody else takes a machine between NodeGroups and IncreaseSize.
    day.store.faults.append(
        Fault(
            verb="list",
            kind=NodeClaim,
            meanwhile=lambda: day.store.put(
                NodeClaim.from_json(
                    {
                        "metadata": {"name": "by-hand", "namespace": "pool"},
                        "spec": {"slotRef": {"name": slot.name}, "call": "Manual", "group": "lab"},
                    }
                )
            ),
        )
    )
    day.tick()
    (failed,) = day.journal("FailedToScaleUp")
    assert "lab" in failed.text
    assert "maxSize is 1" in failed.text
    assert day.autoscaler.memory.backed_off("lab", day.clock.monotonic())


def test_an_error_text_names_the_group(day):
    with pytest.raises(CallError, match='"nowhere"'):
        day.cloud.target_size("nowhere")


def test_an_increase_whose_answer_comes_too_late_leaves_nothing_behind(day):
    day.group(slots=2)
    never = threading.Event()
    day.store.faults.append(Fault(verb="create", kind=NodeClaim, meanwhile=lambda: never.wait(0.5)))
    with pytest.raises(grpc.RpcError) as caught:
        day.cloud._stub.NodeGroupIncreaseSize(pb.NodeGroupIncreaseSizeRequest(id="lab", delta=1), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    day.cloud.increase("lab", 2)  # waits for the group's lock, so the late call is over
    assert day.cloud.target_size("lab") == 2
    assert len(day.claims()) == 2
