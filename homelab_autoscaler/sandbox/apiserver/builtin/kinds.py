"""The table of built-in resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin import (
    columns,
    events,
    fields,
    jobs,
    nodes,
    objects,
    pods,
    policy,
    rbac,
    webhooks,
)
from homelab_autoscaler.sandbox.apiserver.builtin.types import shape_of
from homelab_autoscaler.sandbox.apiserver.semantics.resources import ALL_VERBS, Resource, Rules, Subresource

if TYPE_CHECKING:
    from collections.abc import Iterable

_STATUS_VERBS = ("get", "patch", "update")
_CREATE = ("create",)


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, _STATUS_VERBS)


def _scale() -> Subresource:
    return Subresource("scale", "Scale", _STATUS_VERBS, "autoscaling", "v1")


_POD_SUBRESOURCES = (
    _status("Pod"),
    Subresource("binding", "Binding", _CREATE),
    Subresource("eviction", "Eviction", _CREATE, "policy", "v1"),
    Subresource("log", "Pod", ("get",)),
    Subresource("ephemeralcontainers", "Pod", _STATUS_VERBS),
)
_GENERATION = Rules(generation=True)
_SCALE_PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}

# group, version, type's package, kind, plural, short names, namespaced, status, rules
_PLAIN_KINDS: list[tuple[str, str, str, str, tuple[str, ...], bool, bool, Rules]] = [
    ("", "core.v1", "Namespace", "namespaces", ("ns",), False, True, objects.NAMESPACE),
    ("", "core.v1", "Node", "nodes", ("no",), False, True, nodes.NODE),
    ("", "core.v1", "Pod", "pods", ("po",), True, True, pods.POD),
    ("", "core.v1", "ConfigMap", "configmaps", ("cm",), True, False, objects.CONFIG_MAP),
    ("", "core.v1", "Secret", "secrets", (), True, False, objects.SECRET),
    ("", "core.v1", "ServiceAccount", "serviceaccounts", ("sa",), True, False, objects.SERVICE_ACCOUNT),
    ("", "core.v1", "Service", "services", ("svc",), True, True, objects.SERVICE),
    ("", "core.v1", "ResourceQuota", "resourcequotas", ("quota",), True, True, Rules()),
    ("", "core.v1", "LimitRange", "limitranges", ("limits",), True, False, Rules()),
    ("", "core.v1", "PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",), True, True, Rules()),
    ("", "core.v1", "Event", "events", ("ev",), True, False, events.CORE),
    ("apps", "apps.v1", "Deployment", "deployments", ("deploy",), True, True, pods.DEPLOYMENT),
    ("apps", "apps.v1", "ReplicaSet", "replicasets", ("rs",), True, True, pods.WORKLOAD),
    ("apps", "apps.v1", "DaemonSet", "daemonsets", ("ds",), True, True, pods.WORKLOAD),
    ("apps", "apps.v1", "StatefulSet", "statefulsets", ("sts",), True, True, pods.WORKLOAD),
    ("batch", "batch.v1", "Job", "jobs", (), True, True, jobs.JOB),
    ("batch", "batch.v1", "CronJob", "cronjobs", ("cj",), True, True, jobs.CRON_JOB),
    ("coordination.k8s.io", "coordination.v1", "Lease", "leases", (), True, False, objects.LEASE),
    ("events.k8s.io", "events.v1", "Event", "events", ("ev",), True, False, events.NEW),
    ("policy", "policy.v1", "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",), True, True, policy.BUDGET),
    ("rbac.authorization.k8s.io", "rbac.v1", "Role", "roles", (), True, False, rbac.ROLE),
    ("rbac.authorization.k8s.io", "rbac.v1", "RoleBinding", "rolebindings", (), True, False, rbac.BINDING),
    ("rbac.authorization.k8s.io", "rbac.v1", "ClusterRole", "clusterroles", (), False, False, rbac.ROLE),
    (
        "rbac.authorization.k8s.io",
        "rbac.v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        (),
        False,
        False,
        rbac.BINDING,
    ),
    ("networking.k8s.io", "networking.v1", "NetworkPolicy", "networkpolicies", ("netpol",), True, False, _GENERATION),
    ("scheduling.k8s.io", "scheduling.v1", "PriorityClass", "priorityclasses", ("pc",), False, False, _GENERATION),
    (
        "admissionregistration.k8s.io",
        "admissionregistration.v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        (),
        False,
        False,
        webhooks.CONFIGURATION,
    ),
    (
        "apiextensions.k8s.io",
        "apiextensions.v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        ("crd", "crds"),
        False,
        True,
        objects.CUSTOM_RESOURCE_DEFINITION,
    ),
]
# Only ever created, never stored.
_REVIEWS = [
    ("authorization.k8s.io", "authorization.v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False),
    ("authorization.k8s.io", "authorization.v1", "SubjectAccessReview", "subjectaccessreviews", False),
    ("authorization.k8s.io", "authorization.v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", True),
    ("authorization.k8s.io", "authorization.v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False),
    ("authentication.k8s.io", "authentication.v1", "SelfSubjectReview", "selfsubjectreviews", False),
    ("authentication.k8s.io", "authentication.v1", "TokenReview", "tokenreviews", False),
]
_CATEGORY_ALL = {"pods", "services", "deployments", "replicasets", "daemonsets", "statefulsets", "jobs", "cronjobs"}
_SCALED = {"deployments", "replicasets", "statefulsets"}


def _subresources(kind: str, plural: str, *, status: bool) -> dict[str, Subresource]:
    found: Iterable[Subresource] = (_status(kind),) if status else ()
    if plural == "pods":
        found = _POD_SUBRESOURCES
    elif plural == "namespaces":
        found = (*found, Subresource("finalize", kind, ("update",)))
    elif plural in _SCALED:
        found = (*found, _scale())
    return {item.name: item for item in found}


def _categories(plural: str) -> tuple[str, ...]:
    if plural in _CATEGORY_ALL:
        return ("all",)
    return ("api-extensions",) if plural.startswith(("customresource", "validatingwebhook")) else ()


def builtin_resources() -> list[Resource]:
    """Every built-in resource, made anew."""
    found = []
    for group, package, kind, plural, short_names, namespaced, status, rules in _PLAIN_KINDS:
        new_events = group == "events.k8s.io"
        found.append(
            Resource(
                group=group,
                version="v1",
                plural=plural,
                singular=kind.lower(),
                kind=kind,
                namespaced=namespaced,
                shape=shape_of(f"{package}.{kind}"),
                collection="/events" if new_events else f"{group}/{plural}",
                short_names=short_names,
                categories=_categories(plural),
                subresources=_subresources(kind, plural, status=status),
                rules=rules,
                select=fields.SELECTABLE.get((group, plural), {}),
                columns=columns.COLUMNS.get(plural, columns.DEFAULT),
                name_column=plural != "events",
                to_storage=events.to_core if new_events else None,
                from_storage=events.from_core if new_events else None,
                scale=_SCALE_PATHS if plural in _SCALED else None,
            )
        )
    for group, package, kind, plural, namespaced in _REVIEWS:
        found.append(
            Resource(
                group=group,
                version="v1",
                plural=plural,
                singular=kind.lower(),
                kind=kind,
                namespaced=namespaced,
                shape=shape_of(f"{package}.{kind}"),
                collection=f"{group}/{plural}",
                verbs=("create",),
            )
        )
    assert all(set(item.verbs) <= set(ALL_VERBS) for item in found)
    return found
