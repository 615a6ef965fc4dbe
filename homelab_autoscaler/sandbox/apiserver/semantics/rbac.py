"""RBAC: what users may do, from Role, ClusterRole and binding objects as they are stored now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from homelab_autoscaler.sandbox.apiserver.semantics.selectors import from_object
from homelab_autoscaler.sandbox.apiserver.store import Change, Collection, Key, Store
from homelab_autoscaler.sandbox.status import ApiStatusError, failure, forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.request import User

_GROUP = "rbac.authorization.k8s.io"
_COLLECTIONS = {f"{_GROUP}/{name}" for name in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")}
_MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Attributes:
    """One question: may somebody do this?

    For resources, `path` is empty. A namespace is empty at cluster scope.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """`widgets/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule of a role."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: JsonObject) -> PolicyRule:
        """Read a rule as it stands in a role."""
        fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(tuple(rule.get(field) or ()) for field in fields))

    def allows(self, asked: Attributes) -> bool:
        """Whether the rule gives what is asked for."""
        if "*" not in self.verbs and asked.verb not in self.verbs:
            return False
        if asked.path:
            return any(
                path in {"*", asked.path} or (path.endswith("*") and asked.path.startswith(path[:-1]))
                for path in self.paths
            )
        return (
            ("*" in self.groups or asked.group in self.groups)
            and self._covers_resource(asked)
            and (not self.names or asked.name in self.names)
        )

    def _covers_resource(self, asked: Attributes) -> bool:
        return any(
            item in {"*", asked.full_resource} or (asked.subresource != "" and item == f"*/{asked.subresource}")
            for item in self.resources
        )

    def to_json(self) -> JsonObject:
        """As a rules review shows it."""
        if self.paths:
            return {"verbs": list(self.verbs), "nonResourceURLs": list(self.paths)}
        shown: JsonObject = {
            "verbs": list(self.verbs),
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
        }
        if self.names:
            shown["resourceNames"] = list(self.names)
        return shown

    def singles(self) -> Iterator[PolicyRule]:
        """The rule taken apart into rules with one verb, group, resource and name each."""
        for verb in self.verbs:
            for path in self.paths:
                yield PolicyRule((verb,), paths=(path,))
            for group in self.groups:
                for resource in self.resources:
                    for name in self.names or ("",):
                        yield PolicyRule((verb,), (group,), (resource,), (name,) if name else ())

    def covers(self, single: PolicyRule) -> bool:
        """Whether everything that a single rule gives is given by this one too."""
        verb = single.verbs[0]
        if "*" not in self.verbs and verb not in self.verbs:
            return False
        if single.paths:
            return any(
                item in {"*", single.paths[0]} or (item.endswith("*") and single.paths[0].startswith(item[:-1]))
                for item in self.paths
            )
        resource = single.resources[0]
        _, slash, sub = resource.partition("/")
        return (
            ("*" in self.groups or single.groups[0] in self.groups)
            and any(item in {"*", resource} or (slash != "" and item == f"*/{sub}") for item in self.resources)
            and (not self.names or (bool(single.names) and single.names[0] in self.names))
        )

    def shown(self) -> str:
        """As an escalation error shows it."""
        parts = [
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("ResourceNames", self.names),
            ("NonResourceURLs", self.paths),
            ("Verbs", self.verbs),
        ]
        return (
            "{" + ", ".join(f"{name}:{orjson.dumps(list(values)).decode()}" for name, values in parts if values) + "}"
        )


class Authorizer:
    """Answers questions from stored roles and bindings.

    Roles and bindings are parsed once and again after a change of any of them: they are read with every request and
    change rarely.
    """

    def __init__(self, store: Store, *, enabled: bool) -> None:
        self._store = store
        self.enabled = enabled
        self.listeners: list[Callable[[User, Attributes, bool], None]] = []
        """Told of every request's user, question and answer while RBAC is on: what a role is really used for."""
        self._bindings: dict[str, list[tuple[str, JsonObject]]] | None = None
        store.listeners.append(self._changed)

    def _changed(self, change: Change) -> None:
        if change.collection in _COLLECTIONS:
            self._bindings = None

    def _collection(self, name: str) -> Collection:
        return self._store.collection(f"{_GROUP}/{name}")

    def _by_subject(self) -> dict[str, list[tuple[str, JsonObject]]]:
        """Bindings by the user or group that they name: (namespace or empty, role reference)."""
        if self._bindings is None:
            found: dict[str, list[tuple[str, JsonObject]]] = {}
            for name in ("clusterrolebindings", "rolebindings"):
                for stored in self._collection(name).items():
                    binding = stored.load()
                    for subject in binding.get("subjects") or ():
                        found.setdefault(_subject_key(subject, stored.key.namespace), []).append(
                            (stored.key.namespace, binding["roleRef"])
                        )
            self._bindings = found
        return self._bindings

    def rules(self, user: User, namespace: str) -> Iterator[PolicyRule]:
        """All rules that hold for a user in a namespace; only cluster-wide ones when it is empty."""
        if _MASTERS in user.groups:
            yield PolicyRule(("*",), ("*",), ("*",))
            yield PolicyRule(("*",), paths=("*",))
            return
        bindings = self._by_subject()
        for subject in (f"User:{user.name}", *(f"Group:{group}" for group in user.groups)):
            for where, reference in bindings.get(subject, ()):
                if where and where != namespace:
                    continue
                yield from self._role_rules(reference, where)

    def _role_rules(self, reference: JsonObject, namespace: str) -> Iterator[PolicyRule]:
        if reference.get("kind") == "Role":
            stored = self._collection("roles").get(Key(namespace, reference.get("name", "")))
        else:
            stored = self._collection("clusterroles").get(Key("", reference.get("name", "")))
        if stored is not None:
            yield from self.rules_of(stored.load())

    def rules_of(self, role: JsonObject) -> Iterator[PolicyRule]:
        """A role's rules, with those of the ClusterRoles that it aggregates."""
        aggregation = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        if aggregation:
            for selector in aggregation:
                labels = from_object(selector)
                for stored in self._collection("clusterroles").items():
                    if labels is not None and labels.matches(stored.labels):
                        yield from (PolicyRule.of(rule) for rule in stored.load().get("rules") or ())
        yield from (PolicyRule.of(rule) for rule in role.get("rules") or ())

    def allowed(self, user: User, asked: Attributes) -> bool:
        """Whether a user may do something. Everything is allowed while RBAC is off."""
        if not self.enabled:
            return True
        return any(rule.allows(asked) for rule in self.rules(user, asked.namespace))

    def check(self, user: User, asked: Attributes) -> None:
        """Refuse what is not allowed.

        Raises:
            ApiStatusError: 403 in the words that kubectl users know.
        """
        allowed = self.allowed(user, asked)
        for listener in self.listeners:
            listener(user, asked, allowed)
        if not allowed:
            raise denied(user, asked)

    def check_escalation(self, user: User, role: JsonObject, namespace: str, *, plural: str) -> None:
        """Refuse a role that gives more than its writer has, unless the writer may escalate.

        Raises:
            ApiStatusError: 403 naming what is too much.
        """
        if not self.enabled or _MASTERS in user.groups:
            return
        name = role["metadata"].get("name", "")
        if self.allowed(user, Attributes("escalate", _GROUP, "v1", plural, "", namespace, name)):
            return
        wanted = [PolicyRule.of(rule) for rule in role.get("rules") or ()]
        self._check_covered(user, wanted, namespace, plural=plural, name=name)

    def check_binding(self, user: User, binding: JsonObject, namespace: str, *, plural: str) -> None:
        """Refuse a binding of a role that gives more than its writer has, unless the writer may bind it.

        Raises:
            ApiStatusError: 403 naming what is too much.
        """
        if not self.enabled or _MASTERS in user.groups:
            return
        reference = binding.get("roleRef") or {}
        kind = "roles" if reference.get("kind") == "Role" else "clusterroles"
        if self.allowed(user, Attributes("bind", _GROUP, "v1", kind, "", namespace, reference.get("name", ""))):
            return
        wanted = list(self._role_rules(reference, namespace))
        self._check_covered(user, wanted, namespace, plural=plural, name=binding["metadata"].get("name", ""))

    def _check_covered(
        self, user: User, wanted: Iterable[PolicyRule], namespace: str, *, plural: str, name: str
    ) -> None:
        held = list(self.rules(user, namespace))
        missing = [
            single for rule in wanted for single in rule.singles() if not any(own.covers(single) for own in held)
        ]
        if missing:
            groups = orjson.dumps(list(user.groups)).decode()
            shown = "\n".join(rule.shown() for rule in missing)
            raise forbidden(
                plural,
                _GROUP,
                name,
                f'user "{user.name}" (groups={groups}) is attempting to grant RBAC permissions not currently held:\n'
                f"{shown}",
            )


def _subject_key(subject: JsonObject, namespace: str) -> str:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind == "ServiceAccount":
        return f"User:system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return f"{kind}:{name}"


def denied(user: User, asked: Attributes) -> ApiStatusError:
    """403 for a user and a question."""
    if asked.path:
        return failure(403, "Forbidden", f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"', {})
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = (
        f'User "{user.name}" cannot {asked.verb} resource "{asked.full_resource}" in API group "{asked.group}" {scope}'
    )
    return forbidden(asked.resource, asked.group, asked.name, why)
