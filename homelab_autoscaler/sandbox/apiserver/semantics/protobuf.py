"""The protobuf bodies that kubectl's imperative commands send (`kubectl create namespace` and its like).

Only the kinds in `_MESSAGES` are understood. The envelope is four magic bytes and a message with typeMeta and the raw
object; field numbers follow the published .proto files of each kind.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject

_MAGIC = b"k8s\x00"
_MAX_LENGTH = 3 * 1024 * 1024

# kind of field: text, bytes (base64 in JSON), bool, int, a message, or map-of-text / map-of-bytes. `*` marks lists.
_META = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    11: ("labels", "map-text"),
    12: ("annotations", "map-text"),
    14: ("finalizers", "*text"),
}
_RESOURCE_ATTRIBUTES = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    4: ("version", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_NON_RESOURCE_ATTRIBUTES = {1: ("path", "text"), 2: ("verb", "text")}
_REFERENCE = {1: ("apiGroup", "text"), 2: ("kind", "text"), 3: ("name", "text")}
_SUBJECT = {1: ("kind", "text"), 2: ("apiGroup", "text"), 3: ("name", "text"), 4: ("namespace", "text")}
_RULE = {
    1: ("verbs", "*text"),
    2: ("apiGroups", "*text"),
    3: ("resources", "*text"),
    4: ("resourceNames", "*text"),
    5: ("nonResourceURLs", "*text"),
}
_SELECTOR = {1: ("matchLabels", "map-text")}
_INT_OR_STRING = {1: ("type", "int"), 2: ("intVal", "int"), 3: ("strVal", "text")}

_Fields = dict[int, tuple[str, Any]]
_MESSAGES: dict[str, _Fields] = {
    "Namespace": {1: ("metadata", _META)},
    "ServiceAccount": {1: ("metadata", _META)},
    "ConfigMap": {
        1: ("metadata", _META),
        2: ("data", "map-text"),
        3: ("binaryData", "map-bytes"),
        4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", _META),
        2: ("data", "map-bytes"),
        3: ("type", "text"),
        4: ("stringData", "map-text"),
        5: ("immutable", "bool"),
    },
    "SelfSubjectAccessReview": {
        1: ("metadata", _META),
        2: (
            "spec",
            {1: ("resourceAttributes", _RESOURCE_ATTRIBUTES), 2: ("nonResourceAttributes", _NON_RESOURCE_ATTRIBUTES)},
        ),
    },
    "SelfSubjectRulesReview": {1: ("metadata", _META), 2: ("spec", {1: ("namespace", "text")})},
    "SelfSubjectReview": {1: ("metadata", _META)},
    "Role": {1: ("metadata", _META), 2: ("rules", ["*", _RULE])},
    "ClusterRole": {1: ("metadata", _META), 2: ("rules", ["*", _RULE])},
    "RoleBinding": {1: ("metadata", _META), 2: ("subjects", ["*", _SUBJECT]), 3: ("roleRef", _REFERENCE)},
    "ClusterRoleBinding": {1: ("metadata", _META), 2: ("subjects", ["*", _SUBJECT]), 3: ("roleRef", _REFERENCE)},
    "PodDisruptionBudget": {
        1: ("metadata", _META),
        2: (
            "spec",
            {
                1: ("minAvailable", ("int-or-string", _INT_OR_STRING)),
                2: ("selector", _SELECTOR),
                3: ("maxUnavailable", ("int-or-string", _INT_OR_STRING)),
            },
        ),
    },
}


class ProtobufError(ValueError):
    """A body that is not protobuf."""


class UnknownMessageError(ProtobufError):
    """Protobuf of a kind that is not understood."""


def read_protobuf(data: bytes) -> JsonObject:
    """The object in a protobuf body, as JSON values.

    Raises:
        ProtobufError: with a text for a person at kubectl.
        UnknownMessageError: the kind is none that this server reads.
    """
    if not data.startswith(_MAGIC):
        raise ProtobufError("the body is not Kubernetes protobuf: it does not start with the magic bytes")
    kind = api_version = ""
    raw = b""
    for number, value in _fields(data[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            for inner, text in _fields(value):
                if inner == 1 and isinstance(text, bytes):
                    api_version = _text(text)
                elif inner == 2 and isinstance(text, bytes):
                    kind = _text(text)
        elif number == 2 and isinstance(value, bytes):
            raw = value
    message = _MESSAGES.get(kind)
    if message is None:
        raise UnknownMessageError(
            f"this server reads protobuf of a few kinds only, and {kind or 'the body'} is none of them: "
            "send JSON, for example with kubectl create --dry-run=client -o json ... | kubectl create -f -"
        )
    return {"apiVersion": api_version, "kind": kind, **_message(raw, message)}


def _message(data: bytes, fields: _Fields) -> JsonObject:
    found: JsonObject = {}
    for number, value in _fields(data):
        if number not in fields:
            continue
        name, kind = fields[number]
        if isinstance(kind, list):
            found.setdefault(name, []).append(_message(_bytes(value), kind[1]))
        elif isinstance(kind, tuple):
            parts = _message(_bytes(value), kind[1])
            found[name] = parts.get("strVal", "") if parts.get("type") == 1 else parts.get("intVal", 0)
        elif isinstance(kind, dict):
            found[name] = _message(_bytes(value), kind)
        elif kind.startswith("map-"):
            key, item = _entry(_bytes(value))
            found.setdefault(name, {})[key] = _text(item) if kind == "map-text" else base64.b64encode(item).decode()
        elif kind == "*text":
            found.setdefault(name, []).append(_text(_bytes(value)))
        elif kind == "text":
            text = _text(_bytes(value))
            if text:
                found[name] = text
        elif kind == "bool":
            found[name] = bool(value)
        else:
            found[name] = value
    return found


def _entry(data: bytes) -> tuple[str, bytes]:
    key, item = "", b""
    for number, value in _fields(data):
        if number == 1:
            key = _text(_bytes(value))
        elif number == 2:
            item = _bytes(value)
    return key, item


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("protobuf: a field has the wrong wire type")
    return value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ProtobufError("protobuf: a text is not UTF-8") from None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if size > _MAX_LENGTH or at + size > len(data):
                raise ProtobufError("protobuf: the body ends in the middle of a field")
            yield number, data[at : at + size]
            at += size
        elif wire in {1, 5}:
            at += 8 if wire == 1 else 4
        else:
            raise ProtobufError(f"protobuf: wire type {wire} is not known")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("protobuf: the body ends in the middle of a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if not byte & 0x80:
            return value, at
