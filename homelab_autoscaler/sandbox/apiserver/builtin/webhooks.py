"""Rules of ValidatingWebhookConfigurations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import dns_1035_problems, subdomain_problems
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, duplicate, go_value, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_REVIEW_VERSIONS = ("v1", "v1beta1")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
# A colon in the first segment of a path, or before anything else, makes no URL; nor do control characters.
_NO_URL = re.compile(r"[^/a-zA-Z][^/]*:|:|[^/:]*[^-+.a-zA-Z0-9/:][^/:]*:|.*[\x00-\x1f\x7f]", re.DOTALL)
_SCOPES = ("*", "Cluster", "Namespaced")


def _default(body: JsonObject) -> None:
    for hook in body.get("webhooks") or []:
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("timeoutSeconds", 10)
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        for rule in hook.get("rules") or []:
            rule.setdefault("scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def _problems(body: JsonObject) -> list[Cause]:
    problems = []
    hooks = body.get("webhooks") or []
    for index, hook in enumerate(hooks):
        where = f"webhooks[{index}]"
        if hook.get("name") in [other.get("name") for other in hooks[:index]]:
            problems.append(duplicate(f"{where}.name", hook.get("name", "")))
        problems += _name_problems(hook.get("name", ""), f"{where}.name")
        problems += _version_problems(hook.get("admissionReviewVersions") or [], f"{where}.admissionReviewVersions")
        for at, rule in enumerate(hook.get("rules") or []):
            problems += _rule_problems(rule, f"{where}.rules[{at}]")
        if hook.get("sideEffects") is None:
            problems.append(required(f"{where}.sideEffects", "must specify one of None, NoneOnDryRun"))
        elif hook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            problems.append(
                unsupported_value(f"{where}.sideEffects", hook.get("sideEffects", ""), ["None", "NoneOnDryRun"])
            )
        if hook.get("failurePolicy") not in {"Fail", "Ignore"}:
            problems.append(unsupported_value(f"{where}.failurePolicy", hook.get("failurePolicy"), ["Fail", "Ignore"]))
        timeout = hook.get("timeoutSeconds", 10)
        if not 1 <= timeout <= 30:
            problems.append(
                invalid_value(f"{where}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
            )
        problems += _client_problems(hook.get("clientConfig") or {}, f"{where}.clientConfig")
    return problems


def _name_problems(name: str, where: str) -> list[Cause]:
    if not name:
        return [required(where)]
    problems = subdomain_problems(where, name)
    if not problems and name.count(".") < 2:
        problems.append(invalid_value(where, name, "should be a domain with at least three segments separated by dots"))
    return problems


def _version_problems(versions: list[str], where: str) -> list[Cause]:
    if not versions:
        return [required(where, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")]
    problems = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            problems.append(invalid_value(f"{where}[{index}]", version, "duplicate version"))
        else:
            problems += dns_1035_problems(f"{where}[{index}]", version)
    if not set(versions) & set(_REVIEW_VERSIONS):
        problems.append(invalid_value(where, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))
    return problems


def _rule_problems(rule: JsonObject, where: str) -> list[Cause]:
    problems = []
    for field in ("operations", "apiGroups", "apiVersions", "resources"):
        values = rule.get(field) or []
        if not values:
            problems.append(required(f"{where}.{field}"))
        if "*" in values and len(values) > 1 and field != "resources":
            problems.append(
                invalid_value(f"{where}.{field}", values, "if '*' is present, must not specify other values")
            )
        for index, value in enumerate(values):
            if field == "operations" and value not in _OPERATIONS:
                problems.append(unsupported_value(f"{where}.{field}[{index}]", value, _OPERATIONS))
            elif not value and field != "apiGroups":
                problems.append(required(f"{where}.{field}[{index}]"))
    scope = rule.get("scope", "*")
    if scope not in _SCOPES:
        problems.append(unsupported_value(f"{where}.scope", scope, _SCOPES))
    return problems


def _client_problems(client: JsonObject, where: str) -> list[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(where, "exactly one of url or service is required")]
    if url is not None:
        if _NO_URL.match(url):
            return [required(f"{where}.url", f"url must be a valid URL: parse {go_value(url)}")]
        parts = urlsplit(url)
        desired = "desired format: https://host[/path]"
        if parts.scheme != "https":
            return [invalid_value(f"{where}.url", parts.scheme, f"'https' is the only allowed URL scheme; {desired}")]
        if not parts.netloc:
            return [invalid_value(f"{where}.url", "", f"host must be specified; {desired}")]
    return []


CONFIGURATION = Rules(
    unconditional_update=False, qualified_finalizers=False, generation=True, default=_default, validate=_problems
)
