"""Admission's flags: what the manager's policy becomes, and what is refused before anything runs."""

import pytest

from homelab_autoscaler.cli.failure import CommandError, UsageError
from homelab_autoscaler.cli.run_webhook import AdmissionFlags, account_of, manager_user
from homelab_autoscaler.install.rights import SECRETS
from homelab_autoscaler.runtime import ForbiddenError, NotFoundError
from homelab_autoscaler.webhook.caller import SelfSubjectReview

GRPC = "homelab-autoscaler-grpc"


class Server:
    """Answers who asks, or fails."""

    def __init__(self, answer):
        self.answer = answer

    def create_json(self, kind, body, namespace):
        if isinstance(self.answer, Exception):
            raise self.answer
        return SelfSubjectReview.from_json({"status": {"userInfo": {"username": self.answer}}})


def fields(policy, slot):
    return sorted(path for path, _ in policy.violations(slot))


def slot_with(make, **pod):
    return make.slot(spec={"startupPodSpec": {"image": "local", **pod}})


def volumes(*secrets):
    return [{"name": f"v{i}", "mountPath": f"/{i}", "secretName": name} for i, name in enumerate(secrets)]


def test_the_managers_own_account_and_every_secret_of_its_own_are_forbidden_without_a_flag(make):
    policy = AdmissionFlags().policy("homelab-autoscaler", GRPC)
    slot = slot_with(make, serviceAccount="homelab-autoscaler", volumes=volumes(*SECRETS, "bmc"))
    mounted = [f"spec.startupPodSpec.volumes[{i}].secretName" for i in range(len(SECRETS))]
    assert fields(policy, slot) == ["spec.startupPodSpec.serviceAccount", *mounted]


def test_without_a_flag_everything_else_is_allowed_and_with_one_only_what_it_names(make):
    slot = slot_with(make, serviceAccount="mine", volumes=volumes("bmc-1"))
    assert fields(AdmissionFlags().policy(None, GRPC), slot) == []
    narrow = AdmissionFlags(images=("elsewhere/*",), secrets=("bmc-*",), service_accounts=("other",))
    complaints = fields(narrow.policy(None, GRPC), slot)
    assert "spec.startupPodSpec.image" in complaints
    assert "spec.startupPodSpec.serviceAccount" in complaints
    assert "spec.startupPodSpec.volumes[0].secretName" not in complaints


def test_a_service_account_is_told_from_a_person():
    assert account_of("system:serviceaccount:homelab-autoscaler-system:homelab-autoscaler") == "homelab-autoscaler"
    assert account_of("alice") is None


def test_an_api_server_that_is_too_old_for_admission_is_named_before_anything_runs():
    old = Server(NotFoundError("the server could not find the requested resource"))
    with pytest.raises(UsageError, match=r"--webhook-address: .* use Kubernetes 1\.28 or later"):
        manager_user(old, AdmissionFlags(address=":9443"))
    assert manager_user(old, AdmissionFlags()) == ""


def test_admission_does_not_start_without_knowing_the_manager_and_nothing_else_depends_on_it():
    closed = Server(ForbiddenError("no"))
    with pytest.raises(CommandError, match="who we are"):
        manager_user(closed, AdmissionFlags(address=":9443"))
    assert manager_user(closed, AdmissionFlags()) == ""
    assert manager_user(Server("alice"), AdmissionFlags(address=":9443")) == "alice"
