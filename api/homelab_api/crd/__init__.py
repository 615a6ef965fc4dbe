"""CustomResourceDefinitions generated from the types. Heavy to import and not needed at run time: use it on purpose."""

from homelab_api.crd.definition import CATEGORY, DEFINITIONS, Column, Definition, definitions
from homelab_api.crd.openapi import SchemaError, field_descriptions, model_description, object_schema

__all__ = [
    "CATEGORY",
    "DEFINITIONS",
    "Column",
    "Definition",
    "SchemaError",
    "definitions",
    "field_descriptions",
    "model_description",
    "object_schema",
]
