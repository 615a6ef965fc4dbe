"""Every uncached read of the operator may be answered from an older revision, by the embedded server's own fault.

A real API server answers such reads with the present. What is shown here: a release is bound to the Job as it is, a
move to the claim as it was read, and what is decided from the past is decided again.
"""

import pytest
from virtual.rest import at_rest

from homelab_autoscaler.sandbox.apiserver import Fault

pytestmark = pytest.mark.faults
OPERATOR = "system:serviceaccount:homelab:*"
KINDS = ["nodeclaims", "jobs", "infra.homecluster.dev/nodes", "/nodes", "*"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("revisions", [2, 12])
def test_a_boot_and_a_shutdown_with_reads_from_the_past_send_each_command_once(cluster, kind, revisions):
    """A second read from before the claim was made withdraws its Job: then it fails at its deadline, and nothing was
    switched on."""
    cluster.machine()
    cluster.until("seen", lambda: cluster.slot().status.phase == "off")
    fault = Fault(kind="stale-read", resource=kind, user=OPERATOR, revisions=revisions, probability=0.5)
    rule = cluster.in_loop(lambda: cluster.plane.server.faults.add(fault))
    claim = cluster.claim()
    cluster.until("a verdict", lambda: cluster.phase(claim) in {"ready", "failed"})
    served = cluster.phase(claim) == "ready"
    if served:
        cluster.unclaim(claim)
        cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    hits = cluster.in_loop(lambda: cluster.plane.server.faults.hits(rule))
    cluster.in_loop(lambda: cluster.plane.server.faults.remove(rule))
    cluster.until("free", lambda: at_rest(cluster))
    assert hits
    assert served or revisions > 2
    assert cluster.commands() == (["on", "off"] if served else ["off"])


@pytest.mark.parametrize("moment", ["its boot begins", "its power-on was sent"])
@pytest.mark.parametrize("revisions", [2, 12])
def test_a_claim_withdrawn_while_reads_are_from_the_past_leaves_nothing_on(cluster, moment, revisions):
    cluster.machine()
    cluster.until("seen", lambda: cluster.slot().status.phase == "off")
    fault = Fault(kind="stale-read", user=OPERATOR, revisions=revisions)
    rule = cluster.in_loop(lambda: cluster.plane.server.faults.add(fault))
    claim = cluster.claim()
    if moment != "its boot begins":
        cluster.until("sent", lambda: "on" in cluster.commands(), step=0.2)
    cluster.unclaim(claim)
    cluster.run(60)
    cluster.in_loop(lambda: cluster.plane.server.faults.remove(rule))
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    cluster.until("free", lambda: at_rest(cluster))
    assert cluster.commands().count("on") <= 1
    assert cluster.commands()[-1:] in ([], ["off"])
