import pytest

from homelab_api.core import Pod
from homelab_api.meta import ObjectMeta
from homelab_api.names import LABEL_LEADER
from homelab_autoscaler.claim.testing import Fault
from homelab_autoscaler.provider.leader import LeaderLabel
from homelab_autoscaler.runtime.errors import ForbiddenError

SYSTEM = "homelab-autoscaler-system"


@pytest.fixture
def pods(store):
    for name in ("a", "b"):
        store.put(Pod(metadata=ObjectMeta(name=name, namespace=SYSTEM, labels={"app": "manager"})))
    return store


def leaders(store):
    return [pod.name for pod in store.all(Pod) if pod.metadata.labels.get(LABEL_LEADER) == "true"]


def test_the_leaders_pod_is_the_only_one_with_the_label(pods):
    LeaderLabel(pods, "a", SYSTEM).claim()
    assert leaders(pods) == ["a"]
    LeaderLabel(pods, "b", SYSTEM).claim()
    assert leaders(pods) == ["b"]


def test_other_labels_stay(pods):
    label = LeaderLabel(pods, "a", SYSTEM)
    label.claim()
    label.clear()
    assert pods.get(Pod, "a", SYSTEM).metadata.labels == {"app": "manager"}


def test_outside_a_pod_nothing_is_asked_or_written(pods, monkeypatch):
    monkeypatch.delenv("POD_NAME", raising=False)
    label = LeaderLabel.from_environment(pods)
    label.claim()
    label.clear()
    assert pods.writes == []


def test_the_pod_is_the_one_that_the_environment_names(pods, monkeypatch):
    monkeypatch.setenv("POD_NAME", "b")
    monkeypatch.setenv("POD_NAMESPACE", SYSTEM)
    LeaderLabel.from_environment(pods).claim()
    assert leaders(pods) == ["b"]


@pytest.mark.parametrize("verb", ["patch", "list"])
def test_a_missing_right_does_not_keep_the_provider_from_serving(pods, verb):
    pods.faults.append(Fault(ForbiddenError("no", status=403), verb=verb))
    LeaderLabel(pods, "a", SYSTEM).claim()
    assert leaders(pods) in ([], ["a"])
