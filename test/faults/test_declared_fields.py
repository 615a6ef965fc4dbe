"""Every field of every kind, spoilt in each phase of a machine and put back: it is refused, or it does no harm.

On virtual time. Refused means: the object stays as it was, and the message names the field. Taken means: no pass ends
with a bug or wakes itself without end, and once the old value is back the machine still ends off when nobody wants it,
and boots when somebody does.
"""

import re

import pytest
from declared import VALUES, fields, patched
from virtual.rest import at_rest

from homelab_api.v2alpha1 import Group, Node, NodeClaim
from homelab_autoscaler.runtime import ApiError, MergePatch

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

KINDS = {"Group": Group, "Node": Node, "NodeClaim": NodeClaim}
PHASES = ("off", "booting", "ready", "shutting down")
MOST_PASSES = 400
"""Of all controllers in the half minute after a change."""


class Life:
    """One machine that is kept in a phase, whatever is done to what was declared."""

    def __init__(self, cluster, phase):
        self.cluster = cluster
        self.phase = phase
        self.claim = None
        cluster.machine(boot_seconds=45.0, stop_seconds=45.0)
        self.specs = {kind: self.of(kind).to_json()["spec"] for kind in (Group, Node)}

    def of(self, kind):
        return self.cluster.get(kind, {Group: "pool", Node: "m"}.get(kind) or self.claim.name)

    def reach(self):
        """Bring the machine into the phase, by a new request if need be."""
        if self.phase == "off" or self.there():
            return
        self.rest()
        self.claim = self.cluster.claim()
        if self.phase == "booting":
            self.cluster.until("the power-on was sent", lambda: self.cluster.power() == "booting")
            return
        self.cluster.until("ready", lambda: self.cluster.phase(self.claim) == "ready")
        if self.phase == "shutting down":
            self.cluster.unclaim(self.claim)
            self.cluster.until("the power-off was sent", lambda: self.cluster.power() == "stopping")

    def there(self):
        if self.claim is None or self.cluster.fresh(self.claim) is None:
            return False
        if self.phase == "ready":
            return self.cluster.phase(self.claim) == "ready"
        return self.cluster.power() == {"booting": "booting", "shutting down": "stopping"}[self.phase]

    def rest(self):
        """Nobody wants the machine: it has to end off."""
        for claim in self.cluster.claims():
            if claim.live and not claim.marked:
                self.cluster.unclaim(claim)
        self.cluster.until("at rest", lambda: at_rest(self.cluster, by_us=False), within=4 * 3600, step=10.0)

    def put_back(self, kind):
        current = self.of(kind).to_json()
        self.cluster.client.update(kind.from_json({**current, "spec": self.specs[kind]}))


def stored(life, kind):
    found = life.of(kind)
    return None if found is None else found.to_json()["spec"]


def attempt(cluster, model, name, spec):
    """Why it was refused, None if it was taken."""
    try:
        cluster.client.patch(model, name, "lab", MergePatch({"spec": spec}))
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_spoilt_field_is_refused_by_name_or_does_no_harm(cluster, kind, phase):
    model = KINDS[kind]
    life = Life(cluster, phase)
    if model is NodeClaim and phase == "off":
        life.phase = "ready"
    taken = refused = 0
    for path in fields(kind):
        for what, value in VALUES.items():
            life.reach()
            before = stored(life, model)
            name = life.of(model).name
            refusal = attempt(cluster, model, name, patched(path, value))
            if refusal is not None:
                refused += 1
                assert refusal.status in {400, 422}, (path, what, refusal)
                # A rule about an object that is missing a part names the object.
                assert {path[0], path[-1]} & set(re.findall(r"\w+", str(refusal))), (path, what, str(refusal))
                assert stored(life, model) == before, (path, what)
                continue
            if stored(life, model) == before:
                continue
            taken += 1
            passes = sum(cluster.operator.passes.values())
            cluster.run(30)
            assert sum(cluster.operator.passes.values()) - passes < MOST_PASSES, (path, what)
            if model is not NodeClaim:
                life.put_back(model)
    assert refused
    assert taken or model is NodeClaim
    life.rest()
    last = cluster.ready()
    cluster.unclaim(last)
    life.rest()
