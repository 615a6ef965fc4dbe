"""Rules of Jobs: defaults, what cannot change, and what a status may say."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.builtin.pod_spec import spec_problems
from homelab_autoscaler.sandbox.apiserver.builtin.pods import default_template_spec
from homelab_autoscaler.sandbox.apiserver.builtin.syntax import labels_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, go_value, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_UID_LABEL = "batch.kubernetes.io/controller-uid"
_NAME_LABEL = "batch.kubernetes.io/job-name"
_NOT_NEGATIVE = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
]
_FINISHED = ("Complete", "Failed")


def _default(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failure_policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "Failed" if failure_policy else "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    default_template_spec(template.setdefault("spec", {}))


def _prepare(body: JsonObject) -> None:
    """Tie the Job to its Pods by labels with its uid, on the template and on the Job itself."""
    spec, metadata = body["spec"], body["metadata"]
    if spec.get("manualSelector"):
        return
    labels = {
        _UID_LABEL: metadata["uid"],
        "controller-uid": metadata["uid"],
        _NAME_LABEL: metadata.get("name", ""),
        "job-name": metadata.get("name", ""),
    }
    template = spec["template"].setdefault("metadata", {})
    template.setdefault("labels", {}).update(labels)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {})[_UID_LABEL] = metadata["uid"]
    # A Job without labels of its own takes those of its template.
    if not metadata.get("labels"):
        metadata["labels"] = dict(template["labels"])


def _prepare_update(body: JsonObject, _old: JsonObject) -> None:
    labels = (body["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not body["metadata"].get("labels"):
        body["metadata"]["labels"] = dict(labels)


def _problems(body: JsonObject) -> list[Cause]:
    spec = body["spec"]
    template = spec.get("template") or {}
    problems = [
        invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
        for field in _NOT_NEGATIVE
        if isinstance(spec.get(field), int) and spec[field] < 0
    ]
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector") or {}
    wanted = selector.get("matchLabels") or {}
    if spec.get("selector") is None:
        problems.append(required("spec.selector"))
    elif not spec.get("manualSelector") and set(wanted) != {_UID_LABEL}:
        shown = {"matchLabels": dict(sorted(wanted.items()))}
        problems.append(invalid_value("spec.selector", shown, "`selector` not auto-generated"))
    if spec.get("selector") is None or any(labels.get(key) != value for key, value in wanted.items()):
        problems.append(
            invalid_value(
                "spec.template.metadata.labels",
                dict(sorted(labels.items())),
                "`selector` does not match template `labels`",
            )
        )
    problems += labels_problems("spec.template.labels", labels)
    problems += spec_problems(template.get("spec") or {}, "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    where = "spec.template.spec.restartPolicy"
    if policy in {"", "Always"}:
        problems.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy not in {"OnFailure", "Never"}:
        problems.append(unsupported_value(where, policy, ("OnFailure", "Never")))
    return problems


_FIXED = (
    "completions",
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def _update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    new_spec, old_spec = body["spec"], old["spec"]
    problems = [
        invalid_value(f"spec.{field}", new_spec.get(field), "field is immutable")
        for field in _FIXED
        if new_spec.get(field) != old_spec.get(field)
    ]
    new_template, old_template = copy.deepcopy(new_spec["template"]), copy.deepcopy(old_spec["template"])
    if old_spec.get("suspend") and not (old.get("status") or {}).get("startTime"):
        # Until it has run for the first time a suspended Job may still be told where to run.
        for template in (new_template, old_template):
            metadata = template.get("metadata") or {}
            metadata.pop("labels", None)
            metadata.pop("annotations", None)
            for field in ("nodeSelector", "tolerations", "schedulingGates", "affinity"):
                template["spec"].pop(field, None)
            for container in [*template["spec"].get("containers", []), *template["spec"].get("initContainers", [])]:
                container.pop("resources", None)
    if new_template != old_template:
        problems.append(invalid_value("spec.template", new_spec["template"], "field is immutable"))
    return problems


def _true(status: JsonObject, kind: str) -> bool:
    return any(item.get("type") == kind and item.get("status") == "True" for item in status.get("conditions") or [])


def _status_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    """The rules of Job status (since 1.31): ends are announced, complete, and final."""
    status: JsonObject = body.get("status") or {}
    before: JsonObject = old.get("status") or {}
    problems: list[Cause] = []
    _check_counters(status, before, problems)
    _check_times(body, status, before, problems)
    complete, failed = _true(status, "Complete"), _true(status, "Failed")
    finished = complete or failed
    conditions = "status.conditions"

    def refuse(text: str) -> None:
        problems.append(Cause("FieldValueInvalid", f"Invalid value: {text}", conditions))

    for kind in _FINISHED:
        if _true(before, kind) and not _true(status, kind):
            refuse(f"cannot disable the terminal {kind}=True condition")
    for kind in ("FailureTarget", "SuccessCriteriaMet"):
        if _true(before, kind) and not _true(status, kind):
            refuse(f"cannot disable the {kind}=True condition")
    if complete and not _true(status, "SuccessCriteriaMet"):
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if failed and not _true(status, "FailureTarget"):
        refuse("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and failed:
        refuse("cannot set Complete=True and Failed=true conditions")
    if finished and not status.get("startTime"):
        problems.append(required("status.startTime", "startTime is required for finished job"))
    # A real server sorts by field.
    return sorted(dict.fromkeys(problems), key=lambda cause: cause.field)


def _check_counters(status: JsonObject, before: JsonObject, problems: list[Cause]) -> None:
    active: Any = status.get("active", 0)
    if active > 0 and (_true(status, "Complete") or _true(status, "Failed")):
        problems.append(invalid_value("status.active", active, "active>0 is invalid for finished job"))
    for name in ("succeeded", "failed"):
        value = status.get(name, 0)
        if value < 0:
            problems.append(invalid_value(f"status.{name}", value, "must be greater than or equal to 0"))
        elif value < before.get(name, 0):
            problems.append(invalid_value(f"status.{name}", value, f"cannot decrease the {name} counter"))


def _check_times(body: JsonObject, status: JsonObject, before: JsonObject, problems: list[Cause]) -> None:
    complete = _true(status, "Complete")
    ended = status.get("completionTime")
    if complete and not ended:
        problems.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if ended and not complete:
        problems.append(
            invalid_value(
                "status.completionTime", ended, "cannot set completionTime when there is no Complete=True condition"
            )
        )
    if before.get("completionTime") and ended != before["completionTime"] and complete:
        problems.append(
            Cause("FieldValueInvalid", f"Invalid value: {go_value(ended)}: field is immutable", "status.completionTime")
        )
    started, was = status.get("startTime"), before.get("startTime")
    if was and started != was and not (body["spec"].get("suspend")):
        text = (
            "field is immutable for unsuspended job once set"
            if started
            else "cannot remove startTime for unsuspended job"
        )
        shown = f"{go_value(started)}: " if started else ""
        problems.append(
            Cause(
                "FieldValueInvalid" if started else "FieldValueRequired",
                f"{'Invalid value: ' if started else 'Required value: '}{shown}{text}",
                "status.startTime",
            )
        )
    if started and ended and ended < started:
        problems.append(invalid_value("status.completionTime", ended, "completionTime cannot be set before startTime"))


JOB = Rules(
    generation=True,
    orphans_by_default=True,
    default=_default,
    prepare_create=_prepare,
    prepare_update=_prepare_update,
    validate=_problems,
    validate_update=_update_problems,
    validate_status=_status_problems,
)


def _default_cron(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    default_template_spec(job.setdefault("template", {}).setdefault("spec", {}))


def _cron_problems(body: JsonObject) -> list[Cause]:
    return [] if body["spec"].get("schedule") else [required("spec.schedule")]


CRON_JOB = Rules(generation=True, default=_default_cron, validate=_cron_problems)
