"""Typed decoding of built-in kinds and of metadata: what Go's decoder accepts, drops and refuses.

Unknown fields are dropped and reported, nulls count as absent, values of a wrong type are an error, times are
normalised, and what Go shows without being asked (`ZEROS`) is filled in.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.builtin.types import VANISHING
from homelab_autoscaler.sandbox.apiserver.semantics.shape import ZERO_SCALARS
from homelab_autoscaler.sandbox.quantity import canonical_quantity

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
# Integers of 64 bits; all others have 32.
_LONG = frozenset(
    {
        "activeDeadlineSeconds", "deletionGracePeriodSeconds", "expirationSeconds", "fsGroup", "generation",
        "gracePeriodSeconds", "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties",
        "observedGeneration", "remainingItemCount", "runAsGroup", "runAsUser", "supplementalGroups",
        "terminationGracePeriodSeconds", "tolerationSeconds",
    }
)  # fmt: skip
_NO_NAMES: frozenset[str] = frozenset()
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")


class DecodeError(ValueError):
    """A value that Go's decoder would refuse, in its words."""


def decode(value: Any, shape: Shape, path: str, unknown: list[str], owner: str = "") -> Any:
    """Bring a value into the form in which a server stores it. Dictionaries and lists are changed in place.

    Args:
        value: parsed JSON.
        shape: what it should be.
        path: where it stands, for unknown fields: `spec.containers[0]`.
        unknown: gets the paths of unknown fields, which are dropped.
        owner: `Type.field`, for error texts.

    Raises:
        DecodeError: a value of the wrong type, or a time, quantity or base64 text that does not parse.
    """
    kind = shape.kind
    if kind == "any":
        return value
    if kind == "object":
        return _decode_object(value, shape, path, unknown, owner)
    if kind == "list":
        if not isinstance(value, list):
            raise _wrong(value, owner, _go_type(shape))
        items = shape.items
        assert items is not None
        return [
            zero_value(items) if item is None else decode(item, items, f"{path}[{index}]", unknown, owner)
            for index, item in enumerate(value)
        ]
    if kind == "map":
        if not isinstance(value, dict):
            raise _wrong(value, owner, _go_type(shape))
        values = shape.values
        assert values is not None
        if values.kind == "string" and all(type(item) is str for item in value.values()):
            return value
        for key, item in value.items():
            if item is None:
                value[key] = zero_value(values)
            else:
                value[key] = decode(item, values, f"{path}.{key}" if path else key, unknown, owner)
        return value
    return _decode_scalar(value, shape, owner)


def zero_value(shape: Shape) -> Any:
    """What Go's decoder leaves behind for a null in a list or a map."""
    if shape.kind == "object":
        return _decode_object({}, shape, "", [], "")
    zeros: dict[str, Any] = {**ZERO_SCALARS, "quantity": "0", "bytes": "", "number": 0}
    if shape.kind in {"list", "map"}:
        return [] if shape.kind == "list" else {}
    return zeros.get(shape.kind)


def _decode_object(value: Any, shape: Shape, path: str, unknown: list[str], owner: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(value, owner, shape.name)
    fields = shape.fields
    vanishing = VANISHING.get(shape.name, _NO_NAMES)
    for key in list(value):
        child = fields.get(key)
        item = value[key]
        if child is None:
            if path or key not in {"apiVersion", "kind"}:
                unknown.append(f"{path}.{key}" if path else key)
                del value[key]
            continue
        if item is None:
            del value[key]
            continue
        if child.kind == "string" and type(item) is str:
            if not item and key in vanishing:
                del value[key]
            continue
        found = decode(item, child, f"{path}.{key}" if path else key, unknown, f"{shape.name}.{key}")
        if (child.kind in {"list", "map"} and not found) or (key in vanishing and not found):
            # Empty lists and maps are left out by Go's encoder.
            del value[key]
        else:
            value[key] = found
    for key, zero in shape.zero.items():
        if key not in value:
            child = fields.get(key)
            value[key] = _decode_object({}, child, path, [], "") if zero == {} and child is not None else zero
    return value


def _decode_scalar(value: Any, shape: Shape, owner: str) -> Any:
    kind = shape.kind
    if kind == "string":
        if not isinstance(value, str):
            raise _wrong(value, owner, "string")
        return value
    if kind == "integer":
        return _integer(value, owner, "int64" if owner.rpartition(".")[2] in _LONG else "int32")
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _wrong(value, owner, "bool")
        return value
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(value, owner, "float64")
        return value
    if kind == "time":
        return _time(value, owner)
    if kind == "microtime":
        return _micro_time(value, owner)
    if kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise _wrong(value, owner, "string")
        text = f"{value:g}" if isinstance(value, float) else str(value)
        if not _QUANTITY.fullmatch(text):
            raise DecodeError(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        return canonical_quantity(text)
    if kind == "int-or-string":
        return value if isinstance(value, str) else _integer(value, owner, "int32")
    return _bytes(value, owner)


def _integer(value: Any, owner: str, wanted: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, owner, wanted)
    limit = 2 ** (63 if wanted == "int64" else 31)
    if isinstance(value, float) or not -limit <= value < limit:
        raise DecodeError(f"json: cannot unmarshal number {value} into Go struct field {owner} of type {wanted}")
    return value


def _time(value: Any, owner: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, owner, "string")
    if not value:
        raise DecodeError('parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"')
    moment = _moment(value, _TIME, "2006-01-02T15:04:05Z07:00")
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _micro_time(value: Any, owner: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, owner, "string")
    moment = _moment(value, _MICRO, "2006-01-02T15:04:05.000000Z07:00")
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _moment(value: str, pattern: re.Pattern[str], layout: str) -> datetime:
    try:
        if pattern.fullmatch(value):
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "{layout}"')


def _bytes(value: Any, owner: str) -> str:
    if isinstance(value, list):
        numbers = [0 if item is None else item for item in value]
        if all(type(item) is int and 0 <= item < 256 for item in numbers):
            # Go also reads bytes from a list of numbers.
            return base64.b64encode(bytes(numbers)).decode()
    if not isinstance(value, str):
        raise _wrong(value, owner, "[]uint8")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        bad = next((index for index, char in enumerate(value) if not (char.isalnum() or char in "+/=")), len(value))
        raise DecodeError(f"illegal base64 data at input byte {bad}") from None
    return value


def json_type(value: Any) -> str:
    """The JSON type of a value as Go's decoder names it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_type(shape: Shape) -> str:
    if shape.kind == "list":
        assert shape.items is not None
        return f"[]{_go_type(shape.items)}"
    if shape.kind == "map":
        assert shape.values is not None
        return f"map[string]{_go_type(shape.values)}"
    return shape.name or shape.kind


def _wrong(value: Any, owner: str, wanted: str) -> DecodeError:
    return DecodeError(f"json: cannot unmarshal {json_type(value)} into Go struct field {owner} of type {wanted}")
