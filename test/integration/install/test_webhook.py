"""Admission as it is installed: asked by the API server over TLS, with the authority that the manager gave it."""

import re

import pytest
from installed.claims import claim_body, create_claim
from installed.world import MANAGER_USER

from homelab_api.v2alpha1 import Call, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE
from homelab_autoscaler.runtime import ApiError, ForbiddenError, MergePatch
from homelab_autoscaler.runtime.webhook.model import ValidatingWebhookConfiguration

pytestmark = [pytest.mark.any_control_plane, pytest.mark.timeout(300)]


def refusal(action):
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value


@pytest.fixture(scope="module")
def manager(installed):
    with installed.manager():
        yield


def first_claim(pool, slot):
    """A live claim of the slot, made as the manager's own creators make them."""
    claim = pool.claim(slot, Call.MANUAL)
    pool.until("booting", lambda: pool.phase(claim) == "booting")
    return claim


@pytest.mark.usefixtures("manager")
def test_a_second_live_claim_is_refused_in_the_words_that_people_were_promised(installed, pool, person):
    slot = installed.machine(pool, "seed", boot_seconds=60)
    first = first_claim(pool, slot)
    error = refusal(lambda: create_claim(person, "second", slot))
    assert error.message == (
        f'admission webhook "nodeclaim-v2alpha1.kb.io" denied the request: spec.slotRef: Forbidden: slot "{slot}" '
        f'already has the live NodeClaim "{first.name}" in phase "booting": one live claim per slot'
    )
    shown = installed.kubectl(
        "create", "-f", "-", user="person", check=False, stdin=str(claim_body("second", slot)).replace("'", '"')
    )
    # kubectl adds the file's name to what the server says, and nothing else.
    assert shown.stderr.replace('error when creating "STDIN": ', "").strip() == f"Error from server: {error.message}"
    assert [claim.name for claim in pool.claims() if claim.slot_name == slot] == [first.name]


@pytest.mark.usefixtures("manager")
def test_deletes_statuses_and_finalizers_pass_whatever_admission_thinks_of_the_object(installed, pool, person):
    slot = installed.machine(pool, "kept", boot_seconds=60)
    claim = first_claim(pool, slot)
    patch = {"status": {"shutdownAttempts": 0}}
    person.patch(NodeClaim, claim.name, POOLS_NAMESPACE, MergePatch(patch), subresource="status")
    # Another slot for the same node is refused; one that is there by other ways stays editable and deletable.
    error = refusal(lambda: pool.create_slot("twin", f"node-{slot}"))
    assert "node-v2alpha1.kb.io" in error.message
    assert f"belongs to slot {POOLS_NAMESPACE}/{slot}: one slot per node" in error.message
    person.delete(NodeClaim, claim.name, POOLS_NAMESPACE)
    person.delete(Node, slot, POOLS_NAMESPACE)
    pool.until("gone", lambda: slot not in {found.name for found in installed.client.list(Node, POOLS_NAMESPACE).items})


@pytest.mark.usefixtures("manager")
def test_slots_cannot_reach_the_managers_rights_and_adoption_is_the_managers_alone(installed, pool, person):
    pod = {"image": "local", "serviceAccount": MANAGER}
    secret = {"name": "s", "mountPath": "/s", "secretName": "homelab-autoscaler-grpc-ca"}
    error = refusal(
        lambda: pool.create_slot("sly", "sly", startup=pod, shutdown={"image": "local", "volumes": [secret]})
    )
    assert "spec.startupPodSpec.serviceAccount: Forbidden" in error.message
    assert "spec.shutdownPodSpec.volumes[0].secretName: Forbidden" in error.message
    slot = installed.machine(pool, "adopted")
    error = refusal(lambda: create_claim(person, "adopt", slot, call="Adopt"))
    assert re.search(r'spec\.call: Forbidden: "Adopt" is for the manager alone', error.message)
    with_right = installed.acting_as(MANAGER_USER)
    assert create_claim(with_right, "adopt", slot, call="Adopt").spec.call == "Adopt"


@pytest.mark.usefixtures("manager")
def test_who_may_create_reclaims_needs_the_verb_reclaim_as_well(installed, pool, person):
    slot = installed.machine(pool, "owned")
    body = {"metadata": {"name": slot}, "spec": {"slotRef": {"name": slot}, "source": "Manual"}}
    error = refusal(lambda: person.create_json(NodeReclaim, body, POOLS_NAMESPACE))
    assert isinstance(error, ForbiddenError)
    assert 'grant verb "reclaim" on "nodereclaims"' in error.message
    installed.kubectl(
        "create", "rolebinding", "owner", f"--namespace={POOLS_NAMESPACE}", "--user=person",
        "--clusterrole=homelab-autoscaler-owner",
    )  # fmt: skip
    assert person.create_json(NodeReclaim, body, POOLS_NAMESPACE).name == slot


@pytest.mark.usefixtures("manager")
def test_a_namespace_that_nobody_serves_gets_a_warning_and_no_refusal(installed):
    installed.kubectl("create", "namespace", "aside")
    body = str(claim_body("alone", "no-slot")).replace("'", '"')
    done = installed.kubectl("create", "--namespace=aside", "-f", "-", stdin=body)
    assert f'Warning: the manager serves namespace "{POOLS_NAMESPACE}" only' in done.stderr


@pytest.mark.usefixtures("manager")
def test_applying_the_install_again_keeps_the_authority_of_the_certificate(installed):
    def bundles():
        found = installed.client.get(ValidatingWebhookConfiguration, MANAGER)
        return {webhook["clientConfig"].get("caBundle") for webhook in found.webhooks}

    before = bundles()
    assert before
    assert None not in before
    installed.apply()
    assert bundles() == before
