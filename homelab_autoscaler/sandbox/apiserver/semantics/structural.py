"""Structural schemas of CustomResourceDefinitions: shapes, defaults, pruning, and validation in Kubernetes' words.

Validation proper is jsonschema-rs, on a translation of the schema (`nullable`, `x-kubernetes-int-or-string` and the
old boolean form of exclusive bounds mean nothing to it). Its errors are turned into the causes that a real server
gives. What `x-kubernetes-list-type` asks of items is checked in `list_items`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from homelab_autoscaler.sandbox.apiserver.builtin.types import OBJECT_META
from homelab_autoscaler.sandbox.apiserver.semantics.cel import Rule
from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import same
from homelab_autoscaler.sandbox.apiserver.semantics.list_items import keyless_items, repeated_items
from homelab_autoscaler.sandbox.apiserver.semantics.shape import STRING, UNSET, Kind, Shape
from homelab_autoscaler.sandbox.status import (
    Cause,
    duplicate,
    go_value,
    invalid_value,
    required,
    unsupported_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from homelab_api.meta import JsonObject

_KINDS: dict[str, Kind] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
# Formats that a server checks and that the validator knows under the same name.
_FORMATS = {"date-time", "date", "uuid", "email", "ipv4", "ipv6", "uri", "hostname"}
_COPIED = [
    "enum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
]
_BLOCKING = {
    "FieldValueRequired",
    "FieldValueTypeInvalid",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueNotSupported",
}

Path = tuple[str | int, ...]


def shape_of_schema(schema: JsonObject, *, root: bool = False) -> Shape:
    """The shape of an OpenAPI v3 schema as it stands in a CRD version."""
    kind = schema.get("type")
    shape = Shape(
        nullable=bool(schema.get("nullable")),
        preserve=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        default=schema.get("default", UNSET),
        rules=tuple(Rule.of(entry) for entry in schema.get("x-kubernetes-validations") or ()),
    )
    if schema.get("x-kubernetes-int-or-string"):
        shape.kind = "int-or-string"
    elif kind == "object":
        _shape_object(shape, schema, root=root)
    elif kind == "array":
        shape.kind = "list"
        shape.items = shape_of_schema(schema.get("items") or {})
        if schema.get("x-kubernetes-list-type") == "map":
            shape.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        shape.is_set = schema.get("x-kubernetes-list-type") == "set"
    elif kind == "string" and schema.get("format") == "date-time":
        shape.kind = "time"
    else:
        shape.kind = _KINDS.get(str(kind), "any")
    children = [child for child in (*shape.fields.values(), shape.values, shape.items) if child is not None]
    shape.has_defaults = any(child.default is not UNSET or child.has_defaults for child in children)
    shape.has_rules = bool(shape.rules) or any(child.has_rules for child in children)
    return shape


def _shape_object(shape: Shape, schema: JsonObject, *, root: bool) -> None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        shape.kind = "map"
        shape.values = shape_of_schema(additional)
    else:
        shape.kind = "object"
        shape.fields = {key: shape_of_schema(value) for key, value in (schema.get("properties") or {}).items()}
        if additional is True:
            shape.preserve = True
    if root or shape.embedded:
        shape.kind = "object"
        shape.fields = {**shape.fields, "apiVersion": STRING, "kind": STRING, "metadata": OBJECT_META}


def conform(value: Any, shape: Shape, path: str, unknown: list[str]) -> Any:
    """Prune unknown fields, drop nulls that are no values, set defaults. Works in place.

    Args:
        value: parsed JSON.
        shape: what is known about it.
        path: where it stands.
        unknown: gets the paths of the fields that were dropped.
    """
    if shape.kind in {"object", "map"}:
        if not isinstance(value, dict):
            return value
        for key in list(value):
            child = shape.fields.get(key) or shape.values
            item = value[key]
            if child is None:
                if not shape.preserve:
                    unknown.append(f"{path}.{key}" if path else key)
                    del value[key]
                continue
            if child.name == "ObjectMeta":
                continue
            if item is None:
                if not child.nullable:
                    del value[key]
                continue
            if isinstance(item, dict | list):
                value[key] = conform(item, child, f"{path}.{key}" if path else key, unknown)
        if shape.has_defaults:
            for key, child in shape.fields.items():
                if child.default is not UNSET and key not in value:
                    item = copy.deepcopy(child.default)
                    value[key] = conform(item, child, f"{path}.{key}" if path else key, unknown)
        return value
    if isinstance(value, list):
        items = shape.items if shape.kind == "list" and shape.items is not None else shape
        return [conform(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    if isinstance(value, dict) and shape.kind != "any" and not shape.preserve:
        # An object where there should be none has no known fields.
        unknown.extend(f"{path}.{key}" for key in value)
        value.clear()
    return value


def json_schema(schema: JsonObject) -> JsonObject:
    """The same constraints as a JSON Schema that a general validator understands."""
    found: JsonObject = {key: schema[key] for key in _COPIED if key in schema}
    kind = schema.get("type")
    kinds: list[str] = ["integer", "string"] if schema.get("x-kubernetes-int-or-string") else [kind] if kind else []
    if schema.get("nullable") and kinds:
        kinds.append("null")
        if "enum" in found and None not in found["enum"]:
            found["enum"] = [*found["enum"], None]
    if kinds:
        found["type"] = kinds
    if schema.get("format") in _FORMATS:
        found["format"] = schema["format"]
    for bound, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        if bound in schema:
            found[exclusive if schema.get(exclusive) is True else bound] = schema[bound]
    if schema.get("properties"):
        found["properties"] = {key: json_schema(value) for key, value in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = json_schema(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        found["items"] = json_schema(schema["items"])
    for word in ("allOf", "anyOf", "oneOf"):
        if schema.get(word) and not schema.get("x-kubernetes-int-or-string"):
            found[word] = [json_schema(item) for item in schema[word]]
    if schema.get("not"):
        found["not"] = json_schema(schema["not"])
    return found


class Schema:
    """One version's schema of a custom resource."""

    def __init__(self, openapi: JsonObject, *, replicas_path: str | None = None) -> None:
        self.openapi = openapi
        self.shape = shape_of_schema(openapi, root=True)
        translated = json_schema(openapi)
        # The type metadata and metadata itself are checked by other means.
        for key in ("apiVersion", "kind", "metadata"):
            translated.get("properties", {}).pop(key, None)
        self._validator = jsonschema_rs.Draft202012Validator(translated, validate_formats=True)
        self._replicas_path = replicas_path.strip(".").split(".") if replicas_path else None

    def problems(self, body: JsonObject, old: JsonObject | None, earlier: Iterable[Cause] = ()) -> list[Cause]:
        """What is wrong with an object, CEL rules included.

        Values that an update leaves as they were are not held against it (ratcheting).

        Args:
            body: the object as it would be stored.
            old: the stored object on updates.
            earlier: problems that were found before; some of them keep rules from being evaluated.
        """
        found = [] if self._validator.is_valid(body) else _causes(self._validator.iter_errors(body))
        found += [(duplicate(dotted(path), value), path) for path, value in repeated_items(body, self.shape, ())]
        found += [
            (invalid_value(dotted(path), value, "must be an object for an array of list-type map"), path)
            for path, value in keyless_items(body, self.shape, ())
        ]
        if old is not None:
            found = [(cause, path) for cause, path in found if not _unchanged(body, old, path)]
        causes = [cause for cause, _ in found]
        causes += self._scale_problems(body)
        if self.shape.has_rules:
            if any(cause.reason in _BLOCKING for cause in (*earlier, *causes)):
                causes.append(
                    Cause(
                        "FieldValueInvalid",
                        "Invalid value: null: some validation rules were not checked because the object was invalid; "
                        "correct the existing errors to complete validation",
                        "<nil>",
                    )
                )
            else:
                causes += rule_problems(body, old, self.shape)
        return causes

    def _scale_problems(self, body: JsonObject) -> list[Cause]:
        if self._replicas_path is None:
            return []
        value: Any = body
        for key in self._replicas_path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return []
        path = "." + ".".join(self._replicas_path)
        shown = int(value) if isinstance(value, float) and value.is_integer() else value
        kind = "float64" if isinstance(value, float) else {"boolean": "bool"}.get(type_name(value), type_name(value))
        text = shown if isinstance(shown, str) else go_value(shown)
        return [invalid_value(path, 0, f"{path} accessor error: {text} is of the type {kind}, expected int64")]


def rule_problems(body: JsonObject, old: JsonObject | None, shape: Shape) -> list[Cause]:
    """Violations of CEL rules anywhere in an object."""
    found: list[Cause] = []
    _walk_rules(body, UNSET if old is None else old, shape, "", found)
    return found


def _walk_rules(value: Any, old: Any, shape: Shape, path: str, found: list[Cause]) -> None:
    if not shape.has_rules:
        return
    if value is None and shape.nullable:
        return
    for rule in shape.rules:
        found += rule.problems(value, old, shape, path, updating=old is not UNSET)
    if isinstance(value, dict):
        for key, item in value.items():
            child = shape.field(key)
            if child is not None and child.has_rules:
                before = old.get(key, UNSET) if isinstance(old, dict) else UNSET
                _walk_rules(item, before, child, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list) and shape.items is not None and shape.items.has_rules:
        for index, item in enumerate(value):
            before = UNSET
            if shape.keys and isinstance(old, list) and isinstance(item, dict):
                # Only lists with keys tell which old item an item was.
                before = next((one for one in old if all(one.get(key) == item.get(key) for key in shape.keys)), UNSET)
            _walk_rules(item, before, shape.items, f"{path}[{index}]", found)


def dotted(path: Path) -> str:
    """A path as error messages show it: `spec.parts[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def type_name(value: Any) -> str:
    """The JSON Schema type of a value; whole numbers are integers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _causes(errors: Iterable[Any]) -> list[tuple[Cause, Path]]:
    found: list[tuple[Cause, Path]] = []
    wrong_type: set[Path] = set()
    for error in errors:
        path: Path = tuple(error.instance_path)
        cause = _cause(error, path)
        if error.kind.name == "type":
            wrong_type.add(path)
        found.append(((cause, path)) if error.kind.name != "required" else (cause, (*path, error.kind.property)))
    # Where the type is wrong nothing else about the value is worth saying.
    return [item for item in found if item[1] not in wrong_type or item[0].reason == "FieldValueTypeInvalid"]


def _cause(error: Any, path: Path) -> Cause:
    kind = error.kind
    name = kind.name
    field = dotted(path)
    value = error.instance
    where = field or "<root>"
    if name == "type":
        wanted = ",".join(item for item in kind.types if item != "null")
        actual = go_value(type_name(value))
        return Cause(
            "FieldValueTypeInvalid",
            f"Invalid value: {actual}: {where} in body must be of type {wanted}: {actual}",
            field,
        )
    if name == "required":
        return required(dotted((*path, kind.property)))
    if name == "enum":
        options = [item for item in kind.options if item is not None]
        return unsupported_value(field, value, options)
    if name == "format":
        shown = go_value(value)
        return Cause(
            "FieldValueTypeInvalid",
            f"Invalid value: {shown}: {where} in body must be of type {kind.format}: {shown}",
            field,
        )
    if name == "maxLength":
        return Cause("FieldValueTooLong", f"Too long: may not be more than {kind.limit} bytes", field)
    if name in {"maxItems", "maxProperties"}:
        return Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {kind.limit} items", field)
    words: dict[str, Callable[[], str]] = {
        "maximum": lambda: f"should be less than or equal to {_number(kind.limit)}",
        "exclusiveMaximum": lambda: f"should be less than {_number(kind.limit)}",
        "minimum": lambda: f"should be greater than or equal to {_number(kind.limit)}",
        "exclusiveMinimum": lambda: f"should be greater than {_number(kind.limit)}",
        "minLength": lambda: f"should be at least {kind.limit} chars long",
        "pattern": lambda: f"should match '{kind.pattern}'",
        "minItems": lambda: f"should have at least {kind.limit} items",
        "minProperties": lambda: f"should have at least {kind.limit} properties",
        "multipleOf": lambda: f"should be a multiple of {_number(kind.multiple_of)}",
        "uniqueItems": lambda: "shouldn't contain duplicates",
        "anyOf": lambda: "must validate at least one schema (anyOf)",
        "oneOfNotValid": lambda: "must validate one and only one schema (oneOf). Found none valid",
        "oneOfMultipleValid": lambda: "must validate one and only one schema (oneOf). Found 2 valid alternatives",
        "not": lambda: "must not validate the schema (not)",
    }
    say = words.get(name)
    return invalid_value(field, value, f"{where} in body {say() if say else error.message}")


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unchanged(body: Any, old: Any, path: Path) -> bool:
    """Whether the value at a path, or what lacks it, is the same in both."""
    for part in path:
        if isinstance(part, int):
            if not (isinstance(body, list) and isinstance(old, list) and part < len(body) and part < len(old)):
                return False
            body, old = body[part], old[part]
            continue
        if not isinstance(body, dict) or not isinstance(old, dict):
            return False
        if part not in body:
            return part not in old
        if part not in old:
            return False
        body, old = body[part], old[part]
    return same(body, old)
