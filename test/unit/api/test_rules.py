"""The CEL rules of the CRDs, evaluated: what they admit, what they refuse, and what they then say."""

from typing import get_args

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_api import schema
from homelab_api.meta import format_duration, parse_duration
from homelab_api.v2alpha1 import Group, Node, NodeReclaim
from homelab_api.v2alpha1.group import GroupSpec
from homelab_api.v2alpha1.node import Watts
from homelab_api.v2alpha1.nodeclaim import SlotRef
from homelab_api.v2alpha1.pod import EnvVar, MinimalPodSpec, Volume


def rules_of(annotated):
    return [mark for mark in get_args(annotated)[1:] if isinstance(mark, schema.Rule)]


def rules_of_field(model, name):
    return [mark for mark in model.model_fields[name].metadata if isinstance(mark, schema.Rule)]


def broken(rules, value):
    """The texts of the rules that the value breaks."""
    return [
        cel.evaluate(rule.expression, {"self": value}) if rule.expression else rule.message
        for rule in rules
        if not cel.evaluate(rule.rule, {"self": value})
    ]


QUANTITY, FRACTION, RATE = map(rules_of, (schema.Quantity, schema.Fraction, schema.Rate))
DURATION = [schema.DURATION_RULE]
GROUP_NAME = rules_of(schema.GroupName)
KEY, VALUE, LABEL, SUBDOMAIN = map(rules_of, (schema.LabelKey, schema.LabelValue, schema.DnsLabel, schema.DnsSubdomain))
IMAGE = rules_of_field(MinimalPodSpec, "image")
MOUNT = rules_of_field(Volume, "mount_path")
SLOT_NAME = rules_of_field(SlotRef, "name")


@pytest.mark.parametrize(
    ("rules", "admitted"),
    [
        (QUANTITY, ["16", "500m", "32Gi", "1.5", ".5", "1e3", "2E6", "0", "1k"]),
        (FRACTION, ["0", "0.5", "1", "1.0", "0.05"]),
        (RATE, ["0", "0.012", "12"]),
        (DURATION, ["10s", "12m10s", "1h", "1.5h", "100ms", "0s"]),
        (KEY, ["gpu", "example.com/gpu", "node.cilium.io/agent-not-ready"]),
        (VALUE, ["", "x", "a-b_c.d", "A1"]),
        (LABEL, ["pool", "a", "a-1"]),
        (SUBDOMAIN, ["w1", "w1.lan", "a-1.b-2"]),
        (GROUP_NAME, ["rack", "rack.left", "rack-1"]),
        (IMAGE, ["busybox", "registry.example/x/y:1.2", "x@sha256:0"]),
        (MOUNT, ["/etc/bmc", "/x"]),
        (SLOT_NAME, ["w1", "rack-2.left", "a" * 40]),
    ],
)
def test_what_is_right_is_admitted(rules, admitted):
    assert rules
    for value in admitted:
        assert broken(rules, value) == [], value


@pytest.mark.parametrize(
    ("rules", "refused", "fix"),
    [
        (QUANTITY, ["16 cores", "", "-1", "1Gib", "two", "1 Gi", "1e", "."], '"500m" or "32Gi"'),
        (FRACTION, ["1.5", "-0.1", "50%", "1.01", "", ".5"], 'like "0.5"'),
        (RATE, ["cheap", "-1", "1,5", ""], 'like "0.012"'),
        (DURATION, ["10", 10, "ten", "10 s", "-5m", "s", "", "5d", "99999999h"], "like 90s or 12m10s"),
        (KEY, ["bad key", "/x", "x/", "", "a/b/c"], "DOMAIN/NAME"),
        (VALUE, ["x y", "-x", "x/"], "use letters"),
        (LABEL, ["Pool", "a.b", "-a", ""], "lower-case"),
        (SUBDOMAIN, ["W1", "w_1", "w1.", ".w1"], "lower-case"),
        (GROUP_NAME, ["Rack", "rack_1", "rack."], "at most 63"),
        (IMAGE, ["a b", "a\tb"], "no spaces"),
        (MOUNT, ["etc", "/a:b"], "begin with /"),
        (SLOT_NAME, ["W1", "a" * 41, "w/1"], "at most 40"),
    ],
)
def test_what_is_wrong_is_refused_with_the_value_and_the_fix(rules, refused, fix):
    for value in refused:
        (said,) = broken(rules, value)
        assert f'"{value}"' in said
        assert fix in said


@pytest.mark.parametrize(("value", "ok"), [("0s", False), ("0h0m0.0s", False), ("0.1s", True), ("15m", True)])
def test_a_provision_time_is_longer_than_zero(value, ok):
    assert (broken([schema.POSITIVE_DURATION], value) == []) is ok


def test_a_number_is_left_to_the_rule_that_says_what_a_duration_is():
    assert broken([schema.POSITIVE_DURATION], 0) == []


@given(st.timedeltas(min_value=parse_duration("0s"), max_value=parse_duration("9999h")))
def test_every_duration_that_we_write_is_admitted_and_read_back(value):
    text = format_duration(value)
    assert broken(DURATION, text) == []
    assert abs(parse_duration(text) - value) <= parse_duration("1us")


@given(st.text(alphabet="0123456789.hmsun -", max_size=12) | st.sampled_from(["1h1m", "1us", "1.5s"]))
def test_every_duration_that_is_admitted_can_be_read(text):
    if not broken(DURATION, text):
        assert parse_duration(text).total_seconds() >= 0


@pytest.mark.parametrize(
    ("model", "value", "says"),
    [
        (Group, {"metadata": {"name": "g" * 64}}, "longer than 63 characters"),
        (Node, {"metadata": {"name": "n" * 41}}, "longer than 40 characters"),
        (
            NodeReclaim,
            {"metadata": {"name": "a"}, "spec": {"slotRef": {"name": "b"}}},
            '"a" must equal spec.slotRef.name "b"',
        ),
        (GroupSpec, {"minSize": 3, "maxSize": 2}, "lower minSize or raise maxSize"),
        (Watts, {"idle": 90, "max": 60}, "idle is greater"),
        (EnvVar, {"name": "1 x"}, '"1 x" is not a name'),
        (Volume, {"name": "v"}, 'volume "v" must set exactly one'),
        (Volume, {"name": "v", "secretName": "a", "configMapName": "b"}, 'volume "v" must set exactly one'),
    ],
)
def test_an_object_that_contradicts_itself_is_refused(model, value, says):
    (said,) = broken(model.rules, value)
    assert says in said


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (Group, {"metadata": {"name": "g" * 63}}),
        (Node, {"metadata": {"name": "n" * 40}}),
        (NodeReclaim, {"metadata": {"name": "a"}, "spec": {"slotRef": {"name": "a"}}}),
        (GroupSpec, {"minSize": 2, "maxSize": 2}),
        (GroupSpec, {"minSize": 2}),
        (Watts, {"idle": 60, "max": 90}),
        (Watts, {"idle": 60, "max": 0}),
        (EnvVar, {"name": "BMC_HOST"}),
        (Volume, {"name": "v", "configMapName": "b"}),
    ],
)
def test_an_object_that_does_not_contradict_itself_is_admitted(model, value):
    assert broken(model.rules, value) == []


@pytest.mark.parametrize("annotated", [schema.Labels, schema.Quantities])
def test_keys_of_labels_and_resources_are_checked_by_name(annotated):
    rules = rules_of(annotated)
    assert broken(rules, {"cpu": "1", "nvidia.com/gpu": "2"}) == []
    (said,) = broken(rules, {"cpu": "1", "my gpu": "2"})
    assert '"my gpu" is not a key' in said
