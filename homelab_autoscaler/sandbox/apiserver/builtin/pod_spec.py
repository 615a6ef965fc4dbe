"""What is wrong with a Pod's spec, in a Pod or in a template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import (
    choice_problems,
    dns_label_problems,
    key_problems,
    labels_problems,
    subdomain_problems,
    value_problems,
)
from homelab_autoscaler.sandbox.quantity import parse_quantity
from homelab_autoscaler.sandbox.status import Cause, duplicate, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_POLICIES = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_MAX_PORT = 65535
_MAX_SECONDS = 2**31 - 1


def spec_problems(spec: JsonObject, path: str) -> list[Cause]:
    """What is wrong with a Pod's spec.

    Args:
        spec: with its defaults.
        path: where it stands.
    """
    volumes, problems = _volume_problems(spec, path)
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            where, name = f"{path}.{field}[{index}]", container.get("name", "")
            problems += dns_label_problems(f"{where}.name", name)
            if name and name in names:
                problems.append(duplicate(f"{where}.name", name))
            names.add(name)
            problems += _container_problems(container, where, volumes)
    problems += choice_problems(f"{path}.restartPolicy", spec.get("restartPolicy"), _POLICIES)
    problems += labels_problems(f"{path}.nodeSelector", spec.get("nodeSelector"))
    for index, toleration in enumerate(spec.get("tolerations") or []):
        problems += _toleration_problems(toleration, f"{path}.tolerations[{index}]")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        problems.append(
            invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
        )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_SECONDS:
        problems.append(
            invalid_value(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_MAX_SECONDS}, inclusive")
        )
    for field in ("nodeName", "serviceAccountName", "priorityClassName"):
        if spec.get(field):
            problems += subdomain_problems(f"{path}.{field}", spec[field])
    return problems


def _volume_problems(spec: JsonObject, path: str) -> tuple[set[str], list[Cause]]:
    names: set[str] = set()
    problems = []
    for index, volume in enumerate(spec.get("volumes") or []):
        where, name = f"{path}.volumes[{index}]", volume.get("name", "")
        found = dns_label_problems(f"{where}.name", name)
        if not found and name in names:
            found.append(duplicate(f"{where}.name", name))
        if isinstance(volume.get("secret"), dict) and not volume["secret"].get("secretName"):
            found.append(required(f"{where}.secret.secretName"))
        if isinstance(volume.get("configMap"), dict) and not volume["configMap"].get("name"):
            found.append(required(f"{where}.configMap.name"))
        if not found:
            # Mounts of a volume that is wrong itself find none.
            names.add(name)
        problems += found
    return names, problems


def _container_problems(container: JsonObject, where: str, volumes: set[str]) -> list[Cause]:
    problems = []
    if not container.get("image"):
        problems.append(required(f"{where}.image"))
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            problems.append(required(f"{where}.env[{index}].name"))
    for index, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort", 0)
        if not number:
            problems.append(required(f"{where}.ports[{index}].containerPort"))
        elif not 1 <= number <= _MAX_PORT:
            text = f"must be between 1 and {_MAX_PORT}, inclusive"
            problems.append(invalid_value(f"{where}.ports[{index}].containerPort", number, text))
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        at, name, path = f"{where}.volumeMounts[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            problems.append(required(f"{at}.name"))
        if name not in volumes:
            problems.append(Cause("FieldValueNotFound", f'Not found: "{name}"', f"{at}.name"))
        if not path:
            problems.append(required(f"{at}.mountPath"))
        if path in paths:
            problems.append(invalid_value(f"{at}.mountPath", path, "must be unique"))
        paths.add(path)
    problems += choice_problems(
        f"{where}.imagePullPolicy", container.get("imagePullPolicy"), ("Always", "IfNotPresent", "Never")
    )
    for kind in ("limits", "requests"):
        for name, quantity in ((container.get("resources") or {}).get(kind) or {}).items():
            field = f"{where}.resources.{kind}"
            problems += _resource_problems(field, name)
            if quantity.startswith("-"):
                problems.append(invalid_value(f"{field}[{name}]", quantity, "must be greater than or equal to 0"))
            if "/" in name and parse_quantity(quantity).denominator != 1:
                problems.append(invalid_value(f"{field}[{name}]", quantity, "must be an integer"))
    return problems


def _resource_problems(field: str, name: str) -> list[Cause]:
    problems = key_problems(field, name)
    standard = "/" in name or name in _RESOURCES or name.startswith("hugepages-")
    if not problems and not standard:
        problems.append(invalid_value(field, name, "must be a standard resource type or fully qualified"))
    return problems


def _toleration_problems(toleration: JsonObject, where: str) -> list[Cause]:
    problems = []
    key, operator, value = toleration.get("key", ""), toleration.get("operator", ""), toleration.get("value", "")
    if key:
        problems += key_problems(f"{where}.key", key)
    elif operator != "Exists":
        problems.append(
            invalid_value(f"{where}.operator", operator, "operator must be Exists when `key` is empty, which means "
                          '"match all values and all keys"')
        )  # fmt: skip
    effect = toleration.get("effect", "")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        problems.append(
            invalid_value(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        )
    if operator in {"", "Equal"}:
        problems += value_problems(f"{where}.operator", value)
    elif operator == "Exists":
        if value:
            problems.append(
                invalid_value(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
            )
    else:
        problems.append(unsupported_value(f"{where}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in _EFFECTS:
        problems.append(unsupported_value(f"{where}.effect", effect, _EFFECTS))
    return problems
