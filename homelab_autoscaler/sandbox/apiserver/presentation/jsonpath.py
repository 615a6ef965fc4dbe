"""The JSONPath that printer columns and selectable fields use.

Fields (`.a.b`, `['a']`), indexes, `[*]`, recursive descent is not supported; filters compare one field with a
literal (`[?(@.type=="Ready")]`). That covers what CRDs in the wild contain; anything else finds nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_TOKEN = re.compile(
    r"""\.(?P<field>[^.\[\]()?*]+)|\[\?\(@\.(?P<path>[\w.]+)\s*(?P<op>==|!=)\s*(?P<value>'[^']*'|"[^"]*"|[^)]+)\)\]"""
    r"""|\[(?P<index>-?\d+|\*)\]|\['(?P<quoted>[^']*)'\]"""
)
Step = tuple[str, str, str, str]


@lru_cache(maxsize=512)
def parse(path: str) -> tuple[Step, ...] | None:
    """The steps of a path; None when it uses what is not supported."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and not text.startswith((".", "[")):
        text = "." + text
    text = text.replace("\\.", "\0")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["field"] is not None:
            steps.append(("field", match["field"].replace("\0", "."), "", ""))
        elif match["quoted"] is not None:
            steps.append(("field", match["quoted"].replace("\0", "."), "", ""))
        elif match["index"] is not None:
            steps.append(("index", match["index"], "", ""))
        else:
            steps.append(("filter", match["path"], match["op"], match["value"].strip("'\"")))
    return tuple(steps)


def find(body: Any, path: str) -> list[Any]:
    """All values at a path."""
    steps = parse(path)
    if steps is None:
        return []
    values = [body]
    for kind, name, operator, literal in steps:
        found: list[Any] = []
        for value in values:
            if kind == "field" and isinstance(value, dict) and name in value:
                found.append(value[name])
            elif kind == "index" and isinstance(value, list):
                if name == "*":
                    found.extend(value)
                elif -len(value) <= int(name) < len(value):
                    found.append(value[int(name)])
            elif kind == "filter" and isinstance(value, list):
                found.extend(item for item in value if _matches(item, name, operator, literal))
        values = found
    return values


def _matches(item: Any, path: str, operator: str, literal: str) -> bool:
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    text = str(item).lower() if isinstance(item, bool) else str(item)
    return item is not None and (text == literal) == (operator == "==")
