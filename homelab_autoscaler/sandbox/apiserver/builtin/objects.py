"""Rules of the small kinds: namespaces, config maps, secrets, service accounts, services, leases, CRDs."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.builtin.crd_checks import crd_defaults, crd_problems, crd_update_problems
from homelab_autoscaler.sandbox.apiserver.builtin.syntax import (
    dns_label_problems,
    labels_problems,
    subdomain_problems,
)
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, duplicate, forbidden_field, invalid_value, required

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_DATA_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_MAX_DATA = 1024 * 1024
_MAX_PORT = 65535
_PORT_MESSAGE = f"must be between 1 and {_MAX_PORT}, inclusive"
_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


# Namespaces


def _prepare_namespace(body: JsonObject) -> None:
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}
    _label_namespace(body)


def _label_namespace(body: JsonObject) -> None:
    metadata = body["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata.get("name", "")


def _update_namespace(body: JsonObject, old: JsonObject) -> None:
    # The finalizer in spec belongs to the namespace controller and moves through /finalize only.
    body["spec"] = old.get("spec") or {}
    body.setdefault("status", {}).setdefault("phase", "Active")
    _label_namespace(body)


NAMESPACE = Rules(
    name_rule="label", returns_deleted=True, prepare_create=_prepare_namespace, prepare_update=_update_namespace
)


# ConfigMaps and Secrets


def _data_problems(body: JsonObject, *fields: str) -> list[Cause]:
    problems = []
    size = 0
    for field in fields:
        for key, value in (body.get(field) or {}).items():
            size += len(value)
            if not _DATA_KEY.fullmatch(key) or len(key) > 253:
                problems.append(invalid_value(f"{field}[{key}]", key, _DATA_KEY_MESSAGE))
            elif field != fields[0] and key in (body.get(fields[0]) or {}):
                problems.append(invalid_value(f"{fields[0]}[{key}]", key, "duplicate of key present in " + field))
    if size > _MAX_DATA:
        problems.append(Cause("FieldValueTooLong", f"Too long: may not be more than {_MAX_DATA} bytes", ""))
    return problems


def _immutable_problems(body: JsonObject, old: JsonObject, *fields: str) -> list[Cause]:
    if not old.get("immutable"):
        return []
    message = "field is immutable when `immutable` is set"
    problems = [] if body.get("immutable") else [forbidden_field("immutable", message)]
    return problems + [
        forbidden_field(field, message) for field in fields if (body.get(field) or {}) != (old.get(field) or {})
    ]


CONFIG_MAP = Rules(
    validate=lambda body: _data_problems(body, "data", "binaryData"),
    validate_update=lambda body, old: _immutable_problems(body, old, "data", "binaryData"),
)


def _default_secret(body: JsonObject) -> None:
    body.setdefault("type", "Opaque")
    for key, value in (body.pop("stringData", None) or {}).items():
        body.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _secret_problems(body: JsonObject) -> list[Cause]:
    data = body.get("data") or {}
    problems = _data_problems(body, "data")
    problems += [required(f"data[{key}]") for key in _SECRET_KEYS.get(body.get("type", ""), ()) if key not in data]
    return problems


def _secret_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    problems = []
    if body.get("type") != old.get("type"):
        problems.append(invalid_value("type", body.get("type"), "field is immutable"))
    return problems + _immutable_problems(body, old, "data")


SECRET = Rules(default=_default_secret, validate=_secret_problems, validate_update=_secret_update_problems)
SERVICE_ACCOUNT = Rules(returns_deleted=True)


# Services


def _default_service(body: JsonObject) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))


def _service_problems(body: JsonObject) -> list[Cause]:
    spec: JsonObject = body.get("spec") or {}
    problems = labels_problems("spec.selector", spec.get("selector"))
    ports = spec.get("ports") or []
    if spec.get("type") == "ExternalName":
        problems += subdomain_problems("spec.externalName", spec.get("externalName", ""))
    elif not ports and spec.get("clusterIP") != "None":
        problems.append(required("spec.ports"))
    for index, port in enumerate(ports):
        where, name, number = f"spec.ports[{index}]", port.get("name", ""), port.get("port", 0)
        if name or len(ports) > 1:
            problems += dns_label_problems(f"{where}.name", name)
        before = ports[:index]
        if name and name in [other.get("name") for other in before]:
            problems.append(duplicate(f"{where}.name", name))
        if (number, port.get("protocol")) in [(other.get("port"), other.get("protocol")) for other in before]:
            problems.append(duplicate(where, {"Protocol": port.get("protocol"), "Port": number}))
        if not 1 <= number <= _MAX_PORT:
            problems.append(invalid_value(f"{where}.port", number, _PORT_MESSAGE))
        target = port.get("targetPort")
        if isinstance(target, int) and not 1 <= target <= _MAX_PORT:
            problems.append(invalid_value(f"{where}.targetPort", target, _PORT_MESSAGE))
    return problems


SERVICE = Rules(name_rule="label", returns_deleted=True, default=_default_service, validate=_service_problems)


# Leases


def _lease_problems(body: JsonObject) -> list[Cause]:
    spec: JsonObject = body.get("spec") or {}
    problems = []
    duration: Any = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        problems.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    transitions: Any = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        problems.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return problems


LEASE = Rules(unconditional_update=False, create_on_update=True, validate=_lease_problems)


# CustomResourceDefinitions

CUSTOM_RESOURCE_DEFINITION = Rules(
    qualified_finalizers=False,
    generation=True,
    unconditional_update=False,
    default=crd_defaults,
    validate=crd_problems,
    validate_update=crd_update_problems,
)
