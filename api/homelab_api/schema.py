"""What a CRD says about a field beyond its Python type: bounds, list kinds and rules.

These are marks in `Annotated[...]` for the CRD generator and are not enforced when an object is read: what may be
written is the API server's business, and an object that an older schema admitted must stay readable. Importing a
type costs nothing for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule (`x-kubernetes-validations`) that the API server enforces.

    Attributes:
        rule: the expression; `self` is the value it is written at, `oldSelf` makes it a rule about changes.
        message: what a person reads if it is broken: the value's place is added by the API server, the fix is here.
        expression: the same text as a CEL string expression that names the value; "" to use `message` alone.
        field_path: path of the field to blame, relative to the value, e.g. `.maxSize`.
        reason: FieldValueInvalid, FieldValueForbidden, FieldValueRequired or FieldValueDuplicate.
    """

    rule: str
    message: str
    expression: str = ""
    field_path: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """OpenAPI validation of a field. Only what is set is written."""

    min_length: int | None = None
    max_length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None

    def to_json(self) -> JsonObject:
        """As OpenAPI keywords."""
        found = {
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "minItems": self.min_items,
            "maxItems": self.max_items,
            "maxProperties": self.max_properties,
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ListKind:
    """How writers merge a list: `atomic` (replaced whole), `set`, or `map` (one entry per key)."""

    kind: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OneOf:
    """The closed set of values of a string whose Python type is not an enumeration of ours."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShapeOf:
    """Take the schema from that model, though the field is read as plain JSON that is passed on unchanged."""

    model: type


@dataclass(frozen=True, slots=True)
class NotInCrd:
    """The field belongs to the built-in kind and is not offered in ours."""


def immutable(field: str, fix: str) -> Rule:
    """The value cannot change once it is set; only for fields that are required."""
    return Rule(
        "self == oldSelf",
        f"{field} is immutable: {fix}",
        reason="FieldValueForbidden",
    )


def _matches(pattern: str, kind: str, fix: str, also: str = "") -> Rule:
    return Rule(
        f"self.matches('{pattern}')" + (f" && {also}" if also else ""),
        f"not {kind}: {fix}",
        f"'\"' + self + '\" is not {kind}: {fix}'",
    )


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = f"{_LABEL}([.]{_LABEL})*"
_VALUE: Final = "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"

DnsLabel: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=63),
    _matches(
        f"^{_LABEL}$",
        "a valid name",
        "use lower-case letters, digits and dashes, beginning and ending with a letter or digit",
    ),
]
DnsSubdomain: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=253),
    _matches(
        f"^{_SUBDOMAIN}$",
        "a valid name",
        "use lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit",
    ),
]
GroupName: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=63),
    _matches(
        f"^{_SUBDOMAIN}$",
        "a name of a Group",
        "use at most 63 lower-case letters, digits, dashes and dots",
    ),
]
"""A Group's name is an object's name and a label's value at once."""
LabelValue: TypeAlias = Annotated[
    str,
    Bounds(max_length=63),
    _matches(
        f"^{_VALUE}$",
        "a valid label value",
        "use letters, digits, dashes, dots and underscores, beginning and ending with a letter or digit",
    ),
]
LabelKey: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=316),
    _matches(
        "^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "a valid key",
        "write NAME or DOMAIN/NAME, like example.com/gpu",
    ),
]
_KEYS: Final = "matches('^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')"
_KEY_RULE: Final = Rule(
    f"self.all(key, key.{_KEYS})",
    "a key is not NAME or DOMAIN/NAME, like example.com/rack",
    f"'\"' + self.filter(key, !key.{_KEYS})[0] + '\" is not a key: write NAME or DOMAIN/NAME, like example.com/rack'",
)

Labels: TypeAlias = Annotated[dict[str, LabelValue], Bounds(max_properties=64), _KEY_RULE]

Quantity: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=32),
    _matches(
        "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
        "a quantity",
        'write a number with at most one suffix and no space, like "16", "500m" or "32Gi"',
    ),
]
Quantities: TypeAlias = Annotated[dict[str, Quantity], Bounds(max_properties=32), _KEY_RULE]
"""Resource name to quantity, both as text: `cpu: "16"`."""

Fraction: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=16),
    _matches(
        "^(0([.][0-9]+)?|1([.]0+)?)$",
        "a fraction",
        'write a decimal number from 0 to 1 in quotes, like "0.5"',
    ),
]
Rate: TypeAlias = Annotated[
    str,
    Bounds(min_length=1, max_length=16),
    _matches("^[0-9]+([.][0-9]+)?$", "a rate", 'write a decimal number in quotes, like "0.012"'),
]

DURATION_RULE: Final = Rule(
    "type(self) == string && self.matches('^([0-9]{1,7}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$')",
    "not a duration: write a number with a unit, like 90s or 12m10s",
    "'\"' + string(self) + '\" is not a duration: write a number with a unit, like 90s or 12m10s'",
)
POSITIVE_DURATION: Final = Rule(
    "type(self) != string || self.matches('[1-9]')",
    "must be longer than zero: leave the field out for the default",
)
