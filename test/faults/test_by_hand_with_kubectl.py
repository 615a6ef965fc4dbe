"""What the pages on reasons tell a person to type, typed with real kubectl."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from installed.world import kubectl

from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.sandbox.machines.spec import Firmware

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
PAGE = Path(__file__).parents[2] / "docs" / "reasons" / "ShutdownAttemptLimitReached.md"


def documented_patch():
    """The patch of the page, as it stands there."""
    found = re.search(r"--subresource=status --type=merge -p\s+'([^']*)'", PAGE.read_text(encoding="utf-8"))
    assert found, "the page says how to try again at once"
    return found.group(1)


def test_the_documented_patch_starts_the_spent_shutdowns_anew_while_their_jobs_are_still_there(scene_of, quick):
    """The pause would last long. The finished Jobs of the spent attempts neither stop nor stand for a new one."""
    scene = scene_of(settings=quick(off_settle=2, shutdown_pause=600), power_off=Firmware.REFUSE)
    scene.manager()
    claim = scene.ready()
    scene.pool.unclaim(claim)
    scene.pool.until("the attempts are spent", lambda: _human(scene, claim) == "True")
    spent = [job.name for job in scene.pool.jobs() if "-shutdown-" in job.name]
    assert (len(spent), scene.commands) == (3, ["on", "off", "off", "off"])

    scene.world.behave(scene.machine, power_off=Firmware.OBEY)
    kubectl(
        "patch",
        "nodeclaim",
        claim.name,
        "-n",
        scene.pool.namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
        documented_patch(),
        kubeconfig=scene.world.kubeconfig,
    )

    scene.until_at_rest()
    assert scene.commands[:5] == ["on", *["off"] * 4]
    results = [entry.result for entry in scene.world.ledger(scene.machine)]
    assert results[1:5] == [*["refused"] * 3, "accepted"]
    names = {job.name for job in scene.pool.jobs() if "-shutdown-" in job.name}
    assert names > set(spent), "the first ones are still there, and the fourth is a Job of its own"


def _human(scene, claim):
    found = scene.pool.client.get(NodeClaim, claim.name, scene.pool.namespace).condition("NeedsHuman")
    return found.status if found else ""
