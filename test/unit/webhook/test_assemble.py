"""What the handlers do with what the caches cannot tell."""

import pytest

from homelab_autoscaler.pod_policy import PodPolicy
from homelab_autoscaler.runtime.webhook import AdmissionRequest, NotReadyError
from homelab_autoscaler.webhook.assemble import PATH_CLAIMS, PATH_GROUPS, PATH_RECLAIMS, PATH_SLOTS, handlers


class Empty:
    """A manager whose caches hold nothing, and have or have not been filled yet."""

    client = None

    def __init__(self, *missing):
        self.missing = missing
        self.cache = self

    def lister(self, kind):
        return self

    def unsynced(self):
        return list(self.missing)

    def get(self, name, namespace=None):
        return None

    def by_index(self, index, value):
        return []


def judges(manager, namespace=None):
    return handlers(manager, PodPolicy(), "manager", namespace, by_slot="s", by_node="n", by_group="g")


def creation(body, namespace="lab"):
    return AdmissionRequest(uid="1", operation="CREATE", namespace=namespace, user="alice", object=body)


@pytest.mark.parametrize("path", [PATH_CLAIMS, PATH_SLOTS, PATH_GROUPS, PATH_RECLAIMS])
def test_nothing_is_judged_by_a_cache_that_is_not_filled_yet(make, path):
    with pytest.raises(NotReadyError, match="nodes"):
        judges(Empty("nodes"))[path](creation(make.claim().to_json()))


def test_what_another_namespace_holds_is_not_guessed_from_the_own_one(make):
    elsewhere = judges(Empty(), "lab")[PATH_CLAIMS](creation(make.claim().to_json(), "aside"))
    assert elsewhere.allowed
    (warning,) = elsewhere.warnings
    assert 'serves namespace "lab" only' in warning
    assert not judges(Empty(), "lab")[PATH_CLAIMS](creation(make.claim().to_json())).allowed
