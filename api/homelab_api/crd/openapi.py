"""From a model to a structural OpenAPI schema, as CustomResourceDefinitions want it.

A structural schema has one type per value and no references, so models are written out in place. Descriptions are
the docstrings below the fields; they are read from the source here, which keeps importing the types free of it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from homelab_api.meta import JsonObject, KubeModel, format_duration
from homelab_api.schema import DURATION_RULE, Bounds, ListKind, NotInCrd, OneOf, Rule, ShapeOf

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_DEFAULT_MAX_LENGTH: Final = 1024
_MARKS: Final = (Bounds, ListKind, NotInCrd, OneOf, Rule, ShapeOf)


class SchemaError(TypeError):
    """A type cannot be said in a structural schema."""


@cache
def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field, of the model and its bases, by field name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is object or not issubclass(base, BaseModel) or base.__module__.startswith("pydantic"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def model_description(model: type[BaseModel]) -> str:
    """The model's own docstring."""
    return inspect.cleandoc(model.__doc__ or "")


def object_schema(model: type[KubeModel], *, defaults: bool = True, skip: frozenset[str] = frozenset()) -> JsonObject:
    """The schema of a model.

    Args:
        model: the model.
        defaults: whether Python's defaults become the API server's; off for status, which nobody declares.
        skip: names of fields to leave out.

    Raises:
        SchemaError: when a field has no description, or a type that has no schema.
    """
    described = field_descriptions(model)
    properties: JsonObject = {}
    required: list[str] = []
    for name, field in model.model_fields.items():
        if name in skip or any(isinstance(mark, NotInCrd) for mark in field.metadata):
            continue
        if name not in described:
            raise SchemaError(f"{model.__name__}.{name} has no description: write a docstring below the field")
        wire = field.alias or name
        schema = _value_schema(f"{model.__name__}.{name}", field.annotation, field.metadata, defaults=defaults)
        properties[wire] = {"description": described[name], **schema}
        if field.is_required():
            required.append(wire)
        elif defaults:
            properties[wire] |= _default(field)
    schema = {"type": "object", "description": model_description(model), "properties": properties}
    if required:
        schema["required"] = required
    return schema | _rules(list(model.rules))


def _value_schema(where: str, annotation: Any, marks: list[Any], *, defaults: bool) -> JsonObject:
    annotation, marks = _unwrap(annotation, marks)
    shape = next((mark.model for mark in marks if isinstance(mark, ShapeOf)), None)
    schema = _type_schema(where, shape or annotation, defaults=defaults)
    nested = schema.pop("x-kubernetes-validations", [])
    for mark in marks:
        match mark:
            case Bounds():
                schema |= mark.to_json()
            case OneOf():
                schema["enum"] = list(mark.values)
                schema.pop("maxLength", None)
            case ListKind():
                schema["x-kubernetes-list-type"] = mark.kind
                if mark.keys:
                    schema["x-kubernetes-list-map-keys"] = list(mark.keys)
    return schema | _rules([mark for mark in marks if isinstance(mark, Rule)], nested)


def _unwrap(annotation: Any, marks: list[Any]) -> tuple[Any, list[Any]]:
    """Take `Annotated[...]` and `... | None` off, and gather the marks; the inner ones come first."""
    outer = [mark for mark in marks if isinstance(mark, _MARKS)]
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        return _unwrap(inner, [*own, *outer])
    if origin in (Union, types.UnionType):
        (inner,) = [entry for entry in get_args(annotation) if entry is not type(None)]
        return _unwrap(inner, outer)
    return annotation, outer


def _type_schema(where: str, annotation: Any, *, defaults: bool) -> JsonObject:  # noqa: PLR0911 - one return per type
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return {"type": "array", "items": _value_schema(f"{where}[]", arguments[0], [], defaults=defaults)}
    if origin is dict and arguments[1] is not Any:
        values = _value_schema(f"{where}[]", arguments[1], [], defaults=defaults)
        return {"type": "object", "additionalProperties": values}
    if annotation is bool:
        return {"type": "boolean"}
    if annotation is int:
        return {"type": "integer", "format": "int64"}
    if annotation is str:
        return {"type": "string", "maxLength": _DEFAULT_MAX_LENGTH}
    if annotation is datetime:
        return {"type": "string", "format": "date-time"}
    if annotation is timedelta:
        # A bare number is the usual slip. As int-or-string it reaches the rule, which says what to write instead.
        return {"x-kubernetes-int-or-string": True, "maxLength": 32} | _rules([DURATION_RULE])
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return {"type": "string", "enum": [entry.value for entry in annotation]}
    if isinstance(annotation, type) and issubclass(annotation, KubeModel):
        schema = object_schema(annotation, defaults=defaults)
        schema.pop("description")
        return schema
    raise SchemaError(f"{where}: {annotation} has no structural schema: use a model, or mark it with ShapeOf")


def _rules(rules: list[Rule], before: list[JsonObject] | None = None) -> JsonObject:
    written = list(before or [])
    for rule in rules:
        entry = {"rule": rule.rule, "message": rule.message}
        if rule.expression:
            entry["messageExpression"] = rule.expression
        if rule.field_path:
            entry["fieldPath"] = rule.field_path
        if rule.reason:
            entry["reason"] = rule.reason
        written.append(entry)
    return {"x-kubernetes-validations": written} if written else {}


def _default(field: FieldInfo) -> JsonObject:
    """The default as the API server fills it in; nothing where absent and default read the same."""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or value in ("", 0, False, [], {}):
        return {}
    return {"default": _json(value)}


def _json(value: object) -> object:
    match value:
        case KubeModel():
            # Defaults inside the object fill it, as they do for one that a person wrote in part.
            filled = {
                name
                for name, field in type(value).model_fields.items()
                if not field.is_required() and getattr(value, name) == field.get_default(call_default_factory=True)
            }
            return value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=filled)
        case list():
            return [_json(entry) for entry in value]
        case timedelta():
            return format_duration(value)
        case StrEnum():
            return value.value
        case _:
            return value
