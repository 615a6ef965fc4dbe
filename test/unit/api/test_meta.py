"""Objects as they travel: durations, times, and what is written of an object."""

from datetime import UTC, datetime, timedelta, timezone
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

from homelab_api.meta import (
    Condition,
    KubeModel,
    MicroTime,
    ObjectMeta,
    Time,
    format_duration,
    format_micro_time,
    format_time,
    parse_duration,
)
from homelab_api.v2alpha1 import Group, GroupSpec, NodeClaim, NodeTemplate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12m10s", timedelta(minutes=12, seconds=10)),
        ("1h", timedelta(hours=1)),
        ("1.5s", timedelta(seconds=1.5)),
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_are_read_with_their_units(text, value):
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["10", "", "10 s", "s", "5d", "-5m", "1h-5m", "ten"])
def test_a_duration_without_a_unit_or_with_a_strange_one_is_refused_by_its_text(text):
    with pytest.raises(ValueError, match=f'duration "{text}" is not understood.*"12m10s"'):
        parse_duration(text)


def test_a_duration_beyond_all_measure_is_refused_and_does_not_break_the_reader():
    with pytest.raises(ValueError, match="longer than can be waited for"):
        parse_duration("99999999999999999999h")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(minutes=12, seconds=10), "12m10s"),
        (timedelta(hours=1), "1h0m0s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(0), "0s"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_durations_are_written_as_go_writes_them(value, text):
    assert format_duration(value) == text


def test_a_bare_number_is_no_duration_of_a_field():
    with pytest.raises(ValidationError, match='duration 10 has no unit: write "10s"'):
        GroupSpec.model_validate({"scaleDownUnneededTime": 10})


def test_instants_are_written_in_utc_with_fractions_only_when_there_are_some():
    berlin = timezone(timedelta(hours=1))
    assert format_time(datetime(2026, 3, 4, 10, 0, tzinfo=berlin)) == "2026-03-04T09:00:00Z"
    assert format_time(datetime(2026, 3, 4, 9, 0, 0, 500, tzinfo=UTC)) == "2026-03-04T09:00:00.000500Z"
    assert format_micro_time(datetime(2026, 3, 4, 9, 0, tzinfo=UTC)) == "2026-03-04T09:00:00.000000Z"


def test_instants_of_any_writer_are_read():
    class Clocks(KubeModel):
        """Two kinds of instants."""

        plain: Time
        micro: MicroTime

    read = Clocks.model_validate({"plain": "2026-03-04T10:00:00+01:00", "micro": "2026-03-04T09:00:00.123456Z"})
    assert read.to_json() == {"plain": "2026-03-04T09:00:00Z", "micro": "2026-03-04T09:00:00.123456Z"}


def test_an_object_is_written_with_its_kind_and_without_empty_metadata():
    group = Group(metadata=ObjectMeta(name="g", namespace="n"), spec=GroupSpec(template=NodeTemplate()))
    body = group.to_json()
    assert body["apiVersion"] == "infra.homecluster.dev/v2alpha1"
    assert body["kind"] == "Group"
    assert body["metadata"] == {"name": "g", "namespace": "n"}
    assert Group.from_json(body) == group


def test_fields_of_a_newer_version_do_not_break_an_older_reader():
    body = Group(metadata=ObjectMeta(name="g")).to_json()
    body["spec"]["fromTheFuture"] = {"deep": True}
    assert Group.from_json(body).name == "g"


def test_what_was_read_cannot_be_edited_in_place():
    with pytest.raises(ValidationError, match="frozen"):
        Condition(type="Ready", status="True").status = "False"


def test_a_condition_has_one_of_three_statuses():
    with pytest.raises(ValidationError, match="status"):
        Condition(type="Ready", status="Maybe")


def test_a_claim_without_a_phase_is_pending_and_live():
    claim = NodeClaim.from_json({"spec": {"slotRef": {"name": "s"}, "call": "Manual", "group": "g"}})
    assert claim.phase == "pending"
    assert claim.live
    assert claim.wants_machine
    assert not claim.committed


def test_a_slimmed_object_is_the_same_object_without_a_note_of_its_own_on_every_part():
    body = {
        "metadata": {"name": "w1", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
        "spec": {"slotRef": {"name": "w1"}, "call": "Manual", "group": "g", "requestedAt": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    plain, slim = NodeClaim.from_json(body), NodeClaim.from_json(body)

    assert slim.slimmed() is slim

    parts = [
        slim, slim.metadata, *slim.metadata.owner_references, slim.spec, slim.spec.slot_ref, slim.status,
        *slim.status.conditions,
    ]  # fmt: skip
    assert len({id(part.model_fields_set) for part in parts}) == 1
    assert slim == plain
    assert slim.to_json() == plain.to_json()
    assert slim.to_replacement() == plain.to_replacement()
    renamed = slim.model_copy(update={"metadata": slim.metadata.model_copy(update={"name": "w2"})})
    assert (renamed.name, slim.name) == ("w2", "w1")
    assert slim.model_fields_set == set(), "a copy has noted its change on itself alone"


def models_below(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from models_below(sub)


def models_in(annotation, under=None):
    """(container, model) of each model in a type."""
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, KubeModel):
        yield under, annotation
    for part in get_args(annotation):
        yield from models_in(part, get_origin(annotation) or under)


def test_no_kind_holds_models_in_a_way_that_slimming_does_not_know():
    entries = [entry for sub in models_below(KubeModel) for entry in sub.model_fields.values()]
    containers = {container for entry in entries for container, _ in models_in(entry.annotation)}
    assert containers - {UnionType, Union, Annotated} == {None, list}
