"""What a CustomResourceDefinition must look like, and what it gets by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.builtin.syntax import dns_1035_problems, subdomain_problems
from homelab_autoscaler.sandbox.apiserver.semantics.cel import CelError, compiled
from homelab_autoscaler.sandbox.status import (
    Cause,
    forbidden_field,
    go_value,
    invalid_value,
    required,
    unsupported_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject

_SCHEMA = "spec.validation.openAPIV3Schema"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def crd_defaults(body: JsonObject) -> None:
    """Fill in names and the conversion strategy."""
    spec = body.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names["singular"] = names.get("singular") or kind.lower()
    if kind:
        names["listKind"] = names.get("listKind") or f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    status = body.setdefault("status", {})
    status.setdefault("conditions", None)
    status.setdefault("acceptedNames", {"plural": "", "kind": ""})
    if "storedVersions" not in status:
        status["storedVersions"] = [item.get("name", "") for item in spec.get("versions") or [] if item.get("storage")]


def crd_problems(body: JsonObject) -> list[Cause]:
    """The problems of a definition."""
    spec = body["spec"]
    names = spec["names"]
    problems = []
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    name = body["metadata"].get("name", "")
    if name and name != expected:
        problems.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    problems += [required(f"spec.{key}") for key in ("group", "scope") if not spec.get(key)]
    problems += _name_problems(spec.get("group", ""), names)
    if spec.get("scope") not in {None, "", "Namespaced", "Cluster"}:
        problems.append(unsupported_value("spec.scope", spec["scope"], ["Cluster", "Namespaced"]))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        problems.append(
            invalid_value("spec.versions", len(versions), "must have exactly one version marked as storage version")
        )
        stored = body["status"].get("storedVersions") or []
        problems.append(invalid_value("status.storedVersions", stored, "must have exactly one stored version"))
    for index, version in enumerate(versions):
        name = version.get("name", "")
        problems += dns_1035_problems(f"spec.versions[{index}].name", name)
        if name and index == 0:
            # The first version's name is also the value of an older field.
            problems += dns_1035_problems("spec.version", name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        where = _SCHEMA if len(versions) == 1 else f"spec.versions[{index}].schema.openAPIV3Schema"
        if schema is None:
            problems.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
        else:
            problems += _schema_problems(schema, where, root=True)
    return problems


def _name_problems(group: str, names: JsonObject) -> Iterator[Cause]:
    if group:
        yield from subdomain_problems("spec.group", group)
        if "." not in group:
            yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    for key in ("plural", "singular", "kind", "listKind"):
        name = names.get(key, "")
        if not name:
            yield required(f"spec.names.{key}")
        else:
            yield from dns_1035_problems(f"spec.names.{key}", name.lower() if key in {"kind", "listKind"} else name)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _schema_problems(schema: JsonObject, path: str, *, root: bool = False) -> Iterator[Cause]:
    """What keeps a schema from being structural."""
    kind = schema.get("type", "")
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind and (root or not free):
        what = (
            "at the root"
            if root
            else "for specified object fields"
            if "[" in path.rpartition(".")[2]
            else "for specified array items"
        )
        yield required(f"{path}.type", f"must not be empty {what}")
    elif kind and kind not in _TYPES:
        yield unsupported_value(f"{path}.type", kind, _TYPES)
    if kind and root and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield forbidden_field(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if schema.get("additionalProperties") is False:
        yield forbidden_field(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    if schema.get("x-kubernetes-list-type") == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        yield from _rule_problems(rule, f"{path}.x-kubernetes-validations[{index}]")
    for key, child in (schema.get("properties") or {}).items():
        if not (root and key in {"metadata", "apiVersion", "kind"}):
            yield from _schema_problems(child, f"{path}.properties[{key}]")
    items: Any = schema.get("items")
    if isinstance(items, dict):
        yield from _schema_problems(items, f"{path}.items")
    elif kind == "array":
        yield required(f"{path}.items", "must be specified")
    values: Any = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield from _schema_problems(values, f"{path}.additionalProperties")


def _rule_problems(rule: JsonObject, path: str) -> Iterator[Cause]:
    for key in ("rule", "messageExpression"):
        expression = rule.get(key, "")
        if not expression:
            if key == "rule":
                yield required(f"{path}.rule", "rule is not specified")
            continue
        try:
            compiled(expression)
        except CelError as error:
            first = str(error).partition("\n")[0]
            yield Cause(
                "FieldValueInvalid",
                f"Invalid value: {go_value(expression)}: compilation failed: {first}",
                f"{path}.{key}",
            )


def crd_update_problems(body: JsonObject, old: JsonObject) -> list[Cause]:
    """What a definition cannot change."""
    pairs = [(f"spec.{key}", body["spec"].get(key), old["spec"].get(key)) for key in ("group", "scope")]
    names, before = body["spec"]["names"], old["spec"]["names"]
    pairs += [(f"spec.names.{key}", names.get(key), before.get(key)) for key in ("plural", "kind")]
    return [invalid_value(field, new, "field is immutable") for field, new, was in pairs if new != was]
