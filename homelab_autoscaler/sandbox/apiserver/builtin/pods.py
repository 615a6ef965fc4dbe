"""Rules of Pods, and of the workloads whose templates are Pods."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.pod_spec import spec_problems
from homelab_autoscaler.sandbox.apiserver.builtin.syntax import labels_problems, selector_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, forbidden_field, invalid_value, required

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_ALLOWED_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
# A reference that can be parsed; of others nobody knows the tag.
_IMAGE = re.compile(r"([a-zA-Z0-9.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[\w.-]+)?")
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
    newest = tag in {"", "latest"} and "@" not in image and _IMAGE.fullmatch(image)
    container.setdefault("imagePullPolicy", "Always" if newest else "IfNotPresent")
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
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        # What is limited is requested too. Templates stay as they were written.
        resources = container.get("resources") or {}
        for name, quantity in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, quantity)


def _prepare_pod(body: JsonObject) -> None:
    """What admission and the Pod strategy add to a new Pod."""
    spec = body["spec"]
    _tolerate_outages(spec)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    body["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _tolerate_outages(spec: JsonObject) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in _DEFAULT_TOLERATIONS:
        if not any(_tolerates(item, key) for item in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


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


def _pod_problems(body: JsonObject) -> list[Cause]:
    return spec_problems(body.get("spec") or {}, "spec")


def _pod_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    new_spec, old_spec = copy.deepcopy(body["spec"]), copy.deepcopy(old["spec"])
    problems = []
    if len(new_spec.get("containers", [])) != len(old_spec.get("containers", [])):
        # A real server looks no further then.
        return [forbidden_field("spec.containers", "pod updates may not add or remove containers")]
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
    # Admission adds them on each write, so that a change that leaves them out does not remove them.
    spec: JsonObject = body["spec"]
    _tolerate_outages(spec)
    for field in ("priority", "preemptionPolicy"):
        if field in old["spec"]:
            spec.setdefault(field, old["spec"][field])
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
    default_template_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def _mismatch(labels: JsonObject) -> Cause:
    return invalid_value("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")


def _workload_problems(body: JsonObject) -> list[Cause]:
    spec: JsonObject = body.get("spec") or {}
    template: JsonObject = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    problems = selector_problems("spec.selector", selector)
    wanted = (selector or {}).get("matchLabels") or {}
    if selector is None:
        problems.append(required("spec.selector"))
    elif not selector:
        problems.append(invalid_value("spec.selector", {}, f"empty selector is invalid for {body['kind'].lower()}"))
    elif problems:
        # It is parsed once more to be matched with the template, which is not looked at then.
        return [*problems, invalid_value("spec.selector", selector, "invalid label selector")]
    elif any(labels.get(key) != value for key, value in wanted.items()):
        problems.append(_mismatch(labels))
    if selector is None:
        problems.append(_mismatch(labels))
    problems += labels_problems("spec.template.labels", labels)
    return problems + spec_problems(template.get("spec") or {}, "spec.template.spec")


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


def _workload_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    new, before = body["spec"].get("selector"), old["spec"].get("selector")
    return [] if new == before else [invalid_value("spec.selector", new, "field is immutable")]


DEPLOYMENT = Rules(
    generation=True,
    default=_default_deployment,
    validate=_workload_problems,
    validate_update=_workload_update_problems,
)
