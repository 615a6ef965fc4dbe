"""Rules of PodDisruptionBudgets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import selector_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, invalid_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def _problems(body: JsonObject) -> list[Cause]:
    spec: JsonObject = body.get("spec") or {}
    problems = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = orjson.dumps(
            {
                "MinAvailable": spec["minAvailable"],
                "Selector": spec.get("selector"),
                "MaxUnavailable": spec["maxUnavailable"],
                "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
            }
        ).decode()
        text = f"Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set"
        problems.append(Cause("FieldValueInvalid", text, "spec"))
    for field in ("minAvailable", "maxUnavailable"):
        problems += _quantity_problems(f"spec.{field}", spec.get(field))
    return problems + selector_problems("spec.selector", spec.get("selector"))


def _quantity_problems(field: str, value: Any) -> list[Cause]:
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            return [invalid_value(field, value, _PERCENT_MESSAGE)]
        if int(value[:-1]) > 100:
            return [invalid_value(field, value, "must not be greater than 100%")]
    elif isinstance(value, int) and value < 0:
        return [invalid_value(field, value, "must be greater than or equal to 0")]
    return []


def _status_problems(body: JsonObject, _old: JsonObject) -> list[Cause]:
    status = body.get("status") or {}
    return [
        invalid_value(f"status.{field}", status[field], "must be greater than or equal to 0")
        for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        if status.get(field, 0) < 0
    ]


BUDGET = Rules(
    name_rule="path",
    metadata_last=True,
    generation=True,
    unconditional_update=False,
    validate=_problems,
    validate_status=_status_problems,
)
