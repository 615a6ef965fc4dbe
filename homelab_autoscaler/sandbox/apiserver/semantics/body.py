"""Bodies of requests: JSON, YAML and the few protobuf messages that kubectl sends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from homelab_autoscaler.sandbox.apiserver.semantics.protobuf import ProtobufError, UnknownMessageError, read_protobuf
from homelab_autoscaler.sandbox.status import ApiStatusError, bad_request, failure, unsupported_media_type

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
# Deeper nesting than this cannot be a Kubernetes object and would exhaust the stack of recursive walkers.
MAX_DEPTH = 200
MAX_BYTES = 3 * 1024 * 1024
_EXACT = 2**53
MAX_VALUES = 1_000_000


class _Loader(yaml.CSafeLoader):
    """YAML as JSON: times stay text."""


def _number(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> int | float:
    """A whole number is an integer in JSON, however it is written."""
    value: float = loader.construct_yaml_float(node)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def media_type(header: str) -> str:
    """A Content-Type without its parameters."""
    return header.partition(";")[0].strip().lower()


def too_large() -> ApiStatusError:
    """413 for a body over the limit."""
    return failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BYTES}", {})


def parse_json(data: bytes, what: str) -> Any:
    """JSON text.

    Args:
        data: the text.
        what: said in front of the parser's words.

    Raises:
        ApiStatusError: 400 when it is none, or nests too deeply.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"{what}{go_json_error(data, error)}") from None
    _check_depth(value)
    return value


def go_json_error(data: bytes, error: orjson.JSONDecodeError) -> str:
    """A JSON error in words like those of Go's parser."""
    if not data.strip() or error.pos >= len(data.decode(errors="replace").rstrip()) or "end of" in error.msg:
        return "unexpected end of JSON input"
    text = data.decode(errors="replace")
    char = text[error.pos] if error.pos < len(text) else ""
    return f"invalid character {char!r} looking for beginning of value"


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise bad_request(f"json: exceeded max depth of {MAX_DEPTH}")


def parse_yaml(data: bytes, what: str) -> Any:
    """YAML text, of which JSON is a part.

    Raises:
        ApiStatusError: 400 when it is none.
    """
    try:
        value = yaml.load(data.decode(), Loader=_Loader)  # noqa: S506  (a safe loader)
        _check_aliases(value)
        _check_depth(value)
        return orjson.loads(orjson.dumps(value))
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise bad_request(f"{what}error converting YAML to JSON: yaml: {first}") from None


def _check_aliases(root: Any) -> None:
    """Bound what anchors let a small text stand for.

    Raises:
        ValueError: a value contains itself, or is too large once it is written out.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[Any, bool]] = [(root, False)]
    while waiting:
        value, seen_inside = waiting.pop()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        if seen_inside:
            sizes[id(value)] = size = 1 + sum(sizes.get(id(child), 1) for child in inner)
            if size > MAX_VALUES:
                raise ValueError("document contains excessive aliasing")
        elif inner and id(value) not in sizes:
            sizes[id(value)] = 0
            waiting.append((value, True))
            waiting.extend((child, False) for child in inner)
        elif inner and sizes[id(value)] == 0:
            raise ValueError("an anchor's value contains itself")


def parse_object(data: bytes, content_type: str, kind: str) -> JsonObject:
    """The object that a request carries.

    Args:
        data: the body.
        content_type: its header.
        kind: the kind that the path takes, for error texts.

    Raises:
        ApiStatusError: 400, 413 or 415.
    """
    if len(data) > MAX_BYTES:
        raise too_large()
    what = media_type(content_type) or JSON
    unrecognized = f"the object provided is unrecognized (must be of type {kind}): "
    if what == PROTOBUF:
        try:
            return read_protobuf(data)
        except UnknownMessageError as error:
            raise failure(415, "UnsupportedMediaType", str(error)) from None
        except ProtobufError as error:
            raise bad_request(f"{unrecognized}{error}") from None
    if what == YAML:
        value = parse_yaml(data, unrecognized)
    elif what == JSON:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            problem = go_json_error(data, error)
            shown = data.decode(errors="replace")[:120] or "<empty>"
            raise bad_request(
                f"{unrecognized}couldn't get version/kind; json parse error: {problem} ({shown})"
            ) from None
        _check_depth(value)
    else:
        raise unsupported_media_type([JSON, YAML, PROTOBUF])
    if value is None:
        # Go's decoders take null for a value without fields.
        return {}
    if not isinstance(value, dict):
        raise bad_request(
            f"{unrecognized}couldn't get version/kind; json parse error: json: cannot unmarshal "
            f"{'array' if isinstance(value, list) else type(value).__name__} into Go value of type "
            "struct { APIVersion string; Kind string }"
        )
    return value


def duplicate_fields(data: bytes) -> list[str]:
    """Paths of fields that occur twice in one JSON object; the last one counts, as in Go."""
    if data.count(b"{") < 1:
        return []
    found: list[str] = []
    repeated: dict[int, list[str]] = {}
    # Objects are kept alive until the end, so that their ids stay theirs.
    alive: list[Any] = []

    def pairs(items: list[tuple[str, Any]]) -> JsonObject:
        value = dict(items)
        if len(value) != len(items):
            seen: set[str] = set()
            names = [key for key, _ in items if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
            repeated[id(value)] = names
        alive.append(value)
        return value

    try:
        root = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return []
    if not repeated:
        return []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict):
            names = dict.fromkeys(repeated.get(id(value), ()))
            found.extend(f"{path}.{key}" if path else key for key in names)
            for key, item in value.items():
                visit(item, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                visit(item, f"{path}[{index}]")

    visit(root, "")
    return found
