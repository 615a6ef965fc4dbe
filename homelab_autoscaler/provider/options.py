"""Per-group scaling options, for groups that set any.

Source: the contract's section 4.8. An answer replaces every option of the autoscaler, zeros included, so it starts
from the defaults in the request and is always complete, in the old form of the fields and in the new one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from homelab_api.v2alpha1 import Group, GroupSpec

_NANOSECONDS: Final = 1_000_000_000

# The autoscaler's own flag defaults, for a request without defaults.
_UNNEEDED: Final = timedelta(minutes=10)
_UNREADY: Final = timedelta(minutes=20)
_PROVISION: Final = timedelta(minutes=15)
_THRESHOLD: Final = 0.5


def overrides(spec: GroupSpec) -> bool:
    """Whether the group sets any option. If not, the autoscaler's own flags are the answer."""
    return any(
        value is not None
        for value in (
            spec.scale_down_utilization_threshold,
            spec.scale_down_gpu_utilization_threshold,
            spec.scale_down_unneeded_time,
            spec.scale_down_unready_time,
            spec.max_node_provision_time,
            spec.zero_or_max_node_scaling,
            spec.ignore_daemon_sets_utilization,
        )
    )


def options(group: Group, defaults: pb.NodeGroupAutoscalingOptions | None) -> pb.NodeGroupAutoscalingOptions:
    """Every option of the group: its own where set, else the autoscaler's.

    Args:
        group: the group.
        defaults: from the request; None if it had none, then the autoscaler's documented defaults stand in.
    """
    spec = group.spec
    given = (
        defaults
        if defaults is not None
        else pb.NodeGroupAutoscalingOptions(
            scaleDownUtilizationThreshold=_THRESHOLD, scaleDownGpuUtilizationThreshold=_THRESHOLD
        )
    )
    unneeded = _own_or(
        spec.scale_down_unneeded_time, given, "scaleDownUnneededDuration", "scaleDownUnneededTime", _UNNEEDED
    )
    unready = _own_or(spec.scale_down_unready_time, given, "scaleDownUnreadyDuration", "scaleDownUnreadyTime", _UNREADY)
    provision = _own_or(
        spec.max_node_provision_time, given, "MaxNodeProvisionDuration", "MaxNodeProvisionTime", _PROVISION
    )
    answer = pb.NodeGroupAutoscalingOptions()
    answer.CopyFrom(given)  # keeps fields that a newer autoscaler sends and expects back
    answer.scaleDownUtilizationThreshold = _number(
        spec.scale_down_utilization_threshold, given.scaleDownUtilizationThreshold
    )
    answer.scaleDownGpuUtilizationThreshold = _number(
        spec.scale_down_gpu_utilization_threshold, given.scaleDownGpuUtilizationThreshold
    )
    answer.zeroOrMaxNodeScaling = _flag(spec.zero_or_max_node_scaling, given.zeroOrMaxNodeScaling)
    answer.ignoreDaemonSetsUtilization = _flag(spec.ignore_daemon_sets_utilization, given.ignoreDaemonSetsUtilization)
    answer.scaleDownUnneededTime.duration = _nanoseconds(unneeded)
    answer.scaleDownUnreadyTime.duration = _nanoseconds(unready)
    answer.MaxNodeProvisionTime.duration = _nanoseconds(provision)
    answer.scaleDownUnneededDuration.FromTimedelta(unneeded)
    answer.scaleDownUnreadyDuration.FromTimedelta(unready)
    answer.MaxNodeProvisionDuration.FromTimedelta(provision)
    return answer


def _own_or(
    own: timedelta | None, given: pb.NodeGroupAutoscalingOptions, new: str, old: str, fallback: timedelta
) -> timedelta:
    if own is not None:
        return own
    if given.HasField(new):
        duration: Duration = getattr(given, new)
        return duration.ToTimedelta()
    if given.HasField(old):
        return timedelta(microseconds=getattr(given, old).duration / 1000)
    return fallback


def _nanoseconds(value: timedelta) -> int:
    return (value // timedelta(microseconds=1)) * (_NANOSECONDS // 1_000_000)


def _number(own: str | None, given: float) -> float:
    return given if own is None else float(own)


def _flag(own: bool | None, given: bool) -> bool:  # noqa: FBT001 - both are values of one option
    return given if own is None else own
