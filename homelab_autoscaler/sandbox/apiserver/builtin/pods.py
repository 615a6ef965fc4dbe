"""Rules of Pods, and of the workloads whose templates are Pods."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, duplicate, forbidden_field, invalid_value, required

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_ALLOWED_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
# How long a Pod stays on a node that has stopped answering, unless it says otherwise itself.
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def default_template_spec(spec: JsonObject) -> None:
    """What a Pod's spec gets wherever it stands, in a Pod or in a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        _default_container(container)
    for volume in spec.get("volumes", []):
        for kind in ("secret", "configMap", "projected", "downwardAPI"):
            if isinstance(volume.get(kind), dict):
                volume[kind].setdefault("defaultMode", 420)
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _default_container(container: JsonObject) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent")
    resources = container.get("resources") or {}
    for name, quantity in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, quantity)
    for port in container.get("ports", []):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", []):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            for key, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                container[probe].setdefault(key, value)
            if isinstance(container[probe].get("httpGet"), dict):
                container[probe]["httpGet"].setdefault("path", "/")
                container[probe]["httpGet"].setdefault("scheme", "HTTP")


def _default_pod(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    default_template_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def _prepare_pod(body: JsonObject) -> None:
    """What admission and the Pod strategy add to a new Pod."""
    spec = body["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for key in _DEFAULT_TOLERATIONS:
        if not any(_tolerates(item, key) for item in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    body["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _tolerates(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in {None, key} and toleration.get("effect") in {None, "NoExecute"}


def quality_of_service(spec: JsonObject) -> str:
    """BestEffort without requests and limits, Guaranteed when all are set and equal, else Burstable."""
    containers = spec.get("containers", []) + spec.get("initContainers", [])
    resources = [container.get("resources") or {} for container in containers]
    wanted = [{**item.get("requests", {}), **item.get("limits", {})} for item in resources]
    if not any(wanted):
        return "BestEffort"
    for item in resources:
        limits, requests = item.get("limits") or {}, item.get("requests") or {}
        if any(name not in limits or requests.get(name, limits[name]) != limits[name] for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def template_problems(spec: JsonObject, path: str) -> list[Cause]:
    """What is wrong with the containers and volumes of a Pod's spec."""
    problems = []
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            name = container.get("name", "")
            where = f"{path}.{field}[{index}]"
            if not name:
                problems.append(required(f"{where}.name"))
            elif name in names:
                problems.append(duplicate(f"{where}.name", name))
            names.add(name)
            if not container.get("image") and path == "spec":
                problems.append(required(f"{where}.image"))
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or []]
    for index, name in enumerate(volumes):
        if name in volumes[:index]:
            problems.append(duplicate(f"{path}.volumes[{index}].name", name))
    for index, container in enumerate(spec.get("containers") or []):
        for at, mount in enumerate(container.get("volumeMounts") or []):
            if mount.get("name") not in volumes:
                problems.append(
                    Cause(
                        "FieldValueNotFound",
                        f'Not found: "{mount.get("name", "")}"',
                        f"{path}.containers[{index}].volumeMounts[{at}].name",
                    )
                )
    return problems


def _pod_problems(body: JsonObject) -> list[Cause]:
    return template_problems(body.get("spec") or {}, "spec")


def _pod_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    new_spec, old_spec = copy.deepcopy(body["spec"]), copy.deepcopy(old["spec"])
    problems = []
    before, after = old_spec.get("activeDeadlineSeconds"), new_spec.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        problems.append(
            invalid_value("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")
        )
    kept = old_spec.get("tolerations") or []
    added = new_spec.get("tolerations") or []
    if any(item not in added for item in kept):
        problems.append(
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    for spec in (new_spec, old_spec):
        spec.pop("activeDeadlineSeconds", None)
        spec.pop("tolerations", None)
        for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
            container.pop("image", None)
    if new_spec != old_spec:
        problems.append(forbidden_field("spec", _ALLOWED_CHANGES))
    return problems


def _prepare_pod_update(body: JsonObject, old: JsonObject) -> None:
    # The quality of service is decided once.
    if "qosClass" in (old.get("status") or {}):
        body.setdefault("status", {})["qosClass"] = old["status"]["qosClass"]


POD = Rules(
    generation=True,
    returns_deleted=True,
    default=_default_pod,
    prepare_create=_prepare_pod,
    prepare_update=_prepare_pod_update,
    validate=_pod_problems,
    validate_update=_pod_update_problems,
)


def _default_workload(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    template: Any = spec.get("template")
    if isinstance(template, dict):
        default_template_spec(template.setdefault("spec", {}))


def _workload_problems(body: JsonObject) -> list[Cause]:
    spec = body.get("spec") or {}
    problems = [] if spec.get("selector") else [required("spec.selector")]
    return problems + template_problems((spec.get("template") or {}).get("spec") or {}, "spec.template.spec")


def _default_deployment(body: JsonObject) -> None:
    _default_workload(body)
    spec = body["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


WORKLOAD = Rules(generation=True, default=_default_workload, validate=_workload_problems)
DEPLOYMENT = Rules(generation=True, default=_default_deployment, validate=_workload_problems)
