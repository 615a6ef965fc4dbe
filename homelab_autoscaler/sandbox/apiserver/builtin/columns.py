"""The columns of `kubectl get` for built-in kinds. Priority 1 columns show with `-o wide`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from homelab_autoscaler.sandbox.apiserver.presentation.ages import age, human
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject

Cell: TypeAlias = "Callable[[JsonObject, datetime], Any]"
_NONE = "<none>"


def _at(path: str, default: Any = "") -> Cell:
    keys = path.split(".")

    def cell(body: JsonObject, _now: datetime) -> Any:
        value: Any = body
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


def _age(body: JsonObject, now: datetime) -> str:
    return age(body["metadata"].get("creationTimestamp"), now)


AGE = Column("Age", "string", _age, "How long ago the object was created.")
DEFAULT = (
    Column("Created At", "date", lambda body, _: body["metadata"].get("creationTimestamp"), "When it was created."),
)


def _node_status(body: JsonObject, _now: datetime) -> str:
    ready = next(
        (item for item in (body.get("status") or {}).get("conditions") or [] if item.get("type") == "Ready"), None
    )
    word = {"True": "Ready"}.get(ready.get("status", ""), "NotReady") if ready else "Unknown"
    return word + (",SchedulingDisabled" if (body.get("spec") or {}).get("unschedulable") else "")


def _node_roles(body: JsonObject, _now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = body["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or _NONE


def _node_address(kind: str) -> Cell:
    def cell(body: JsonObject, _now: datetime) -> str:
        for item in (body.get("status") or {}).get("addresses") or []:
            if item.get("type") == kind:
                return str(item.get("address", ""))
        return _NONE

    return cell


def _node_info(key: str) -> Cell:
    return _at(f"status.nodeInfo.{key}", "<unknown>")


def pod_status(body: JsonObject) -> str:
    """The word for a Pod's state: a reason when there is one, Terminating when it is on its way out."""
    status: JsonObject = body.get("status") or {}
    word: str = status.get("reason") or status.get("phase", "")
    for entry in status.get("initContainerStatuses") or []:
        state = entry.get("state") or {}
        ended = state.get("terminated")
        if ended and ended.get("exitCode") == 0:
            continue
        detail = (ended or {}).get("reason") or (state.get("waiting") or {}).get("reason")
        if detail and detail != "PodInitializing":
            word = f"Init:{detail}"
            break
    else:
        for entry in reversed(status.get("containerStatuses") or []):
            state = entry.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated")
            if waiting.get("reason"):
                word = waiting["reason"]
            elif ended:
                word = ended.get("reason") or (
                    f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
                )
    if "deletionTimestamp" in body["metadata"]:
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word


def _pod_ready(body: JsonObject, _now: datetime) -> str:
    statuses = (body.get("status") or {}).get("containerStatuses") or []
    ready = sum(bool(item.get("ready")) for item in statuses)
    return f"{ready}/{len((body.get('spec') or {}).get('containers') or [])}"


def _pod_restarts(body: JsonObject, _now: datetime) -> str:
    statuses = (body.get("status") or {}).get("containerStatuses") or []
    return str(sum(item.get("restartCount", 0) for item in statuses))


def _pod_gates(body: JsonObject, _now: datetime) -> str:
    gates = (body.get("spec") or {}).get("readinessGates") or []
    if not gates:
        return _NONE
    conditions = {item.get("type"): item.get("status") for item in (body.get("status") or {}).get("conditions") or []}
    return f"{sum(conditions.get(gate.get('conditionType')) == 'True' for gate in gates)}/{len(gates)}"


def _job_status(body: JsonObject, _now: datetime) -> str:
    conditions = {
        item.get("type") for item in (body.get("status") or {}).get("conditions") or [] if item.get("status") == "True"
    }
    for kind, word in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if kind in conditions:
            return word
    return "Terminating" if "deletionTimestamp" in body["metadata"] else "Running"


def _job_completions(body: JsonObject, _now: datetime) -> str:
    spec, done = body["spec"], (body.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(body: JsonObject, now: datetime) -> str:
    status = body.get("status") or {}
    if not status.get("startTime"):
        return ""
    started = datetime.fromisoformat(status["startTime"])
    ended = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return human((ended - started).total_seconds())


def _template(body: JsonObject) -> JsonObject:
    spec: JsonObject = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    return spec


def _containers(key: str) -> Cell:
    return lambda body, _now: ",".join(item.get(key, "") for item in _template(body).get("containers") or [])


def _selector(body: JsonObject, _now: datetime) -> str:
    selector = (body.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def _event_seen(*, first: bool) -> Cell:
    def cell(body: JsonObject, now: datetime) -> str:
        if first:
            return age(body.get("firstTimestamp") or body.get("eventTime") or body.get("deprecatedFirstTimestamp"), now)
        series = (body.get("series") or {}).get("lastObservedTime")
        return age(
            series or body.get("lastTimestamp") or body.get("deprecatedLastTimestamp") or body.get("eventTime"), now
        )

    return cell


def _event_object(body: JsonObject, _now: datetime) -> str:
    about = body.get("involvedObject") or body.get("regarding") or {}
    kind = about.get("kind", "").lower()
    return f"{kind}/{about.get('name', '')}" if about.get("name") else kind


def _event_source(body: JsonObject, _now: datetime) -> str:
    source = body.get("source") or body.get("deprecatedSource") or {}
    component = source.get("component") or body.get("reportingComponent") or body.get("reportingController", "")
    host = source.get("host", "")
    return f"{component}, {host}" if host else str(component)


def _event_count(body: JsonObject, _now: datetime) -> int:
    series = body.get("series") or {}
    count: int = series.get("count") or body.get("count") or body.get("deprecatedCount") or 1
    return count


def _event_text(body: JsonObject, _now: datetime) -> str:
    return str(body.get("message") or body.get("note") or "").strip()


def _event_name(body: JsonObject, _now: datetime) -> str:
    name: str = body["metadata"]["name"]
    return name


def _budget(key: str) -> Cell:
    return lambda body, _now: str((body.get("spec") or {}).get(key, "N/A"))


def _role_reference(body: JsonObject, _now: datetime) -> str:
    reference = body.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _size(*fields: str) -> Cell:
    return lambda body, _now: sum(len(body.get(field) or {}) for field in fields)


def _replicas(body: JsonObject, _now: datetime) -> str:
    status = body.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{(body.get('spec') or {}).get('replicas', 0)}"


def _service_ports(body: JsonObject, _now: datetime) -> str:
    ports = (body.get("spec") or {}).get("ports") or []
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _text(name: str, cell: Cell, description: str, priority: int = 0) -> Column:
    return Column(name, "string", cell, description, priority)


def _number(name: str, cell: Cell, description: str, priority: int = 0) -> Column:
    return Column(name, "integer", cell, description, priority)


_TEMPLATE = (
    _text("Containers", _containers("name"), "Names of the containers.", 1),
    _text("Images", _containers("image"), "Images of the containers.", 1),
    _text("Selector", _selector, "Labels that select its Pods.", 1),
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "nodes": (
        _text("Status", _node_status, "Readiness, and whether Pods may be scheduled."),
        _text("Roles", _node_roles, "Roles from labels."),
        AGE,
        _text("Version", _at("status.nodeInfo.kubeletVersion"), "The kubelet's version."),
        _text("Internal-IP", _node_address("InternalIP"), "Address inside the cluster.", 1),
        _text("External-IP", _node_address("ExternalIP"), "Address from outside.", 1),
        _text("OS-Image", _node_info("osImage"), "Operating system.", 1),
        _text("Kernel-Version", _node_info("kernelVersion"), "Kernel.", 1),
        _text("Container-Runtime", _node_info("containerRuntimeVersion"), "Container runtime.", 1),
    ),
    "pods": (
        _text("Ready", _pod_ready, "Ready containers of all."),
        _text("Status", lambda body, _: pod_status(body), "What the Pod is doing."),
        _text("Restarts", _pod_restarts, "How often its containers were started again."),
        AGE,
        _text("IP", _at("status.podIP", _NONE), "Its address.", 1),
        _text("Node", _at("spec.nodeName", _NONE), "Where it runs.", 1),
        _text("Nominated Node", _at("status.nominatedNodeName", _NONE), "Where it may run after preemption.", 1),
        _text("Readiness Gates", _pod_gates, "Further conditions of readiness.", 1),
    ),
    "jobs": (
        _text("Status", _job_status, "Running, Complete, Failed or Suspended."),
        _text("Completions", _job_completions, "Pods that succeeded, of those wanted."),
        _text("Duration", _job_duration, "From start to end, or to now."),
        AGE,
        *_TEMPLATE,
    ),
    "cronjobs": (
        _text("Schedule", _at("spec.schedule"), "When it runs."),
        _text("Suspend", lambda body, _: str(bool(body["spec"].get("suspend"))), "Whether it is suspended."),
        AGE,
    ),
    "events": (
        _text("Last Seen", _event_seen(first=False), "When it happened last."),
        _text("Type", _at("type"), "Normal or Warning."),
        _text("Reason", _at("reason"), "Why, in one word."),
        _text("Object", _event_object, "What it is about."),
        _text("Subobject", _at("involvedObject.fieldPath"), "Which part of it.", 1),
        _text("Source", _event_source, "Who reports it.", 1),
        _text("Message", _event_text, "What happened."),
        _text("First Seen", _event_seen(first=True), "When it happened first.", 1),
        _number("Count", _event_count, "How often.", 1),
        _text("Name", _event_name, "The event's own name.", 1),
    ),
    "leases": (_text("Holder", _at("spec.holderIdentity"), "Who holds it."), AGE),
    "configmaps": (_text("Data", _size("data", "binaryData"), "How many entries."), AGE),
    "secrets": (
        _text("Type", _at("type"), "What it is for."),
        _text("Data", _size("data"), "How many entries."),
        AGE,
    ),
    "serviceaccounts": (_number("Secrets", lambda body, _: len(body.get("secrets") or []), "Secrets it names."), AGE),
    "namespaces": (_text("Status", _at("status.phase"), "Active or Terminating."), AGE),
    "customresourcedefinitions": DEFAULT,
    "clusterroles": DEFAULT,
    "roles": DEFAULT,
    "clusterrolebindings": (_text("Role", _role_reference, "The bound role."), AGE),
    "rolebindings": (_text("Role", _role_reference, "The bound role."), AGE),
    "poddisruptionbudgets": (
        _text("Min Available", _budget("minAvailable"), "Pods that must stay."),
        _text("Max Unavailable", _budget("maxUnavailable"), "Pods that may go."),
        _number("Allowed Disruptions", _at("status.disruptionsAllowed", 0), "Pods that may go now."),
        AGE,
    ),
    "validatingwebhookconfigurations": (
        _number("Webhooks", lambda body, _: len(body.get("webhooks") or []), "How many webhooks."),
        AGE,
    ),
    "deployments": (
        _text("Ready", _replicas, "Ready replicas of those wanted."),
        _number("Up-to-date", _at("status.updatedReplicas", 0), "Replicas of the present template."),
        _number("Available", _at("status.availableReplicas", 0), "Replicas that serve."),
        AGE,
        *_TEMPLATE,
    ),
    "replicasets": (
        _number("Desired", _at("spec.replicas", 0), "Wanted replicas."),
        _number("Current", _at("status.replicas", 0), "Present replicas."),
        _number("Ready", _at("status.readyReplicas", 0), "Ready replicas."),
        AGE,
        *_TEMPLATE,
    ),
    "daemonsets": (
        _number("Desired", _at("status.desiredNumberScheduled", 0), "Nodes that should run it."),
        _number("Current", _at("status.currentNumberScheduled", 0), "Nodes that run it."),
        _number("Ready", _at("status.numberReady", 0), "Nodes where it is ready."),
        AGE,
        *_TEMPLATE,
    ),
    "statefulsets": (_text("Ready", _replicas, "Ready replicas of those wanted."), AGE, *_TEMPLATE[:2]),
    "services": (
        _text("Type", _at("spec.type"), "How it is reached."),
        _text("Cluster-IP", _at("spec.clusterIP", _NONE), "Its address."),
        _text("External-IP", lambda _body, _now: _NONE, "Its address from outside."),
        _text("Port(s)", _service_ports, "Its ports."),
        AGE,
        _text(
            "Selector",
            lambda body, _: (
                ",".join(f"{k}={v}" for k, v in ((body.get("spec") or {}).get("selector") or {}).items()) or _NONE
            ),
            "Labels of its Pods.",
            1,
        ),
    ),
    "priorityclasses": (_number("Value", _at("value", 0), "The priority."), AGE),
    "networkpolicies": (AGE,),
    "resourcequotas": (AGE,),
    "limitranges": (DEFAULT),
    "persistentvolumeclaims": (_text("Status", _at("status.phase"), "Bound or not."), AGE),
}
