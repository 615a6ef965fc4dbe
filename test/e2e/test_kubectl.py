"""What a person does in a second terminal, with real kubectl and our own commands."""

from __future__ import annotations

import subprocess

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def claimed(stand, wait_until):
    """rack-1 with a ready claim by hand; off again afterwards."""
    made = stand.cli("claim", "rack-1").stdout
    name = made.split('"')[1]
    stand.until_phase("rack-1", "ready")
    yield name
    stand.cli("unclaim", "rack-1", check=False)
    stand.until_phase("rack-1", "off")
    wait_until(lambda: not stand.get("nodeclaims"))


def test_tables_describe_and_events_tell_the_story_of_a_claim(stand, claimed):
    slots = stand.kubectl("get", "nodes.infra.homecluster.dev").stdout
    assert slots.splitlines()[0].split() == ["NAME", "PHASE", "POWER", "GROUP", "CLAIM", "SINCE", "24H", "AGE"]
    row = next(line for line in slots.splitlines() if line.startswith("rack-1")).split()
    assert row[1:5] == ["ready", "on", "rack", claimed]

    wide = stand.kubectl("get", "nodeclaims", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[:6] == ["NAME", "SLOT", "PHASE", "ATTEMPT", "REASON", "DEADLINE"]
    assert wide[1].split()[:5] == [claimed, "rack-1", "ready", "1", "MachineReady"]

    described = stand.kubectl("describe", "nodeclaim", claimed).stdout
    assert "MachineCommitted" in described
    assert "ClaimReady" in described

    reasons = {event["reason"] for event in stand.get("events") if event["involvedObject"]["name"] == claimed}
    assert {"ClaimCreated", "ClaimBooting", "ClaimReady"} <= reasons


def test_our_own_commands_say_what_is_and_why(stand, claimed):
    table = stand.cli("status").stdout
    assert "rack: 3 slots, 1 on, 1 wanted, healthy" in table
    assert "asked for by hand" in " ".join(table.split())
    assert [line.split()[:3] for line in stand.cli("status", "--on").stdout.splitlines() if "rack-" in line] == [
        ["rack-1", "rack-1", "on"]
    ]

    text = " ".join(stand.cli("explain", "rack-1").stdout.split())
    assert "row 6 A machine that takes the pool's work." in text
    assert f"{claimed}: ready (MachineReady), asked by Manual, attempt 1" in text
    assert "homelab-autoscaler unclaim rack-1" in text


def test_a_slot_that_is_taken_is_refused_with_the_claim_that_has_it(stand, claimed):
    refused = stand.cli("claim", "rack-1", check=False)

    assert refused.returncode == 1
    assert f'slot "rack-1" already has the live claim "{claimed}" in phase "ready"' in refused.stderr


def test_watching_slots_shows_each_phase(stand, wait_until):
    watch = subprocess.Popen(
        [
            "sh",
            "-c",
            'exec "$0" get nodes.infra.homecluster.dev rack-2 -w -o jsonpath=\'{.status.phase}{"\\n"}\'',
            kubectl_of(stand),
        ],
        env={"KUBECONFIG": stand.place["kubeconfig"], "HOME": str(stand.directory), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        stand.cli("claim", "rack-2")
        stand.until_phase("rack-2", "ready")
        stand.kubectl("delete", "nodeclaim", "-l", "infra.homecluster.dev/node=rack-2", "--timeout=60s")
        stand.until_phase("rack-2", "off")
    finally:
        watch.terminate()
    seen = watch.communicate(timeout=10)[0].split()

    def first(phase):
        return seen.index(phase)

    assert first("pending") < first("booting") < first("ready") < first("draining")
    assert seen[-1] == "off"


def test_deleting_a_claim_switches_its_machine_off_before_kubectl_returns(stand):
    stand.cli("claim", "rack-3")
    stand.until_phase("rack-3", "ready")
    claim = next(item for item in stand.get("nodeclaims") if item["spec"]["slotRef"]["name"] == "rack-3")

    stand.kubectl("delete", "nodeclaim", claim["metadata"]["name"], "--timeout=60s")

    assert stand.get("nodeclaim", claim["metadata"]["name"]) is None
    assert stand.commands("rack-3")[-1] == "off"
    assert stand.get("nodes", "rack-3") is None
    stand.until_phase("rack-3", "off")


def test_the_samples_can_be_applied_and_taken_away(stand, samples, wait_until):
    objects = [*samples["group"], *samples["slots"]]
    stand.kubectl("create", "namespace", "samples")
    for entry in objects:
        entry.setdefault("metadata", {})["namespace"] = "samples"

    applied = stand.apply(*objects).stdout
    again = stand.apply(*objects).stdout

    assert applied.count(" created") == len(objects)
    assert again.count(" unchanged") == len(objects)
    stand.kubectl("delete", "namespace", "samples", "--timeout=60s")


def test_a_restart_in_the_middle_of_a_boot_loses_nothing(stand, wait_until):
    before = len(stand.commands("rack-1"))
    stand.cli("claim", "rack-1")
    stand.until_phase("rack-1", "booting")

    stand.kill_manager()

    stand.until_phase("rack-1", "ready")
    assert stand.commands("rack-1")[before:] == ["on"]
    stand.cli("unclaim", "rack-1")
    stand.until_phase("rack-1", "off")
    assert stand.commands("rack-1")[before:] == ["on", "off"]
    wait_until(lambda: not stand.get("nodeclaims"))


def test_nothing_is_written_in_five_idle_minutes(stand, wait_until):
    """Five minutes of the model's time, which is how often a slot is looked at though nothing happened."""
    wait_until(lambda: set(stand.phases().values()) == {"off"} and not stand.get("nodeclaims"))
    before = len(stand.manager_writes())
    # A wait for what never comes: sixteen seconds are five minutes and twenty seconds at this pace.
    stand.kubectl("wait", "--for=jsonpath={.status.phase}=never", "slot", "rack-1", "--timeout=16s", check=False)
    written = stand.manager_writes()[before:]

    assert [(write["resource"], write["name"], write["fields"]) for write in written] == []


def kubectl_of(stand):
    return stand.kubectl("version", "--client").args[0]
