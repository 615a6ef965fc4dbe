"""Ages, JSONPath, protobuf, names, the manual clock, fault rules: small parts by themselves."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homelab_autoscaler.sandbox.apiserver.faults import Fault
from homelab_autoscaler.sandbox.apiserver.presentation.ages import age, human
from homelab_autoscaler.sandbox.apiserver.presentation.jsonpath import find
from homelab_autoscaler.sandbox.apiserver.semantics.body import duplicate_fields
from homelab_autoscaler.sandbox.apiserver.semantics.protobuf import ProtobufError, read_protobuf
from homelab_autoscaler.sandbox.clock import ManualSandboxClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (434, "7m14s"),
        (1800, "30m"),
        (3 * 3600, "3h"),
        (4 * 3600 + 600, "4h10m"),
        (20 * 3600, "20h"),
        (3 * 86400 + 5 * 3600, "3d5h"),
        (30 * 86400, "30d"),
        (800 * 86400, "2y70d"),
        (-30, "<invalid>"),
    ],
)
def test_ages_get_coarser_as_they_grow(seconds, text):
    assert human(seconds) == text
    moment = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(moment, NOW) == text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        ('.list[?(@.type=="b")].value', [2]),
        (".list[?(@.type!='b')].value", [1]),
        (".list[*].value", [1, 2]),
        (".list[-1].value", [2]),
        (".labels.example\\.dev/a", ["x"]),
        (".labels['example.dev/a']", ["x"]),
        (".none.at.all", []),
        (".list[9]", []),
        ("..recursive", []),
    ],
)
def test_printer_columns_find_their_values(path, expected):
    body = {
        "spec": {"size": 3},
        "list": [{"type": "a", "value": 1}, {"type": "b", "value": 2}],
        "labels": {"example.dev/a": "x"},
    }
    assert find(body, path) == expected


@given(st.text(".[]@?()*'\"ab=!-0 ", max_size=15))
def test_any_text_is_a_path_that_finds_something_or_nothing(path):
    assert isinstance(find({"a": [{"b": "a"}], "b": {"a": 0}}, path), list)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def test_a_namespace_in_protobuf_is_read_as_kubectl_sends_it():
    metadata = field(1, b"made") + field(11, field(1, b"a") + field(2, b"b"))
    raw = field(1, metadata)
    body = b"k8s\x00" + field(1, field(1, b"v1") + field(2, b"Namespace")) + field(2, raw)
    assert read_protobuf(body) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "made", "labels": {"a": "b"}},
    }


@given(st.binary(max_size=60), st.sampled_from([b"", b"Namespace", b"Secret", b"PodDisruptionBudget", b"Deployment"]))
def test_any_bytes_are_protobuf_or_refused_as_protobuf(data, kind):
    envelope = b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind))
    for body in (data, b"k8s\x00" + data, envelope + field(2, data)):
        with contextlib.suppress(ProtobufError):
            assert "kind" in read_protobuf(body)


def test_fields_that_stand_twice_are_found_at_every_depth():
    text = b'{"a": 1, "a": 2, "b": [{"c": 1, "c": 1}], "d": {"e": {}, "e": {}}}'
    assert duplicate_fields(text) == ["a", "b[0].c", "d.e"]
    assert duplicate_fields(b'{"a": {"a": {"a": 1}}}') == []


def test_sleepers_of_a_manual_clock_wake_in_order_at_their_own_instants():
    async def story():
        clock = ManualSandboxClock(NOW)
        woken = []

        async def sleeper(name, period, times):
            for _ in range(times):
                await clock.sleep(period)
                woken.append((name, (clock.now() - NOW).total_seconds()))

        tasks = [asyncio.create_task(sleeper("a", 2, 3)), asyncio.create_task(sleeper("b", 3, 2))]
        await clock.advance(10)
        await asyncio.gather(*tasks)
        return woken, clock.monotonic()

    woken, elapsed = asyncio.run(story())
    at_six = woken[3:]
    assert woken[:3] == [("a", 2.0), ("b", 3.0), ("a", 4.0)]
    assert sorted(at_six) == [("a", 6.0), ("b", 6.0)]
    assert elapsed == 10


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "explode"}, "kind 'explode' is not known"),
        ({}, "kind is missing"),
        ({"kind": "error", "probability": 2}, "probability 2 must be between 0 and 1"),
        ({"kind": "error", "code": 200}, "code 200 must be an HTTP error"),
        ({"kind": "error", "count": 0}, "count 0 must be at least 1"),
        ({"kind": "latency", "seconds": "1"}, "seconds '1' has the wrong type"),
        ({"kind": "latency", "seconds": -1}, "seconds -1 must not be negative"),
        ({"kind": "latency", "odd": 1}, "field 'odd' is not known"),
    ],
)
def test_a_fault_that_makes_no_sense_says_which_field_and_why(body, words):
    with pytest.raises(ValueError, match=words):
        Fault.of(body)
