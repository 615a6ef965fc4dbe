"""Everything that the types can hold travels through the API server and back without a loss."""

from datetime import UTC, datetime, timedelta

import pytest

from homelab_api.crd import definitions
from homelab_api.meta import Condition, ObjectMeta
from homelab_api.v2alpha1 import (
    Call,
    ClaimPhase,
    Drain,
    EnvVar,
    Group,
    GroupHealth,
    GroupSpec,
    GroupStatus,
    LastClaim,
    MinimalPodSpec,
    Node,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeReclaim,
    NodeReclaimSpec,
    NodeReclaimStatus,
    NodeTemplate,
    PowerState,
    Pricing,
    Reason,
    ReclaimPhase,
    ReclaimSource,
    SlotPhase,
    SlotRef,
    SlotSpec,
    SlotStatus,
    SlotTransition,
    Volume,
    Watts,
)
from homelab_api.v2alpha1.group import DEFAULT_READINESS_TAINT

WHEN = datetime(2026, 3, 4, 9, 38, 15, 250000, tzinfo=UTC)
TAINT = DEFAULT_READINESS_TAINT.model_copy(update={"value": "x"})
CONDITION = Condition(
    type="Ready", status="Unknown", reason="Why", message="because", last_transition_time=WHEN, observed_generation=2
)
POD = MinimalPodSpec(
    image="example/power:1",
    command=["power"],
    args=["on"],
    env=[EnvVar(name="HOST", value="bmc")],
    volumes=[
        Volume(name="secret", mount_path="/secret", secret_name="bmc"),
        Volume(name="config", mount_path="/config", config_map_name="bmc"),
    ],
    service_account="power",
    ttl_seconds_after_finished=700,
    timeout_seconds=90,
    node_selector={"role": "infra"},
    tolerations=[
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        {"operator": "Exists"},
    ],
    resources={"requests": {"cpu": "10m"}, "limits": {"memory": "16Mi"}},
)
METADATA = ObjectMeta(name="w1")

FULL = [
    Group(
        metadata=METADATA,
        spec=GroupSpec(
            scale_down_utilization_threshold="0.5",
            scale_down_gpu_utilization_threshold="1.0",
            scale_down_unneeded_time=timedelta(minutes=10),
            scale_down_unready_time=timedelta(minutes=20),
            max_node_provision_time=timedelta(minutes=15),
            zero_or_max_node_scaling=True,
            ignore_daemon_sets_utilization=True,
            node_readiness_taints=[TAINT],
            node_taints=[TAINT],
            node_labels={"example.com/rack": "1"},
            min_size=1,
            max_size=3,
            template=NodeTemplate(
                capacity={"cpu": "8"}, allocatable={"cpu": "7500m"}, labels={"disk": "nvme"}, taints=[TAINT]
            ),
            drain=Drain(timeout=timedelta(seconds=90.5), force=False),
            adopt_running_machines=True,
            delete_node_objects=False,
        ),
        status=GroupStatus(
            slots=3,
            on=1,
            off=2,
            target=1,
            health=GroupHealth.DEGRADED,
            last_scale_at=WHEN,
            last_scale_action="0 -> 1",
            conditions=[CONDITION],
            observed_generation=2,
        ),
    ),
    Node(
        metadata=METADATA,
        spec=SlotSpec(
            kubernetes_node_name="node-1.lan",
            startup_pod_spec=POD,
            shutdown_pod_spec=POD,
            reclaim_pod_spec=POD,
            pricing=Pricing(hourly_rate="0.012", pod_rate="0.001"),
            watts=Watts(idle=20, max=90),
            capacity={"nvidia.com/gpu": "1"},
            node_labels={"disk": "nvme"},
            node_taints=[TAINT],
            taints_to_remove=[TAINT],
            kill_if_commands=["steam"],
            paused=True,
            allow_control_plane=True,
        ),
        status=SlotStatus(
            power_state=PowerState.ON,
            phase=SlotPhase.DRAINING,
            claim="w1-7f4b9c00",
            last_claim=LastClaim(
                name="w1-00000000",
                uid="u",
                phase=ClaimPhase.FAILED,
                attempt=2,
                call=Call.INCREASE_SIZE,
                group="rack",
                reason=Reason.STARTUP_JOB_FAILED,
                requested_at=WHEN,
                deadline_at=WHEN,
                finished_at=WHEN,
                reached_ready=True,
                streak_at=WHEN,
            ),
            last_transition_time=WHEN,
            previous_phase=SlotPhase.READY,
            recent_transitions=[
                SlotTransition(at=WHEN, from_phase=SlotPhase.READY, to=SlotPhase.DRAINING, claim="c", reason="r")
            ],
            recent_activations=[WHEN],
            activations_total=7,
            activations_last24_h=1,
            conditions=[CONDITION],
            observed_generation=2,
        ),
    ),
    NodeClaim(
        metadata=METADATA,
        spec=NodeClaimSpec(
            slot_ref=SlotRef(name="w1"),
            call=Call.SCHEDULE,
            group="rack.left",
            requested_at=WHEN,
            deadline_at=WHEN,
            max_node_provision_time=timedelta(minutes=15),
            ttl_seconds_after_finished=120,
        ),
        status=NodeClaimStatus(
            phase=ClaimPhase.BOOTING,
            reason=Reason.STARTUP_JOB_CREATED,
            message="Job w1-startup",
            attempt=2,
            node_name="node-1.lan",
            inherited_debt=True,
            job_name="w1-startup",
            shutdown_attempts=1,
            last_shutdown_attempt_at=WHEN,
            shutdown_job_name="w1-shutdown-1",
            started_at=WHEN,
            power_requested_at=WHEN,
            ready_at=WHEN,
            finished_at=WHEN,
            conditions=[CONDITION],
            observed_generation=2,
        ),
    ),
    NodeReclaim(
        metadata=METADATA,
        spec=NodeReclaimSpec(
            slot_ref=SlotRef(name="w1"),
            node_uid="u",
            reason="steam",
            requested_at=WHEN,
            source=ReclaimSource.AGENT,
            scheduled_machine="evenings",
        ),
        status=NodeReclaimStatus(phase=ReclaimPhase.HELD, conditions=[CONDITION], observed_generation=2),
    ),
]
IDS = [type(entry).__name__ for entry in FULL]


def leaves(schema, path=""):
    """Paths of all fields of a schema, list items included."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from leaves(child.get("items", child), f"{path}.{name}")


def holds(value, names):
    """Whether any object on the way has the field set."""
    if isinstance(value, list):
        return any(holds(entry, names) for entry in value)
    if not names:
        return value not in (None, "", [], {}, 0)
    return isinstance(value, dict) and holds(value.get(names[0]), names[1:])


@pytest.mark.parametrize("full", FULL, ids=IDS)
def test_the_example_sets_every_field_that_the_schema_has(full):
    crd = next(crd for crd in definitions() if crd["spec"]["names"]["kind"] == full.resource.kind)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    body = full.to_json()
    false = {".spec.drain.force", ".spec.deleteNodeObjects"}
    for part in ("spec", "status"):
        for path in leaves(schema["properties"][part], f".{part}"):
            assert path in false or holds(body, path.strip(".").split(".")), path


@pytest.mark.parametrize("full", FULL, ids=IDS)
def test_nothing_is_lost_between_the_types_and_the_api_server(api, place, full):
    body = full.to_json()
    path = f"{place}/{full.resource.plural}"
    created = api.create(path, body, fieldValidation="Strict")
    assert created["spec"] == body["spec"]
    patched = api.patch(f"{path}/{full.name}/status", {"status": body["status"]}, fieldValidation="Strict")
    assert patched["status"] == body["status"]
    read = type(full).from_json(api.get(f"{path}/{full.name}"))
    assert read.spec == full.spec
    assert read.status == full.status
