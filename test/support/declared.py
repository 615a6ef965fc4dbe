"""Every field that people declare, read off the CustomResourceDefinitions, and what a careless hand may put there."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import yaml
from lab.world import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from homelab_api.meta import JsonObject

Path = tuple[str, ...]

VALUES: dict[str, Any] = {
    "absent": None,
    "empty text": "",
    "very long text": "x" * 5000,
    "unicode": "Wärme\u202e機\u0000",
    "negative": -1,
    "huge": 2**62,
    "a fraction": 0.5,
    "true": True,
    "an empty list": [],
    "a list": ["x"],
    "an empty object": {},
    "an object": {"unknown": {"deep": 1}},
    "no time": "0s",
    "less than no time": "-5m",
    "ages": "999999h",
}


@cache
def fields(kind: str) -> tuple[Path, ...]:
    """Paths below `spec` of a kind of ours: objects as well as what is in them; lists as a whole."""
    for file in sorted(CRDS.glob("*.yaml")):
        for body in yaml.safe_load_all(file.read_text("utf-8")):
            if body["spec"]["names"]["kind"] == kind:
                schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                return tuple(_paths(schema["properties"]["spec"], ()))
    raise KeyError(kind)


def _paths(schema: JsonObject, above: Path) -> Iterator[Path]:
    for name, below in sorted(schema.get("properties", {}).items()):
        yield (*above, name)
        yield from _paths(below, (*above, name))


def patched(path: Path, value: Any) -> JsonObject:
    """A merge patch of a spec that sets one field."""
    for name in reversed(path):
        value = {name: value}
    return value
