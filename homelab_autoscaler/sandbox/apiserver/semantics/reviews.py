"""Kinds that are questions: access reviews, rules reviews, who am I, token reviews. Nothing of them is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.presentation.answers import answer
from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import negotiate
from homelab_autoscaler.sandbox.apiserver.request import ApiResponse, User
from homelab_autoscaler.sandbox.apiserver.semantics import incoming
from homelab_autoscaler.sandbox.apiserver.semantics.options import write_options
from homelab_autoscaler.sandbox.apiserver.semantics.rbac import Attributes, Authorizer
from homelab_autoscaler.sandbox.status import bad_request, invalid, invalid_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.identity import Authenticator
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane

_FIELDS = ("verb", "group", "version", "resource", "subresource", "namespace", "name")


class Reviews:
    """Answers them."""

    def __init__(self, plane: Plane, authorizer: Authorizer, authenticator: Authenticator) -> None:
        self._plane = plane
        self._authorizer = authorizer
        self._authenticator = authenticator

    def answer(self, call: Call) -> ApiResponse:
        """The review with its status.

        Raises:
            ApiStatusError: for bodies that make no sense.
        """
        options = write_options(call.request, "CreateOptions")
        body = incoming.read_object(call, options.field_validation)
        body["metadata"].pop("creationTimestamp", None)
        kind = call.resource.kind
        if kind == "SelfSubjectReview":
            body["metadata"] = {"creationTimestamp": self._plane.now()}
            body["status"] = {"userInfo": user_info(call.user)}
        elif kind == "TokenReview":
            user = self._authenticator.user_of((body.get("spec") or {}).get("token", ""))
            body["status"] = {"authenticated": True, "user": user_info(user)} if user else {"user": {}}
        elif kind == "SelfSubjectRulesReview":
            body["status"] = self._rules(call.user, (body.get("spec") or {}).get("namespace", ""))
        else:
            spec = body.get("spec") or {}
            _check(kind, spec)
            own = kind == "SelfSubjectAccessReview"
            user = call.user if own else User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            body["status"] = {"allowed": self._authorizer.allowed(user, _attributes(call, spec))}
        return answer(body, 201, negotiate(call.request.headers.get("accept", "")))

    def _rules(self, user: User, namespace: str) -> JsonObject:
        if not self._authorizer.enabled:
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
            return {"resourceRules": [everything], "nonResourceRules": [paths], "incomplete": False}
        rules = list(self._authorizer.rules(user, namespace))
        return {
            "resourceRules": [rule.to_json() for rule in rules if not rule.paths],
            "nonResourceRules": [rule.to_json() for rule in rules if rule.paths],
            "incomplete": False,
        }


def _check(kind: str, spec: JsonObject) -> None:
    """Refuse a question that is none.

    Raises:
        ApiStatusError: 422, which names no kind, as a real server's does not.
    """
    problems = []
    if (spec.get("resourceAttributes") is None) == (spec.get("nonResourceAttributes") is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problems.append(invalid_value("spec.resourceAttributes", None, text))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        problems.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    if problems:
        raise invalid("", "authorization.k8s.io", "", problems)


def _attributes(call: Call, spec: JsonObject) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    resource: JsonObject = spec["resourceAttributes"]
    attributes = Attributes(**{field: resource.get(field, "") for field in _FIELDS})
    if call.resource.namespaced and attributes.namespace != call.target.namespace:
        raise bad_request("spec.resourceAttributes.namespace must match the namespace of the path")
    return attributes


def user_info(user: User) -> JsonObject:
    """A user as reviews show it."""
    info: JsonObject = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info
