"""Labels, selectors and names inside specs: the same rules wherever they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics import names
from homelab_autoscaler.sandbox.status import Cause, forbidden_field, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from homelab_api.meta import JsonObject

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def key_problems(field: str, key: str) -> list[Cause]:
    """What is wrong with the name of a label, a taint or a resource."""
    return [invalid_value(field, key, why) for why in names.qualified_name_problems(key)]


def value_problems(field: str, value: str) -> list[Cause]:
    """What is wrong with the value of a label or a taint."""
    return [invalid_value(field, value, why) for why in names.label_value_problems(value)]


def labels_problems(field: str, labels: Mapping[str, str] | None) -> list[Cause]:
    """What is wrong with labels; all are told of under one field."""
    problems = []
    for key, value in (labels or {}).items():
        problems += key_problems(field, key) + value_problems(field, value)
    return problems


def selector_problems(field: str, selector: JsonObject | None) -> list[Cause]:
    """What is wrong with a label selector."""
    found = selector or {}
    problems = labels_problems(f"{field}.matchLabels", found.get("matchLabels"))
    for index, wanted in enumerate(found.get("matchExpressions") or []):
        where = f"{field}.matchExpressions[{index}]"
        operator, values = wanted.get("operator", ""), wanted.get("values") or []
        if operator in {"In", "NotIn"}:
            if not values:
                problems.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in {"Exists", "DoesNotExist"}:
            if values:
                problems.append(
                    forbidden_field(
                        f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    )
                )
        else:
            problems.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
        problems += key_problems(f"{where}.key", wanted.get("key", ""))
        for at, value in enumerate(values):
            problems += value_problems(f"{where}.values[{at}]", value)
    return problems


def dns_label_problems(field: str, name: str) -> list[Cause]:
    """What is wrong with the name of a container, a volume or a port; an empty one is missing."""
    if not name:
        return [required(field)]
    return [invalid_value(field, name, why) for why in names.label_problems(name)]


def subdomain_problems(field: str, name: str) -> list[Cause]:
    """What is wrong with the name of another object."""
    return [invalid_value(field, name, why) for why in names.subdomain_problems(name)]


def dns_1035_problems(field: str, name: str) -> list[Cause]:
    """What is wrong with the name of a kind, a resource or a version of an API."""
    problems = []
    if len(name) > 63:
        problems.append(invalid_value(field, name, "must be no more than 63 characters"))
    if not _DNS_1035.fullmatch(name):
        problems.append(invalid_value(field, name, _DNS_1035_MESSAGE))
    return problems


def choice_problems(field: str, value: Any, allowed: tuple[str, ...]) -> list[Cause]:
    """One of a few texts; an empty one is missing."""
    if not value:
        return [required(field)]
    return [] if value in allowed else [unsupported_value(field, value, allowed)]
