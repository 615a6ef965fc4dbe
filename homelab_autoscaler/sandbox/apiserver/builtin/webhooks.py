"""Rules of ValidatingWebhookConfigurations."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from homelab_autoscaler.sandbox.apiserver.semantics.resources import Rules
from homelab_autoscaler.sandbox.status import Cause, invalid_value, required, unsupported_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject


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
    for index, hook in enumerate(body.get("webhooks") or []):
        where = f"webhooks[{index}]"
        if hook.get("name", "").count(".") < 2:
            problems.append(
                invalid_value(
                    f"{where}.name",
                    hook.get("name", ""),
                    "should be a domain with at least three segments separated by dots",
                )
            )
        if "v1" not in (hook.get("admissionReviewVersions") or []):
            problems.append(
                invalid_value(
                    f"{where}.admissionReviewVersions",
                    hook.get("admissionReviewVersions") or [],
                    "must include at least one of v1, v1beta1",
                )
            )
        if hook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
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


def _client_problems(client: JsonObject, where: str) -> list[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(where, "exactly one of url or service is required")]
    if url is not None:
        parts = urlsplit(url)
        desired = "desired format: https://host[/path]"
        if parts.scheme != "https":
            return [invalid_value(f"{where}.url", parts.scheme, f"'https' is the only allowed URL scheme; {desired}")]
        if not parts.netloc:
            return [invalid_value(f"{where}.url", "", f"host must be specified; {desired}")]
    return []


CONFIGURATION = Rules(generation=True, default=_default, validate=_problems)
