"""Names, labels and annotations: which texts are allowed, and the words for those that are not."""

from __future__ import annotations

import re
from functools import lru_cache

_QUALIFIED_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

_qualified_name = re.compile(_QUALIFIED_NAME)
_label_value = re.compile(_LABEL_VALUE)
_label = re.compile(_LABEL)
_subdomain = re.compile(_SUBDOMAIN)


def _regex_message(text: str, regex: str, *examples: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{text} (e.g. {shown}, regex used for validation is '{regex}')"


_SUBDOMAIN_MESSAGE = _regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_LABEL_MESSAGE = _regex_message(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)


def subdomain_problems(name: str) -> list[str]:
    """What is wrong with a DNS-1123 subdomain: the name of most objects."""
    problems = []
    if len(name) > 253:
        problems.append("must be no more than 253 characters")
    if not _subdomain.fullmatch(name):
        problems.append(_SUBDOMAIN_MESSAGE)
    return problems


def label_problems(name: str) -> list[str]:
    """What is wrong with a DNS-1123 label: namespaces, services."""
    problems = []
    if len(name) > 63:
        problems.append("must be no more than 63 characters")
    if not _label.fullmatch(name):
        problems.append("must not contain dots" if "." in name and _subdomain.fullmatch(name) else _LABEL_MESSAGE)
    return problems


def path_segment_problems(name: str) -> list[str]:
    """What is wrong with a name that only has to fit into a URL path: roles and their bindings."""
    if name in {".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


@lru_cache(maxsize=4096)
def qualified_name_problems(key: str) -> tuple[str, ...]:
    """What is wrong with a label, annotation or finalizer name."""
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        elif found := subdomain_problems(prefix):
            problems.extend(f"prefix part {problem}" for problem in found)
        if "/" in prefix:
            problems.append("a qualified name must consist of alphanumeric characters")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _qualified_name.fullmatch(name):
        problems.append(
            _regex_message(
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                "alphanumeric character",
                _QUALIFIED_NAME,
                "MyName",
                "my.name",
                "123-abc",
            )
        )
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """What is wrong with a label's value."""
    problems = []
    if len(value) > 63:
        problems.append("must be no more than 63 characters")
    if not _label_value.fullmatch(value):
        problems.append(
            _regex_message(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
                "must start and end with an alphanumeric character",
                _LABEL_VALUE,
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return tuple(problems)


NAME_RULES = {
    "subdomain": subdomain_problems,
    "label": label_problems,
    "path": path_segment_problems,
}
