"""Rules of roles and their bindings. Who may write which roles is decided in semantics/rbac.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import subdomain_problems
from homelab_autoscaler.sandbox.apiserver.semantics.names import path_segment_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, go_value, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

RBAC_GROUP = "rbac.authorization.k8s.io"


def _role_problems(body: JsonObject) -> list[Cause]:
    problems = []
    for index, rule in enumerate(body.get("rules") or []):
        where = f"rules[{index}]"
        if not rule.get("verbs"):
            problems.append(required(f"{where}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            problems.append(required(f"{where}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            problems.append(required(f"{where}.resources", "resource rules must supply at least one resource"))
    return problems


def _binding_defaults(body: JsonObject) -> None:
    reference = body.setdefault("roleRef", {})
    reference["apiGroup"] = reference.get("apiGroup") or RBAC_GROUP
    for subject in body.get("subjects") or []:
        if subject.get("kind") in {"User", "Group"}:
            subject["apiGroup"] = subject.get("apiGroup") or RBAC_GROUP
        elif subject.get("kind") == "ServiceAccount" and body["metadata"].get("namespace"):
            subject.setdefault("namespace", body["metadata"]["namespace"])


def _binding_problems(body: JsonObject) -> list[Cause]:
    problems = []
    reference = body.get("roleRef") or {}
    if reference.get("apiGroup") != RBAC_GROUP:
        problems.append(unsupported_value("roleRef.apiGroup", reference.get("apiGroup", ""), [RBAC_GROUP]))
    kinds = ("Role", "ClusterRole") if body["kind"] == "RoleBinding" else ("ClusterRole",)
    if reference.get("kind") not in kinds:
        problems.append(unsupported_value("roleRef.kind", reference.get("kind", ""), kinds))
    if not reference.get("name"):
        problems.append(required("roleRef.name"))
    problems += [
        invalid_value("roleRef.name", reference["name"], why)
        for why in path_segment_problems(reference.get("name", ""))
    ]
    for index, subject in enumerate(body.get("subjects") or []):
        if not subject.get("name"):
            problems.append(required(f"subjects[{index}].name"))
        if subject.get("kind") == "ServiceAccount":
            if subject.get("name"):
                problems += subdomain_problems(f"subjects[{index}].name", subject["name"])
            if subject.get("apiGroup"):
                problems.append(unsupported_value(f"subjects[{index}].apiGroup", subject["apiGroup"], [""]))
            if not subject.get("namespace"):
                problems.append(required(f"subjects[{index}].namespace"))
        elif subject.get("kind") in {"User", "Group"}:
            if subject.get("apiGroup") != RBAC_GROUP:
                group = subject.get("apiGroup", "")
                problems.append(unsupported_value(f"subjects[{index}].apiGroup", group, [RBAC_GROUP]))
        else:
            problems.append(
                unsupported_value(
                    f"subjects[{index}].kind", subject.get("kind", ""), ["ServiceAccount", "User", "Group"]
                )
            )
    return problems


def _binding_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    new, before = body.get("roleRef") or {}, old.get("roleRef") or {}
    if new == before:
        return []
    shown = go_value({"APIGroup": new.get("apiGroup", ""), "Kind": new.get("kind", ""), "Name": new.get("name", "")})
    return [Cause("FieldValueInvalid", f"Invalid value: {shown}: cannot change roleRef", "roleRef")]


ROLE = Rules(name_rule="path", validate=_role_problems)
BINDING = Rules(
    name_rule="path",
    default=_binding_defaults,
    validate=_binding_problems,
    validate_update=_binding_update_problems,
)
