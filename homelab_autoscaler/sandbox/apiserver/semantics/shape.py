"""What is known about the fields of a kind, in one form for custom and for built-in resources.

Everything that walks objects by their schema (defaults, pruning, strict decoding, strategic patches, field ownership)
walks these shapes. `Shape.field` finds what lies under a key, so that walkers need not care where a shape came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject

UNSET: Any = object()
ZERO_SCALARS: dict[str, Any] = {"string": "", "integer": 0, "boolean": False}
"""What a field without a value shows, if it is always shown."""

Kind = Literal[
    "object",
    "map",
    "list",
    "any",
    "string",
    "integer",
    "number",
    "boolean",
    "time",
    "microtime",
    "quantity",
    "int-or-string",
    "bytes",
]


@dataclass(slots=True, eq=False)
class Shape:
    """The shape of one value.

    Attributes:
        kind: object (named fields), map (free keys), list, any (nothing is known), or a scalar.
        name: the type's name where it has one, for decoding errors.
        fields: the named fields of an object.
        values: the shape below free keys of a map (objects of CRDs never have both).
        items: the shape of list items.
        keys: the fields that identify an item of a map-typed list; empty for other lists.
        is_set: the list is a set of scalars.
        atomic: a map or object that has one owner as a whole.
        merge: strategic merge key of a list, "" for a merged list of scalars, None for lists that are replaced.
        nullable: null is a value.
        preserve: unknown fields are kept.
        embedded: a whole Kubernetes object with apiVersion, kind and metadata.
        default: value of an absent field.
        zero: names and values that an object shows even when nobody set them.
        rules: CEL rules at this place.
    """

    kind: Kind = "any"
    name: str = ""
    fields: dict[str, Shape] = field(default_factory=dict)
    values: Shape | None = None
    items: Shape | None = None
    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    merge: str | None = None
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    default: Any = UNSET
    zero: JsonObject = field(default_factory=dict)
    rules: tuple[Any, ...] = ()
    # Objects whose content must be looked at below: False lets walkers skip whole branches of scalars.
    has_defaults: bool = False
    has_rules: bool = False

    def field(self, key: str) -> Shape | None:
        """The shape under a key; None when the key is not declared."""
        found = self.fields.get(key)
        return found if found is not None else self.values


ANY = Shape()


def without_defaults(shape: Shape) -> Shape:
    """The same fields, but nothing is filled in: for configurations whose author owns what stands there."""
    made: dict[int, Shape] = {}

    def bare(shape: Shape) -> Shape:
        if id(shape) not in made:
            copy = made[id(shape)] = replace(
                shape, default=UNSET, has_defaults=False, zero={}, rules=(), has_rules=False
            )
            copy.fields = {key: bare(child) for key, child in shape.fields.items()}
            copy.values = bare(shape.values) if shape.values else None
            copy.items = bare(shape.items) if shape.items else None
        return made[id(shape)]

    return bare(shape)


STRING = Shape(kind="string")


def resolver(table: JsonObject, zeros: dict[str, JsonObject]) -> Callable[[str], Shape]:
    """Turn a table of built-in types into shapes, one per type, made when first asked for.

    Args:
        table: type name to `{"fields": …}`, as hack/generate_builtin_types.py writes it.
        zeros: type name to more fields that its objects always show; UNSET for those that they do not.
    """
    made: dict[str, Shape] = {}

    def of_type(name: str) -> Shape:
        if name not in made:
            shape = made[name] = Shape(kind="object", name=name.rpartition(".")[2])
            for key, entry in table[name]["fields"].items():
                shape.fields[key] = of_entry(entry)
            # What OpenAPI calls required are the fields that Go's encoder never leaves out.
            required = {key: table[name]["fields"][key].get("scalar") for key in table[name].get("required", ())}
            plain = {key: ZERO_SCALARS[kind] for key, kind in required.items() if kind in ZERO_SCALARS}
            shape.zero = {key: value for key, value in {**plain, **zeros.get(name, {})}.items() if value is not UNSET}
        return made[name]

    def of_entry(entry: JsonObject) -> Shape:
        if "ref" in entry:
            target = of_type(entry["ref"])
            if entry.get("atomic"):
                return Shape(kind="object", name=target.name, fields=target.fields, zero=target.zero, atomic=True)
            return target
        if "items" in entry:
            return Shape(
                kind="list",
                items=of_entry(entry["items"]),
                keys=tuple(entry.get("keys", ())),
                is_set=entry.get("set", False),
                merge=entry.get("merge"),
            )
        if "values" in entry:
            return Shape(kind="map", values=of_entry(entry["values"]), atomic=entry.get("atomic", False))
        if entry["scalar"] == "any":
            return Shape(kind="any", preserve=True)
        return Shape(kind=entry["scalar"])

    return of_type
