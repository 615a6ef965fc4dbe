"""The fields that field selectors of built-in kinds may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.selectors import FieldGetter


def _at(path: str, default: str = "") -> FieldGetter:
    keys = path.split(".")

    def get(body: JsonObject) -> str:
        value: Any = body
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            return default
        return str(value).lower() if isinstance(value, bool) else str(value)

    return get


def _source(body: JsonObject) -> str:
    """The reporter of an event: the old source's component, or else the new reporting controller."""
    source: str = (body.get("source") or {}).get("component") or body.get("reportingComponent", "")
    return source


def _new_source(body: JsonObject) -> str:
    reporter: str = (body.get("deprecatedSource") or {}).get("component") or body.get("reportingController", "")
    return reporter


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

SELECTABLE: dict[tuple[str, str], dict[str, FieldGetter]] = {
    ("", "pods"): {
        "spec.nodeName": _at("spec.nodeName"),
        "spec.restartPolicy": _at("spec.restartPolicy"),
        "spec.schedulerName": _at("spec.schedulerName"),
        "spec.serviceAccountName": _at("spec.serviceAccountName"),
        "spec.hostNetwork": _at("spec.hostNetwork", "false"),
        "status.phase": _at("status.phase"),
        "status.podIP": _at("status.podIP"),
        "status.nominatedNodeName": _at("status.nominatedNodeName"),
    },
    ("", "nodes"): {"spec.unschedulable": _at("spec.unschedulable", "false")},
    ("", "namespaces"): {"status.phase": _at("status.phase"), "name": _at("metadata.name")},
    ("", "secrets"): {"type": _at("type")},
    ("", "services"): {"spec.clusterIP": _at("spec.clusterIP"), "spec.type": _at("spec.type")},
    ("", "events"): {
        **{f"involvedObject.{key}": _at(f"involvedObject.{key}") for key in _REFERENCE},
        "reason": _at("reason"),
        "reportingComponent": _at("reportingComponent"),
        "source": _source,
        "type": _at("type"),
    },
    ("events.k8s.io", "events"): {
        **{f"regarding.{key}": _at(f"regarding.{key}") for key in _REFERENCE},
        "reason": _at("reason"),
        "reportingController": _new_source,
        "type": _at("type"),
    },
    ("batch", "jobs"): {"status.successful": _at("status.succeeded", "0")},
    ("apps", "replicasets"): {"status.replicas": _at("status.replicas", "0")},
}
