from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rich.console import Console

from homelab_api.v2alpha1 import Node
from homelab_autoscaler.cli.demo.summary import band, commands, manager_writes, spans, timeline

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def slot(*rows):
    return Node.from_json(
        {
            "metadata": {"name": "rack-1", "namespace": "default"},
            "spec": {
                "kubernetesNodeName": "rack-1",
                "startupPodSpec": {"image": "a"},
                "shutdownPodSpec": {"image": "a"},
            },
            "status": {
                "recentTransitions": [{"at": at(second).isoformat(), "to": phase} for second, phase in rows],
            },
        }
    )


def test_spans_reach_from_one_change_to_the_next_and_the_last_to_the_end():
    parts = spans(slot((0, "off"), (4, "booting"), (10, "ready")), at(20))

    assert [(part.phase, part.seconds) for part in parts] == [("off", 4), ("booting", 6), ("ready", 10)]


def test_a_band_is_to_scale():
    parts = spans(slot((0, "off"), (5, "ready")), at(10))

    assert band(parts, at(0), at(10), width=10).plain == "·····█████"


def test_a_phase_too_short_for_the_scale_is_still_seen():
    parts = spans(slot((0, "off"), (5, "ready"), (9.95, "draining")), at(10))

    assert band(parts, at(0), at(10), width=10).plain == "·····████▓"


def test_a_slot_that_never_changed_has_no_spans_and_an_empty_timeline():
    console = Console(width=100)
    with console.capture() as text:
        console.print(timeline([slot()]))

    assert spans(slot(), at(1)) == []
    assert "rack-1" not in text.get()


def test_the_ledger_is_read_from_lines_of_json():
    text = (
        '{"time": "2026-01-01T12:00:01.000000Z", "machine": "rack-1", "command": "on", "sender": "j", '
        '"result": "accepted"}\n\n'
    )

    [entry] = commands(text)

    assert (entry.time, entry.machine, entry.command, entry.sender, entry.result) == (
        at(1),
        "rack-1",
        "on",
        "j",
        "accepted",
    )


def test_only_the_managers_writes_count_and_no_renewals_or_events():
    def write(resource, agent="homelab-autoscaler", group=""):
        return {"resource": resource, "agent": agent, "group": group}

    counted = manager_writes(
        [
            write("nodeclaims", group="infra.homecluster.dev"),
            write("nodes", group="infra.homecluster.dev"),
            write("nodes"),
            write("leases", group="coordination.k8s.io"),
            write("events"),
            write("pods", agent="kubectl"),
        ]
    )

    assert counted == {"nodeclaims.infra.homecluster.dev": 1, "nodes.infra.homecluster.dev": 1, "nodes": 1}
