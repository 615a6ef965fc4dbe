"""The CloudProvider service: messages to calls, answers to messages, errors to status codes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, cast

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage

from homelab_api.v2alpha1 import Group, NodeClaim
from homelab_autoscaler.provider.events import SCALE_DOWN_REFUSED, SCALE_UP_REFUSED
from homelab_autoscaler.provider.failure import CallError, Cause
from homelab_autoscaler.provider.gpu import gpu_label, gpu_types
from homelab_autoscaler.provider.options import options, overrides
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.provider.pool import NodeRef
from homelab_autoscaler.provider.pricing import node_price, pod_price
from homelab_autoscaler.provider.scale import api_failure
from homelab_autoscaler.provider.template import template_node
from homelab_autoscaler.provider.tls import admitted
from homelab_autoscaler.runtime.deadline import time_limit
from homelab_autoscaler.runtime.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from google.protobuf.message import Message

    from homelab_autoscaler.provider.metrics import ProviderMetrics
    from homelab_autoscaler.provider.pool import Pool
    from homelab_autoscaler.provider.scale import Scaler
    from homelab_autoscaler.provider.tls import HandshakeWatch
    from homelab_autoscaler.provider.view import GroupView, Instance
    from homelab_autoscaler.runtime.client import Client
    from homelab_autoscaler.runtime.clock import Clock

M = TypeVar("M", bound="Message")
log = structlog.get_logger(__name__)

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["CloudProvider"].full_name
ERROR_CLASS_OTHER: Final = 99
_SECONDS_PER_HOUR: Final = 3600.0


class Complain(Protocol):
    """Where refusals are told to people: an event on the group."""

    def __call__(self, group: Group, reason: str, text: str) -> None:
        """Publish a warning."""
        ...


class CloudProviderService(pb_grpc.CloudProviderServicer):
    """All 15 calls.

    Reads are answered from memory. `Refresh` alone fails when the API server cannot be read, since the autoscaler ends
    its loop there and nothing worse happens; the three writing calls read and write, and say what hinders them.

    Args:
        client: for Refresh.
        pool: for reads.
        scaler: for writes.
        metrics: told of every call.
        complain: told of refused increases and deletions.
        clock: for time limits.
        watch: told of every call's connection; None without TLS.
        allowed: names of clients that may call; empty: any that the authority vouches for.
        answer_within: seconds for a writing call; the autoscaler waits five.
    """

    def __init__(
        self,
        client: Client,
        pool: Pool,
        scaler: Scaler,
        metrics: ProviderMetrics,
        complain: Complain,
        *,
        clock: Clock,
        watch: HandshakeWatch | None = None,
        allowed: Collection[str] = (),
        answer_within: float = 4.0,
    ) -> None:
        self._client = client
        self._pool = pool
        self._scaler = scaler
        self._metrics = metrics
        self._complain = complain
        self._clock = clock
        self._watch = watch
        self._allowed = frozenset(allowed)
        self._answer_within = answer_within
        self._templates: dict[str, tuple[GroupView, bytes]] = {}
        self._messages: dict[str, tuple[GroupView, pb.NodeGroup]] = {}

    # --- groups and nodes ---------------------------------------------------------------------------------------

    def Refresh(self, _request: pb.RefreshRequest, context: grpc.ServicerContext) -> pb.RefreshResponse:
        """Check that the API server answers, and settle what time alone changes."""

        def answer() -> pb.RefreshResponse:
            try:
                with time_limit(self._clock, self._answer_within):
                    index = self._pool.index
                    self._client.list(Group, self._pool.namespace, known=lambda found: index.known(Group, found))
                    self._confirm()
            except ApiError as error:
                raise api_failure("the pool cannot be read", error) from error
            self._pool.refresh()
            return pb.RefreshResponse()

        return self._call("Refresh", context, answer)

    def NodeGroups(self, _request: pb.NodeGroupsRequest, context: grpc.ServicerContext) -> pb.NodeGroupsResponse:
        """Every group with its present limits."""
        return self._call(
            "NodeGroups",
            context,
            lambda: pb.NodeGroupsResponse(nodeGroups=[self._group(v) for v in self._pool.views()]),
        )

    def NodeGroupForNode(
        self, request: pb.NodeGroupForNodeRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupForNodeResponse:
        """The group of a node or instance; an empty id when it is none of the autoscaler's business."""

        def answer() -> pb.NodeGroupForNodeResponse:
            view = self._pool.group_of(_ref(request.node))
            return pb.NodeGroupForNodeResponse(nodeGroup=self._group(view) if view is not None else pb.NodeGroup())

        return self._call("NodeGroupForNode", context, answer)

    def NodeGroupTargetSize(
        self, request: pb.NodeGroupTargetSizeRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupTargetSizeResponse:
        """How many machines are wanted."""
        return self._call(
            "NodeGroupTargetSize",
            context,
            lambda: pb.NodeGroupTargetSizeResponse(targetSize=self._pool.view(request.id).target),
        )

    def NodeGroupNodes(
        self, request: pb.NodeGroupNodesRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupNodesResponse:
        """Every machine that counts, and boots that failed."""
        return self._call(
            "NodeGroupNodes",
            context,
            lambda: pb.NodeGroupNodesResponse(instances=[_instance(i) for i in self._pool.view(request.id).instances]),
        )

    def NodeGroupTemplateNodeInfo(
        self, request: pb.NodeGroupTemplateNodeInfoRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupTemplateNodeInfoResponse:
        """The node that a machine of the group will be, in the old field and in the new one."""

        def answer() -> pb.NodeGroupTemplateNodeInfoResponse:
            view = self._pool.view(request.id)
            known = self._templates.get(view.id)
            if known is None or known[0] is not view:
                nodes = [self._pool.index.node(slot.spec.kubernetes_node_name) for slot in view.slots]
                node = template_node(view.group, view.slots, [node for node in nodes if node is not None])
                known = (view, node.SerializeToString(deterministic=True))
                self._templates[view.id] = known
            return pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=known[1], nodeBytes=known[1])

        return self._call("NodeGroupTemplateNodeInfo", context, answer)

    def NodeGroupGetOptions(
        self, request: pb.NodeGroupAutoscalingOptionsRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupAutoscalingOptionsResponse:
        """The group's options, all of them; unimplemented when it sets none."""

        def answer() -> pb.NodeGroupAutoscalingOptionsResponse:
            group = self._pool.view(request.id).group
            if not overrides(group.spec):
                raise CallError(Cause.UNIMPLEMENTED, f'group "{request.id}" sets no scaling options')
            defaults = request.defaults if request.HasField("defaults") else None
            return pb.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=options(group, defaults))

        return self._call("NodeGroupGetOptions", context, answer)

    # --- scaling ------------------------------------------------------------------------------------------------

    def NodeGroupIncreaseSize(
        self, request: pb.NodeGroupIncreaseSizeRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupIncreaseSizeResponse:
        """Claim that many machines more, or none."""

        def answer() -> pb.NodeGroupIncreaseSizeResponse:
            left = cast("float | None", context.time_remaining())  # None without a deadline, whatever the stubs say
            within = self._answer_within if left is None else min(self._answer_within, left * 0.8)
            with _Complaint(self, request.id, SCALE_UP_REFUSED):
                self._scaler.increase(request.id, request.delta, alive=lambda: _waits(context), within=within)
            return pb.NodeGroupIncreaseSizeResponse()

        return self._call("NodeGroupIncreaseSize", context, answer)

    def NodeGroupDeleteNodes(
        self, request: pb.NodeGroupDeleteNodesRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupDeleteNodesResponse:
        """Give these machines back."""

        def answer() -> pb.NodeGroupDeleteNodesResponse:
            limit = time_limit(self._clock, self._answer_within)
            with _Complaint(self, request.id, SCALE_DOWN_REFUSED), limit:
                self._scaler.delete(request.id, [_ref(node) for node in request.nodes])
            return pb.NodeGroupDeleteNodesResponse()

        return self._call("NodeGroupDeleteNodes", context, answer)

    def NodeGroupDecreaseTargetSize(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest, context: grpc.ServicerContext
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        """Withdraw requests that no machine has met."""

        def answer() -> pb.NodeGroupDecreaseTargetSizeResponse:
            limit = time_limit(self._clock, self._answer_within)
            with _Complaint(self, request.id, SCALE_DOWN_REFUSED), limit:
                self._scaler.decrease(request.id, request.delta)
            return pb.NodeGroupDecreaseTargetSizeResponse()

        return self._call("NodeGroupDecreaseTargetSize", context, answer)

    # --- prices, GPUs, the end ----------------------------------------------------------------------------------

    def PricingNodePrice(
        self, request: pb.PricingNodePriceRequest, context: grpc.ServicerContext
    ) -> pb.PricingNodePriceResponse:
        """What a node costs for a time."""

        def answer() -> pb.PricingNodePriceResponse:
            node = request.node
            price = node_price(self._pool.views(), node.name, dict(node.labels), _hours(request))
            return pb.PricingNodePriceResponse(price=price)

        return self._call("PricingNodePrice", context, answer)

    def PricingPodPrice(
        self, request: pb.PricingPodPriceRequest, context: grpc.ServicerContext
    ) -> pb.PricingPodPriceResponse:
        """What a pod costs for a time."""
        return self._call(
            "PricingPodPrice",
            context,
            lambda: pb.PricingPodPriceResponse(price=pod_price(self._pool.views(), _hours(request))),
        )

    def GPULabel(self, _request: pb.GPULabelRequest, context: grpc.ServicerContext) -> pb.GPULabelResponse:
        """The label of nodes with a GPU, from the groups' templates."""
        return self._call("GPULabel", context, lambda: pb.GPULabelResponse(label=gpu_label(self._groups())))

    def GetAvailableGPUTypes(
        self, _request: pb.GetAvailableGPUTypesRequest, context: grpc.ServicerContext
    ) -> pb.GetAvailableGPUTypesResponse:
        """The kinds of GPU; only the keys mean something."""

        def answer() -> pb.GetAvailableGPUTypesResponse:
            return pb.GetAvailableGPUTypesResponse(gpuTypes={kind: AnyMessage() for kind in gpu_types(self._groups())})

        return self._call("GetAvailableGPUTypes", context, answer)

    def Cleanup(self, _request: pb.CleanupRequest, context: grpc.ServicerContext) -> pb.CleanupResponse:
        """The autoscaler is stopping, as it often does: no machine is touched."""
        return self._call("Cleanup", context, pb.CleanupResponse)

    # --- inside -------------------------------------------------------------------------------------------------

    def complain(self, group_id: str, reason: str, error: CallError) -> None:
        """Publish a refusal on the group, so that a person who looks there sees why it does not scale."""
        try:
            group = self._pool.view(group_id).group
        except CallError:
            return
        self._complain(group, reason, error.text)

    def _group(self, view: GroupView) -> pb.NodeGroup:
        """The message about a group; made once per state of the group, as most calls ask for it."""
        known = self._messages.get(view.id)
        if known is None or known[0] is not view:
            message = pb.NodeGroup(id=view.id, minSize=view.min_size, maxSize=view.max_size, debug=view.describe())
            known = (view, message)
            self._messages[view.id] = known
        return known[1]

    def _groups(self) -> list[Group]:
        return [view.group for view in self._pool.views()]

    def _confirm(self) -> None:
        """Ask about claims that we wrote and that no watch has shown yet: they may be gone again, unseen."""
        with self._pool.index.lock:
            unconfirmed: list[NodeClaim] = list(self._pool.index.claims.unconfirmed.values())
        for claim in unconfirmed:
            try:
                found = self._client.get(NodeClaim, claim.name, claim.namespace)
            except NotFoundError:
                self._pool.index.remove(claim, confirmed=False)
            else:
                if found.uid != claim.uid:
                    self._pool.index.remove(claim, confirmed=False)
                self._pool.index.put(found, confirmed=False)

    def _call(self, method: str, context: grpc.ServicerContext, answer: Callable[[], M]) -> M:
        started = time.perf_counter()
        code = "OK"
        try:
            self._admit(method, context)
            return answer()
        except CallError as error:
            code = error.cause.name
            level = log.debug if error.cause is Cause.UNIMPLEMENTED else log.warning
            level("call refused", method=method, code=code, why=error.text)
            _abort(context, code, error.text)
        except ApiError as error:
            failure = api_failure(method, error)
            code = failure.cause.name
            log.warning("call failed", method=method, code=code, why=failure.text)
            _abort(context, code, failure.text)
        except Exception:
            code = "INTERNAL"
            log.exception("call failed by a fault of ours", method=method)
            _abort(context, code, f"{method}: a fault in the provider, see the manager's log")
        finally:
            self._metrics.called(method, code, time.perf_counter() - started)

    def _admit(self, method: str, context: grpc.ServicerContext) -> None:
        if self._watch is None:
            return
        self._watch.heard(context.peer())
        if not admitted(context, self._allowed):
            log.warning("client turned away", method=method, peer=context.peer(), may_call=sorted(self._allowed))
            raise CallError(Cause.PERMISSION_DENIED, f"this client's certificate is not for {sorted(self._allowed)}")


class _Complaint:
    """Publishes refusals of a call on its group."""

    def __init__(self, service: CloudProviderService, group_id: str, reason: str) -> None:
        self._service = service
        self._group_id = group_id
        self._reason = reason

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CallError):
            self._service.complain(self._group_id, self._reason, error)


def _waits(context: grpc.ServicerContext) -> bool:
    """Whether the caller still waits: its own deadline may be over before gRPC has told us so."""
    left = cast("float | None", context.time_remaining())
    return context.is_active() and (left is None or left > 0)


def _abort(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    context.abort(getattr(grpc.StatusCode, code), text)
    raise AssertionError("abort returned")


def _ref(node: pb.ExternalGrpcNode) -> NodeRef:
    return NodeRef(node.name, node.providerID, dict(node.annotations))


def _instance(instance: Instance) -> pb.Instance:
    status = pb.InstanceStatus(instanceState=cast("pb.InstanceStatus.InstanceState", int(instance.state)))
    if instance.error is not None:
        code, text = instance.error
        status.errorInfo.CopyFrom(
            pb.InstanceErrorInfo(errorCode=code, errorMessage=text, instanceErrorClass=ERROR_CLASS_OTHER)
        )
    return pb.Instance(id=instance.id, status=status)


def _hours(request: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest) -> float:
    """The period of a price request, in the old form of its fields or the new one.

    Raises:
        CallError: it has no period, or one that ends before it begins.
    """
    bounds: list[Any] = []
    for new, old in (("startTimestamp", "startTime"), ("endTimestamp", "endTime")):
        name = new if request.HasField(cast("Any", new)) else old
        if not request.HasField(cast("Any", name)):
            raise CallError(Cause.INVALID_ARGUMENT, f"the request has no {new}")
        bounds.append(getattr(request, name))
    begin, end = (bound.seconds + bound.nanos / 1e9 for bound in bounds)
    if end < begin:
        raise CallError(Cause.INVALID_ARGUMENT, "the request's period ends before it begins")
    return float(end - begin) / _SECONDS_PER_HOUR
