"""A container's environment, and the rewriting of its mount paths."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from homelab_api.meta import JsonObject
from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.kubelet.runtime import NotReadyYetError

Lookup = Callable[[str, str], Awaitable[JsonObject | None]]
"""Called with (`Secret` or `ConfigMap`, name): the object, or None if it is not there."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.\-]*)\)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value if there is one, `$$` a dollar sign; everything else stays."""

    def replace(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "$"
        return values.get(name, found.group(0))

    return _REFERENCE.sub(replace, text)


class PathMap:
    """Rewrites mount paths to where the files really are."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        """Mount path to real path."""
        # Longest first: a mount inside another mount wins.
        self._rules = [
            (re.compile(rf"(?<![\w.\-/]){re.escape(mount.rstrip('/'))}(?![\w.\-])"), real)
            for mount, real in sorted(mounts.items(), key=lambda item: -len(item[0]))
            if mount.rstrip("/")
        ]

    def rewrite(self, text: str) -> str:
        """The text with every mount path replaced, where it stands as a path of its own or in front of `/…`."""
        for pattern, real in self._rules:
            text = pattern.sub(lambda _, real=real: real, text)  # type: ignore[misc]
        return text


async def container_environment(
    pod: JsonObject, container: JsonObject, base: Mapping[str, str], lookup: Lookup
) -> dict[str, str]:
    """What `env` and `envFrom` make, on top of a base.

    Args:
        pod: For field references.
        container: Whose environment.
        base: What is there before; `env` wins over `envFrom`, which wins over the base.
        lookup: Finds Secrets and ConfigMaps.

    Raises:
        NotReadyYetError: a Secret, ConfigMap or key is missing and not optional.
    """
    values = dict(base)
    for source in container.get("envFrom") or []:
        values |= await _from_source(source, lookup)
    for entry in container.get("env") or []:
        if "valueFrom" in entry:
            found = await _value_from(pod, entry, lookup)
            if found is not None:
                values[entry["name"]] = found
        else:
            values[entry["name"]] = expand(str(entry.get("value") or ""), values)
    return values


async def _from_source(source: JsonObject, lookup: Lookup) -> dict[str, str]:
    prefix = str(source.get("prefix") or "")
    for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
        reference = source.get(field)
        if reference is None:
            continue
        found = await lookup(kind, reference["name"])
        if found is None:
            if reference.get("optional"):
                return {}
            raise _missing(kind, reference["name"])
        data = contents(found)
        return {prefix + key: value.decode(errors="replace") for key, value in data.items() if _VARIABLE.fullmatch(key)}
    return {}


async def _value_from(pod: JsonObject, entry: JsonObject, lookup: Lookup) -> str | None:
    source = entry["valueFrom"]
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        reference = source.get(field)
        if reference is None:
            continue
        found = await lookup(kind, reference["name"])
        value = contents(found).get(reference["key"]) if found is not None else None
        if value is not None:
            return value.decode(errors="replace")
        if reference.get("optional"):
            return None
        if found is None:
            raise _missing(kind, reference["name"])
        text = f"couldn't find key {reference['key']} in {kind} {objects.namespace(pod)}/{reference['name']}"
        raise NotReadyYetError(text, event="Failed", waiting="CreateContainerConfigError")
    if "fieldRef" in source:
        return field_value(pod, str(source["fieldRef"].get("fieldPath") or ""))
    return ""


def _missing(kind: str, name: str) -> NotReadyYetError:
    plural = {"Secret": "secret", "ConfigMap": "configmap"}[kind]
    return NotReadyYetError(f'{plural} "{name}" not found', event="Failed", waiting="CreateContainerConfigError")


def contents(obj: JsonObject) -> dict[str, bytes]:
    """The keys of a Secret or ConfigMap as bytes."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value or "") for key, value in (obj.get("data") or {}).items()}
    data = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    return data | {key: base64.b64decode(value or "") for key, value in (obj.get("binaryData") or {}).items()}


def field_value(pod: JsonObject, path: str) -> str:
    """A downward API field; empty for one that is not known."""
    found = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if found is not None:
        source = objects.labels(pod) if found.group(1) == "labels" else objects.annotations(pod)
        return source.get(found.group(2), "")
    node: object = pod
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return str(node) if isinstance(node, str | int | float) else ""
