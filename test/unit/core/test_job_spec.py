from homelab_api import names
from homelab_api.v2alpha1 import MinimalPodSpec
from homelab_autoscaler.lifecycle.job_spec import JobOptions, build_job, shutdown_job_name, startup_job_name

POD = MinimalPodSpec.model_validate(
    {
        "image": "registry.example.com/power:1",
        "command": ["wake"],
        "env": [{"name": "MAC", "value": "aa:bb"}, {"name": "HOMELAB_SLOT", "value": "forged"}],
        "volumes": [{"name": "bmc", "mountPath": "/secrets", "secretName": "bmc-01"}],
        "timeoutSeconds": 120,
    }
)


def build(make, claim=None):
    return build_job("j", "startup", make.slot(), claim, POD, JobOptions(), ["node-worker-02"])


def test_a_lifecycle_job_starts_suspended_runs_once_and_has_an_end(make):
    spec = build(make, make.claim())["spec"]
    assert spec["suspend"] is True
    assert spec["backoffLimit"] == 0
    assert spec["activeDeadlineSeconds"] == 120
    assert spec["ttlSecondsAfterFinished"] == 600
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] == 1


def test_its_pod_is_restricted_and_carries_no_token(make):
    pod = build(make)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "homelab-autoscaler-job"
    context = pod["containers"][0]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_its_environment_is_what_the_slot_declares_and_its_context_alone(make, monkeypatch):
    for name in ("HTTPS_PROXY", "NO_PROXY", "KUBECONFIG"):
        monkeypatch.setenv(name, "the manager's")
    pod = build(make)["spec"]["template"]["spec"]
    declared = [entry["name"] for entry in pod["containers"][0]["env"]]
    context = ["HOMELAB_SLOT", "HOMELAB_NODE", "HOMELAB_OPERATION", "HOMELAB_CLAIM", "JOB_NAME"]
    assert declared == ["MAC", *context]
    assert pod["enableServiceLinks"] is False


def test_it_never_runs_on_a_machine_of_a_pool_and_is_not_evicted_for_one(make):
    template = build(make)["spec"]["template"]
    terms = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": names.LABEL_GROUP, "operator": "DoesNotExist"},
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-worker-01", "node-worker-02"]},
    ]
    assert template["metadata"]["annotations"][names.ANNOTATION_SAFE_TO_EVICT] == "false"


def test_the_claim_is_its_controller_owner_and_the_slot_the_second(make):
    owners = build(make, make.claim())["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner.get("controller")) for owner in owners] == [("NodeClaim", True), ("Node", None)]
    alone = build(make)["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner.get("controller")) for owner in alone] == [("Node", True)]


def test_secrets_reach_the_script_as_files_and_its_context_cannot_be_forged(make):
    pod = build(make, make.claim())["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "bmc", "secret": {"secretName": "bmc-01"}}]
    env = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert env["HOMELAB_SLOT"] == "worker-01"
    assert env["MAC"] == "aa:bb"


def test_names_are_deterministic_and_fit_into_a_label(make):
    assert startup_job_name("worker-01-7f4b9c00", "u") == "worker-01-7f4b9c00-startup"
    assert shutdown_job_name(make.slot(), 4) == "worker-01-shutdown-4"
    assert len(startup_job_name("c" * 80, "0123-4567-89ab")) <= 63
    assert startup_job_name("c" * 80, "01234567") != startup_job_name("c" * 80, "76543210")
