"""In which order an operation writes, by the API server's log of one life: any instruction can be the last one."""

import pytest
from virtual.cluster import Cluster
from virtual.rest import at_rest

from homelab_api import names
from homelab_api.v2alpha1 import Call

pytestmark = pytest.mark.faults


def told(body, path):
    """A field of a stored object; None if it is not there."""
    for part in path:
        body = (body or {}).get(part)
    return body


def changed(write, *path):
    """Whether the write gave the field another value."""
    return told(write.before, path) != told(write.after, path)


SLOTS, CLAIMS, JOBS, NODES = f"{names.GROUP}/nodes", f"{names.GROUP}/nodeclaims", "batch/jobs", "/nodes"

CHANGES = (
    # where, subresource, the field that gets another value, what that is
    (SLOTS, "", ("metadata", "annotations", names.ANNOTATION_LOCK), lambda lock: f"lock {lock}" if lock else "unlock"),
    (SLOTS, "status", ("status", "lastClaim"), lambda _: "digest"),
    (SLOTS, "status", ("status", "phase"), lambda phase: f"report {phase}"),
    (CLAIMS, "", ("metadata", "finalizers"), lambda kept: "finalizer" if kept else "finalizer off"),
    (CLAIMS, "", ("spec", "deadlineAt"), lambda _: "deadline off"),
    (CLAIMS, "status", ("status", "phase"), lambda phase: f"claim {phase}"),
    (CLAIMS, "status", ("status", "shutdownAttempts"), lambda _: "count"),
    (CLAIMS, "status", ("status", "powerRequestedAt"), lambda _: "committed"),
    (CLAIMS, "status", ("status", "attempt"), lambda _: "seed"),
    (JOBS, "", ("spec", "suspend"), lambda _: "release"),
    (NODES, "", ("spec", "unschedulable"), lambda _: "cordon"),
    (NODES, "", ("spec", "providerID"), lambda _: "recognise"),
)


def step(write):
    """What a write of the operator is for; "" for what this file does not ask about."""
    where = f"{write.group}/{write.resource}"
    if write.verb == "create":
        return "evict" if write.subresource else f"job {write.after['metadata']['labels']['type']}"
    if write.verb == "delete":
        return "node off" if where == NODES else ""
    for place, subresource, field, name in CHANGES:
        if (place, subresource) == (where, write.subresource) and changed(write, *field):
            return name(told(write.after, field))
    return ""


class Life:
    """A claim by hand from its creation until nothing is left of it."""

    def __init__(self):
        with Cluster() as cluster:
            cluster.machine()
            cluster.start()
            cluster.run(1)
            self.born = cluster.clock.now()
            self.claim = cluster.ready(call=Call.MANUAL)
            cluster.pod("app")
            cluster.run(60)
            self.node = cluster.node()
            self.serving = cluster.fresh(self.claim)
            self.withdrawn = cluster.plane.server.store.revision
            cluster.unclaim(self.claim)
            cluster.until("at rest", lambda: at_rest(cluster))
            cluster.run(60)
            self.writes = [write for write in cluster.writes() if ":manager" in write.user]
            self.events = [said for said in cluster.said if said.name == self.claim.name]
            self.slot = cluster.slot()

    def steps(self, *wanted, withdrawn):
        """The steps of boot or end, in order, only those that the caller asks about."""
        some = [write for write in self.writes if (write.revision > self.withdrawn) is withdrawn]
        return [name for name in map(step, some) if name in wanted]

    def one(self, name):
        """The one write that is this step."""
        (found,) = [write for write in self.writes if step(write) == name]
        return found


@pytest.fixture(scope="module")
def life():
    return Life()


def test_a_boot_is_numbered_locked_remembered_and_named_before_its_job_runs(life):
    expected = [
        "seed",
        "lock scale-up",
        "finalizer",
        "job startup",
        "claim booting",
        "release",
        "committed",
        "report booting",
    ]
    assert life.steps(*expected, withdrawn=False) == expected
    booting = life.one("claim booting").after["status"]
    assert booting["jobName"] == life.one("job startup").name
    assert booting["nodeName"] == "node-m"


def test_a_machine_is_recognised_then_ready_then_without_deadline_then_unlocked_then_reported(life):
    expected = ["recognise", "claim ready", "deadline off", "unlock", "report ready"]
    assert life.steps(*expected, withdrawn=False) == expected
    ready = life.one("claim ready")
    assert ready.after["spec"]["deadlineAt"], "the phase lands first: a death between the two leaves an inert field"
    conditions = {entry["type"]: entry["status"] for entry in ready.after["status"]["conditions"]}
    assert (conditions["Ready"], conditions["MachineCommitted"]) == ("True", "True")


def test_a_shutdown_cordons_drains_and_counts_before_its_job_runs(life):
    expected = ["lock scale-down", "cordon", "evict", "count", "job shutdown", "release", "unlock"]
    assert life.steps(*expected, withdrawn=True) == expected
    locked = life.one("lock scale-down")
    assert changed(locked, "metadata", "annotations", names.ANNOTATION_SHUTDOWN_SEQ), "one write with the lock"
    cordon = life.one("cordon").after
    assert names.TAINT_DRAINING in {taint["key"] for taint in cordon["spec"]["taints"]}, "one write with the cordon"
    assert cordon["metadata"]["annotations"][names.ANNOTATION_CORDONED_BY] == "drain"
    assert life.one("count").after["status"]["shutdownJobName"] == life.one("job shutdown").name == "m-shutdown-1"


def test_an_end_is_written_on_the_claim_then_on_the_slot_and_the_finalizer_leaves_last(life):
    expected = ["claim completed", "digest", "node off", "finalizer off"]
    assert life.steps(*expected, withdrawn=True) == expected


def test_every_lifecycle_job_is_born_suspended_and_released_once(life):
    made = [write for write in life.writes if step(write).startswith("job ")]
    assert [write.after["spec"]["suspend"] for write in made] == [True, True]
    released = [write.name for write in life.writes if step(write) == "release"]
    assert sorted(released) == sorted(write.name for write in made)


def test_a_claim_says_each_of_its_moves_once_with_attempt_job_deadline_and_duration(life):
    assert [said.reason for said in life.events] == ["ClaimCreated", "ClaimBooting", "ClaimReady", "ClaimCompleted"]
    created, booting, ready, completed = (said.message for said in life.events)
    deadline = "2026-03-04T09:12:12Z"
    assert f"attempt 1, deadline {deadline}" in created
    assert "booting (StartupJobCreated), attempt 1, Job" in booting
    assert f"-startup, deadline {deadline}" in booting
    assert "after 1m" in ready
    assert "completed (NodeDeleted), attempt 1" in completed


def test_a_claims_attempt_phase_and_slot_digest_are_each_written_once_for_one_event(life):
    stamped = [write for write in life.writes if write.resource == "nodeclaims" and changed(write, "status", "attempt")]
    assert len(stamped) == 1
    digested = [write for write in life.writes if step(write) == "digest"]
    assert len(digested) == 1
    assert life.slot.status.last_claim.uid == life.claim.uid


def test_a_claims_status_is_about_its_present_spec_when_its_machine_is_ready(life):
    """`kubectl wait --for=condition=Ready` does not take the word of a status about an older spec."""
    assert life.serving.metadata.generation == 2, "the deadline was cleared"
    assert life.serving.status.observed_generation == 2
    assert not [write for write in life.writes if write.fields == ("status.observedGeneration",)], "no write of its own"


def test_what_a_claim_needs_is_stamped_on_its_node(life):
    node = life.node
    assert node.metadata.labels[names.LABEL_GROUP] == "pool"
    assert node.metadata.labels[names.LABEL_NODE] == "m"
    assert node.spec.provider_id == f"homelab://lab/m/{life.claim.uid}"
    assert node.metadata.annotations[names.ANNOTATION_SCALE_DOWN_DISABLED] == "true", "claimed by hand"


def test_jobs_tell_people_their_slot_pool_claim_and_kind(life):
    for kind in ("startup", "shutdown"):
        labels = life.one(f"job {kind}").after["metadata"]["labels"]
        assert labels[names.LABEL_NODE] == "m"
        assert labels[names.LABEL_GROUP] == "pool"
        assert labels[names.LABEL_NODECLAIM] == life.claim.name
        assert labels[names.LABEL_JOB_TYPE] == kind
        owners = life.one(f"job {kind}").after["metadata"]["ownerReferences"]
        assert [(owner["kind"], owner.get("controller", False)) for owner in owners] == [
            ("NodeClaim", True),
            ("Node", False),
        ]


def test_a_slot_tells_whether_the_autoscaler_counts_it(life):
    told_of = []
    for write in life.writes:
        if write.group == names.GROUP and write.resource == "nodes" and write.subresource == "status":
            said = {entry["type"]: entry["reason"] for entry in write.after["status"]["conditions"]}
            told_of.append(said.get("Autoscaler"))
    assert list(dict.fromkeys(told_of)) == ["NotInTarget", "InTarget", "Deleting"]
    assert told_of[-1] == "NotInTarget"
