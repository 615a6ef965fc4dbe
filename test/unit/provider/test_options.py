from datetime import timedelta

import pytest

from homelab_api.v2alpha1 import Group
from homelab_autoscaler.provider.options import options, overrides
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb

MINUTE = 60 * 10**9


def group(**spec):
    return Group.from_json({"metadata": {"name": "lab", "namespace": "pool"}, "spec": spec})


def old_defaults():
    """What an autoscaler up to 1.33 sends."""
    message = pb.NodeGroupAutoscalingOptions(scaleDownUtilizationThreshold=0.6, scaleDownGpuUtilizationThreshold=0.7)
    message.scaleDownUnneededTime.duration = 3 * MINUTE
    message.scaleDownUnreadyTime.duration = 4 * MINUTE
    message.MaxNodeProvisionTime.duration = 5 * MINUTE
    return message


def new_defaults():
    """What an autoscaler from 1.35 on sends."""
    message = pb.NodeGroupAutoscalingOptions(scaleDownUtilizationThreshold=0.6, scaleDownGpuUtilizationThreshold=0.7)
    message.scaleDownUnneededDuration.FromTimedelta(timedelta(minutes=3))
    message.scaleDownUnreadyDuration.FromTimedelta(timedelta(minutes=4))
    message.MaxNodeProvisionDuration.FromTimedelta(timedelta(minutes=5))
    return message


def durations(answer):
    old = [answer.scaleDownUnneededTime, answer.scaleDownUnreadyTime, answer.MaxNodeProvisionTime]
    new = [answer.scaleDownUnneededDuration, answer.scaleDownUnreadyDuration, answer.MaxNodeProvisionDuration]
    assert [value.duration / 1e9 for value in old] == [value.ToTimedelta().total_seconds() for value in new]
    return [value.duration / MINUTE for value in old]


def test_a_group_without_options_leaves_them_to_the_autoscalers_flags():
    assert not overrides(group(minSize=1, maxSize=3, nodeLabels={"a": "b"}).spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"scaleDownUtilizationThreshold": "0.5"},
        {"scaleDownGpuUtilizationThreshold": "0.5"},
        {"scaleDownUnneededTime": "1m"},
        {"scaleDownUnreadyTime": "1m"},
        {"maxNodeProvisionTime": "20m"},
        {"zeroOrMaxNodeScaling": False},
        {"ignoreDaemonSetsUtilization": False},
    ],
)
def test_any_option_makes_the_group_answer(spec):
    assert overrides(group(**spec).spec)


@pytest.mark.parametrize("defaults", [old_defaults, new_defaults])
def test_unset_options_are_the_autoscalers_whichever_form_it_speaks(defaults):
    answer = options(group(scaleDownUnneededTime="10m"), defaults())
    assert durations(answer) == [10, 4, 5]
    assert answer.scaleDownUtilizationThreshold == 0.6
    assert answer.scaleDownGpuUtilizationThreshold == 0.7


def test_with_both_forms_the_new_one_counts():
    both = new_defaults()
    both.MaxNodeProvisionTime.duration = 99 * MINUTE
    assert durations(options(group(scaleDownUnneededTime="1m"), both))[2] == 5


def test_every_option_can_be_set():
    answer = options(
        group(
            scaleDownUtilizationThreshold="0.25",
            scaleDownGpuUtilizationThreshold="0.75",
            scaleDownUnneededTime="1m",
            scaleDownUnreadyTime="2m",
            maxNodeProvisionTime="25m",
            zeroOrMaxNodeScaling=True,
            ignoreDaemonSetsUtilization=True,
        ),
        new_defaults(),
    )
    assert durations(answer) == [1, 2, 25]
    assert (answer.scaleDownUtilizationThreshold, answer.scaleDownGpuUtilizationThreshold) == (0.25, 0.75)
    assert answer.zeroOrMaxNodeScaling
    assert answer.ignoreDaemonSetsUtilization


def test_a_default_that_is_on_can_be_switched_off():
    defaults = new_defaults()
    defaults.ignoreDaemonSetsUtilization = True
    assert not options(group(ignoreDaemonSetsUtilization=False), defaults).ignoreDaemonSetsUtilization
    assert options(group(scaleDownUnneededTime="1m"), defaults).ignoreDaemonSetsUtilization


def test_without_defaults_nothing_is_zero():
    answer = options(group(scaleDownUnneededTime="1m"), None)
    assert durations(answer) == [1, 20, 15]
    assert answer.scaleDownUtilizationThreshold == 0.5


def test_a_default_of_zero_is_a_value():
    defaults = new_defaults()
    defaults.scaleDownUnreadyDuration.FromTimedelta(timedelta(0))
    assert durations(options(group(scaleDownUnneededTime="1m"), defaults))[1] == 0


def test_a_field_of_a_newer_autoscaler_is_echoed():
    newer = new_defaults().SerializeToString() + b"\x5a\x02\x08\x07"  # field 11, a message
    defaults = pb.NodeGroupAutoscalingOptions.FromString(newer)
    answer = options(group(scaleDownUnneededTime="1m"), defaults)
    assert b"\x5a\x02\x08\x07" in answer.SerializeToString()
