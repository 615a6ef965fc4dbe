"""An applier that writes what the operator writes: kind gitops-fight."""

import pytest

from homelab_api.v2alpha1 import Group, Node
from homelab_autoscaler.runtime import MergePatch


class Applier:
    """What a GitOps tool with self-heal does every half a minute: the manifests win wherever they say something."""

    def __init__(self, cluster, *, prune_annotations=False):
        self.cluster = cluster
        self.body = cluster.slot_body("m")
        self._prune = prune_annotations

    def sync(self):
        """Make what is live what Git says, as a merge of the manifest does."""
        body = {"spec": self.body["spec"], "metadata": {"labels": self.body["metadata"]["labels"]}}
        if self._prune:
            live = self.cluster.slot()
            foreign = dict.fromkeys(live.metadata.annotations)
            body["metadata"]["annotations"] = foreign
        self.cluster.client.patch(Node, "m", "lab", MergePatch(body))
        self.cluster.client.patch(Group, "pool", "lab", MergePatch({"spec": {"minSize": 0}}))

    def pass_time(self, until, within=1800, every=30):
        """Let time pass with a sync now and then."""
        waited = 0
        while not until():
            assert waited < within, self.cluster.describe()
            self.cluster.run(every)
            self.sync()
            waited += every


@pytest.mark.parametrize("every", [1, 30])
@pytest.mark.parametrize("prune", [False, True], ids=["keeps annotations", "removes unknown annotations"])
def test_a_whole_life_under_self_heal_is_a_life_without_it(cluster, prune, every):
    cluster.machine()
    git = Applier(cluster, prune_annotations=prune)
    for _ in range(2):
        claim = cluster.claim()
        git.pass_time(lambda claim=claim: cluster.phase(claim) == "ready", every=every)
        cluster.unclaim(claim)
        git.pass_time(lambda claim=claim: cluster.phase(claim) == "gone", every=every)
        cluster.run(180)
    assert cluster.commands() == ["on", "off", "on", "off"]
    assert cluster.slot().metadata.generation == 1, "nobody of ours wrote what Git declares"
    assert cluster.get(Group, "pool").metadata.generation <= 2


def test_what_git_leaves_out_is_filled_once_and_never_changes_again(cluster):
    cluster.client.create_json(Group, {"metadata": {"name": "least", "namespace": "lab"}, "spec": {}}, "lab")
    cluster.machine(group="least")
    before = cluster.slot().spec, cluster.get(Group, "least").spec
    claim = cluster.ready()
    cluster.run(3600)
    cluster.unclaim(claim)
    cluster.until("gone", lambda: cluster.phase(claim) == "gone")
    assert (cluster.slot().spec, cluster.get(Group, "least").spec) == before
    assert cluster.slot().metadata.generation == cluster.get(Group, "least").metadata.generation == 1


@pytest.mark.parametrize("wish", ["on", "off"])
def test_a_power_wish_of_an_older_version_in_git_moves_no_machine(cluster, wish):
    cluster.machine()
    claim = cluster.ready() if wish == "off" else None
    for _ in range(20):
        cluster.client.patch(Node, "m", "lab", MergePatch({"spec": {"desiredPowerState": wish}}))
        cluster.run(30)
    assert cluster.commands() == (["on"] if claim else [])
    assert cluster.slot().metadata.generation == 1, "the field is not kept"


def test_a_shutdown_script_that_was_changed_in_git_is_the_one_that_runs_next(cluster):
    cluster.machine()
    claim = cluster.ready()
    git = Applier(cluster)
    git.body["spec"]["shutdownPodSpec"] = {"image": "power-2", "command": ["off", "m"]}
    git.sync()
    cluster.unclaim(claim)
    cluster.until("it runs", lambda: "off" in cluster.commands())
    job = next(entry for entry in cluster.jobs() if "shutdown" in entry.name)
    assert cluster.raw("batch", "jobs", job.name)["spec"]["template"]["spec"]["containers"][0]["image"] == "power-2"
