"""The autoscaler's side towards the provider: calls, deadlines, caches, and where the real one would crash.

Source of the rules: what is known of the real client (the contract notes' sections 3 and 4). An answer that ends the
real process raises `CrashError` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import grpc

from homelab_autoscaler.provider.pb import corenode_pb2 as node_pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions

FAKE_NODE_REASON: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
_NANOSECONDS: Final = 1e9


class CrashError(Exception):
    """The real autoscaler's process would have ended here."""


class CallError(Exception):
    """A call that was answered with anything but OK; the autoscaler tells codes apart in four places only.

    Attributes:
        method: the call.
        code: its status.
        text: what the provider said.
    """

    def __init__(self, method: str, code: grpc.StatusCode, text: str) -> None:
        super().__init__(f"{method}: {code.name}: {text}")
        self.method = method
        self.code = code
        self.text = text

    @property
    def unimplemented(self) -> bool:
        """Only pricing, template and options make this difference."""
        return self.code is grpc.StatusCode.UNIMPLEMENTED


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A group as NodeGroups or NodeGroupForNode gave it."""

    id: str
    min_size: int
    max_size: int


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """An entry of NodeGroupNodes, as the client understands it.

    Attributes:
        id: compared letter by letter with spec.providerID.
        deleting: not expected to register.
        error: code and message of a create error; only with state creating.
        odd: running with an error: neither unregistered nor an error.
    """

    id: str
    deleting: bool = False
    error: tuple[str, str] | None = None
    odd: bool = False


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options that hold for a group, in seconds.

    Attributes:
        startup_time: how long a node may be not ready and still count as starting; 0 once options were returned to a
            release that asks for it per group.
    """

    utilization_threshold: float
    gpu_utilization_threshold: float
    unneeded_time: float
    unready_time: float
    provision_time: float
    startup_time: float
    zero_or_max: bool
    ignore_daemon_sets: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was made: method, the group or node it was about, and its status."""

    method: str
    about: str
    code: str


class Cloud:
    """Calls with the client's caches.

    Args:
        channel: to the provider.
        options: generation and deadline.
    """

    def __init__(self, channel: grpc.Channel, options: AutoscalerOptions) -> None:
        self._stub = pb_grpc.CloudProviderStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._options = options
        self.calls: list[Call] = []
        self._groups: list[NodeGroup] | None = None
        self._group_of: dict[str, NodeGroup] = {}
        self._templates: dict[str, JsonObject | None] = {}
        self._gpu_label: str | None = None
        self._gpu_types: list[str] | None = None

    # --- groups -------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Drop what is cached between two refreshes, then call; an error does not bring it back."""
        self._groups = None
        self._group_of.clear()
        self._templates.clear()
        self._call("Refresh", pb.RefreshRequest())

    def groups(self) -> list[NodeGroup]:
        """Cached until the next refresh; an error is not cached and means no groups at all."""
        if self._groups is None:
            answer = self._call("NodeGroups", pb.NodeGroupsRequest())
            self._groups = [NodeGroup(group.id, group.minSize, group.maxSize) for group in answer.nodeGroups]
        return self._groups

    def group_of(self, node: JsonObject) -> NodeGroup | None:
        """The group of a node; only a group is cached, "none" is asked for again each time."""
        key = f"{objects.name(node)}/{provider_id(node)}"
        if key not in self._group_of:
            request = pb.NodeGroupForNodeRequest(node=_message(node))
            group = self._call("NodeGroupForNode", request, objects.name(node)).nodeGroup
            if not group.id:
                return None
            self._group_of[key] = NodeGroup(group.id, group.minSize, group.maxSize)
        return self._group_of[key]

    def target_size(self, group: str) -> int:
        """Never cached."""
        return int(self._call("NodeGroupTargetSize", pb.NodeGroupTargetSizeRequest(id=group), group).targetSize)

    def instances(self, group: str) -> list[InstanceInfo]:
        """Never cached here."""
        answer = self._call("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group), group)
        return [_instance(instance) for instance in answer.instances]

    def template(self, group: str) -> JsonObject | None:
        """The template node as JSON, None if the provider has none; asked once between two refreshes.

        Raises:
            CrashError: an answer without a node.
            CallError: any other error.
        """
        if group in self._templates:
            return self._templates[group]
        try:
            answer = self._call("NodeGroupTemplateNodeInfo", pb.NodeGroupTemplateNodeInfoRequest(id=group), group)
        except CallError as error:
            if not error.unimplemented:
                raise
            self._templates[group] = None
            return None
        encoded = answer.nodeBytes if self._options.generation.new_fields else answer.nodeInfo
        if not encoded:
            raise CrashError(f"group {group}: the template has no node")
        self._templates[group] = template_json(group, encoded)
        return self._templates[group]

    def group_options(self, group: str) -> GroupOptions:
        """The options of a group; the flags where the provider says nothing. Never cached."""
        flags = self._options
        times = flags.times
        defaults = GroupOptions(
            flags.utilization_threshold,
            flags.gpu_utilization_threshold,
            times.scale_down_unneeded_time,
            times.scale_down_unready_time,
            times.max_node_provision_time,
            times.max_node_startup_time,
            flags.zero_or_max,
            flags.ignore_daemon_sets,
        )
        request = pb.NodeGroupAutoscalingOptionsRequest(id=group, defaults=self._encode(defaults))
        try:
            answer = self._call("NodeGroupGetOptions", request, group)
        except CallError as error:
            if error.unimplemented:
                return defaults
            raise
        if not answer.HasField("nodeGroupAutoscalingOptions"):
            return defaults
        return self._decode(group, answer.nodeGroupAutoscalingOptions)

    # --- scaling ------------------------------------------------------------------------------------------------

    def increase(self, group: str, delta: int) -> None:
        """NodeGroupIncreaseSize."""
        self._call("NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta), group)

    def decrease(self, group: str, delta: int) -> None:
        """NodeGroupDecreaseTargetSize with a negative delta."""
        self._call("NodeGroupDecreaseTargetSize", pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta), group)

    def delete(self, group: str, nodes: Sequence[JsonObject]) -> None:
        """NodeGroupDeleteNodes."""
        request = pb.NodeGroupDeleteNodesRequest(id=group, nodes=[_message(node) for node in nodes])
        self._call("NodeGroupDeleteNodes", request, f"{group}: {','.join(objects.name(node) for node in nodes)}")

    # --- the rest -----------------------------------------------------------------------------------------------

    def gpu_label(self) -> str:
        """Cached for ever once answered; an error counts as "" and is not cached."""
        if self._gpu_label is None:
            try:
                self._gpu_label = str(self._call("GPULabel", pb.GPULabelRequest()).label)
            except CallError:
                return ""
        return self._gpu_label

    def gpu_types(self) -> list[str]:
        """Cached for ever once answered."""
        if self._gpu_types is None:
            try:
                answer = self._call("GetAvailableGPUTypes", pb.GetAvailableGPUTypesRequest())
            except CallError:
                return []
            self._gpu_types = sorted(answer.gpuTypes)
        return self._gpu_types

    def node_price(self, node: JsonObject, start: float, seconds: float) -> float:
        """The price of a node for a period; start is a Unix time."""
        request = pb.PricingNodePriceRequest(node=_message(node))
        self._period(request, start, seconds)
        return float(self._call("PricingNodePrice", request, objects.name(node)).price)

    def pod_price(self, start: float, seconds: float) -> float:
        """The price of a pod for a period."""
        request = pb.PricingPodPriceRequest()
        self._period(request, start, seconds)
        return float(self._call("PricingPodPrice", request).price)

    def cleanup(self) -> None:
        """What a stopping autoscaler says; an error is only logged."""
        self._call("Cleanup", pb.CleanupRequest())

    # --- inside -------------------------------------------------------------------------------------------------

    def _call(self, method: str, request: Message, about: str = "") -> Any:
        try:
            answer = getattr(self._stub, method)(request, timeout=self._options.call_timeout)
        except grpc.RpcError as error:
            code = error.code()
            self.calls.append(Call(method, about, code.name))
            raise CallError(method, code, error.details() or "") from error
        self.calls.append(Call(method, about, "OK"))
        return answer

    def _encode(self, options: GroupOptions) -> pb.NodeGroupAutoscalingOptions:
        message = pb.NodeGroupAutoscalingOptions(
            scaleDownUtilizationThreshold=options.utilization_threshold,
            scaleDownGpuUtilizationThreshold=options.gpu_utilization_threshold,
        )
        spans = (options.unneeded_time, options.unready_time, options.provision_time)
        if self._options.generation.old_fields:
            old = (message.scaleDownUnneededTime, message.scaleDownUnreadyTime, message.MaxNodeProvisionTime)
            for field, seconds in zip(old, spans, strict=True):
                field.duration = int(seconds * _NANOSECONDS)
        if self._options.generation.new_fields:
            new = (
                message.scaleDownUnneededDuration,
                message.scaleDownUnreadyDuration,
                message.MaxNodeProvisionDuration,
            )
            for target, seconds in zip(new, spans, strict=True):
                target.FromTimedelta(timedelta(seconds=seconds))
            message.zeroOrMaxNodeScaling = options.zero_or_max
            message.ignoreDaemonSetsUtilization = options.ignore_daemon_sets
        return message

    def _decode(self, group: str, message: pb.NodeGroupAutoscalingOptions) -> GroupOptions:
        """Every field is taken as it is, zeros included."""
        generation = self._options.generation
        startup = 0.0 if generation.startup_time_by_group else self._options.times.max_node_startup_time
        return GroupOptions(
            message.scaleDownUtilizationThreshold,
            message.scaleDownGpuUtilizationThreshold,
            self._span(group, message, "scaleDownUnneededDuration", "scaleDownUnneededTime"),
            self._span(group, message, "scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
            self._span(group, message, "MaxNodeProvisionDuration", "MaxNodeProvisionTime"),
            startup,
            message.zeroOrMaxNodeScaling,
            message.ignoreDaemonSetsUtilization,
        )

    def _span(self, group: str, message: pb.NodeGroupAutoscalingOptions, new: Any, old: Any) -> float:
        generation = self._options.generation
        if generation.new_fields and message.HasField(new):
            return float(getattr(message, new).ToTimedelta().total_seconds())
        if generation.old_fields and message.HasField(old):
            return float(getattr(message, old).duration) / _NANOSECONDS
        if generation.dies_without_durations:
            raise CrashError(f"group {group}: options without {old}")
        return 0.0

    def _period(
        self, request: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest, start: float, seconds: float
    ) -> None:
        if self._options.generation.old_fields:
            request.startTime.seconds = int(start)
            request.endTime.seconds = int(start + seconds)
        if self._options.generation.new_fields:
            request.startTimestamp.FromSeconds(int(start))
            request.endTimestamp.FromSeconds(int(start + seconds))


def provider_id(node: JsonObject) -> str:
    """spec.providerID, "" if there is none."""
    return str(objects.spec(node).get("providerID") or "")


def fake_node(instance_id: str, reason: str) -> JsonObject:
    """An instance without a node, as the autoscaler names it to the provider."""
    annotations = {FAKE_NODE_REASON: reason} if reason else {}
    return {"metadata": {"name": instance_id, "annotations": annotations}, "spec": {"providerID": instance_id}}


def template_json(group: str, encoded: bytes) -> JsonObject:
    """A template's bytes as a node's JSON.

    Raises:
        CallError: they are no Node (an envelope, a broken message).
    """
    try:
        node = node_pb.Node.FromString(encoded)
    except Exception as error:
        raise CallError("NodeGroupTemplateNodeInfo", grpc.StatusCode.OK, f"does not decode: {error}") from error
    return {
        "metadata": {"name": f"template-node-for-{group}", "labels": dict(node.metadata.labels)},
        "spec": {
            "unschedulable": node.spec.unschedulable,
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.spec.taints],
        },
        "status": {
            "capacity": _amounts(node.status.capacity.items()),
            "allocatable": _amounts(node.status.allocatable.items()),
            "conditions": [{"type": c.type, "status": c.status} for c in node.status.conditions],
        },
    }


def _amounts(entries: Iterable[tuple[str, node_pb.Quantity]]) -> dict[str, str]:
    return {name: quantity.string for name, quantity in entries}


def _message(node: JsonObject) -> pb.ExternalGrpcNode:
    return pb.ExternalGrpcNode(
        providerID=provider_id(node),
        name=objects.name(node),
        labels=objects.labels(node),
        annotations=objects.annotations(node),
    )


def _instance(instance: pb.Instance) -> InstanceInfo:
    status = instance.status
    states = pb.InstanceStatus
    if status.instanceState == states.unspecified:
        return InstanceInfo(instance.id)  # no status at all: an error in it is lost
    code = status.errorInfo.errorCode
    if status.instanceState == states.instanceDeleting:
        return InstanceInfo(instance.id, deleting=True)
    if not code:
        return InstanceInfo(instance.id)
    if status.instanceState == states.instanceCreating:
        return InstanceInfo(instance.id, error=(code, status.errorInfo.errorMessage))
    return InstanceInfo(instance.id, odd=True)
