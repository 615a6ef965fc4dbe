"""Label and field selectors: parsing, with the errors that a server gives, and matching."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from homelab_autoscaler.sandbox.apiserver.semantics import names
from homelab_autoscaler.sandbox.status import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from homelab_api.meta import JsonObject

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector.

    Attributes:
        key: the label.
        operator: in, notin, exists, absent, gt or lt.
        values: what it is compared with.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the term."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        bound = int(next(iter(self.values)))
        try:
            number = int(value or "")
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All of its requirements must hold; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


class _Parser:
    """A selector's text, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def parse(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        if not self.peek():
            return ()
        while True:
            token = self.peek()
            if token != "!" and token in {"", "(", ")", ",", "=", "==", "!=", "<", ">"}:
                shown = token
                raise bad_request(f"found '{shown}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            token = self.next()
            if not token:
                return tuple(found)
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            if not self.peek():
                raise bad_request("found '', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        if self.peek() == "!":
            self.next()
            return Requirement(_key(self.next()), "absent")
        key = self.next()
        operator = self.peek()
        if operator in {"", ","}:
            return Requirement(_key(key), "exists")
        self.next()
        if operator in {"in", "notin"}:
            return Requirement(_key(key), operator, self._values())
        if operator in {"=", "==", "!="}:
            value = "" if self.peek() in {"", ","} else self.next()
            return Requirement(_key(key), "notin" if operator == "!=" else "in", frozenset({_value(key, value)}))
        if operator in {"<", ">"}:
            value = self.next()
            if not re.fullmatch(r"[+-]?\d+", value):
                raise bad_request(
                    f"unable to parse requirement: values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' "
                    "operators, the value must be an integer"
                )
            return Requirement(_key(key), "gt" if operator == ">" else "lt", frozenset({value}))
        raise bad_request(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _values(self) -> frozenset[str]:
        token = self.next()
        if token != "(":
            raise bad_request(f"unable to parse requirement: found '{token}' expected: '('")
        values: set[str] = set()
        while True:
            token = self.next()
            if token == ")":
                if not values:
                    values.add("")
                return frozenset(values)
            if token == ",":
                if self.peek() in {",", ")"}:
                    values.add("")
                continue
            if not token or token in {"(", "=", "==", "!=", "!"}:
                raise bad_request(f"unable to parse requirement: found '{token}', expected: ',', or identifier")
            values.add(_value("", token))


def _key(key: str) -> str:
    problems = names.qualified_name_problems(key)
    if problems:
        raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{key}": {"; ".join(problems)}')
    return key


def _value(key: str, value: str) -> str:
    problems = names.label_value_problems(value)
    if problems:
        raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": {problems[0]}')
    return value


def parse_labels(text: str) -> LabelSelector:
    """Read a labelSelector parameter.

    Raises:
        ApiStatusError: 400 when it does not parse.
    """
    return LabelSelector(_Parser(text).parse()) if text.strip() else LabelSelector()


def from_object(selector: JsonObject | None) -> LabelSelector | None:
    """A `LabelSelector` object (matchLabels, matchExpressions); None stays None, which matches nothing."""
    if selector is None:
        return None
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    found = [Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    found += [
        Requirement(item["key"], operators[item["operator"]], frozenset(item.get("values") or ()))
        for item in selector.get("matchExpressions") or []
        if item.get("operator") in operators
    ]
    return LabelSelector(tuple(found))


FieldGetter: TypeAlias = "Callable[[JsonObject], str]"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Exact comparisons of a few fields, all of which must hold.

    Attributes:
        terms: (field, wanted equal, value).
    """

    terms: tuple[tuple[str, bool, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def name(self) -> str | None:
        """The one object name that can match, if the selector says so."""
        return next((value for field, equal, value in self.terms if field == "metadata.name" and equal), None)

    def only_metadata(self) -> bool:
        """Whether names and namespaces are all that it compares."""
        return all(field in {"metadata.name", "metadata.namespace"} for field, _, _ in self.terms)

    def matches(
        self, namespace: str, name: str, body: Callable[[], JsonObject], getters: Mapping[str, FieldGetter]
    ) -> bool:
        """Whether an object matches; its body is read only if a term needs more than its name."""
        for field, equal, value in self.terms:
            if field == "metadata.name":
                found = name
            elif field == "metadata.namespace":
                found = namespace
            else:
                found = getters[field](body())
            if (found == value) != equal:
                return False
        return True


def parse_fields(text: str, supported: Iterable[str]) -> FieldSelector:
    r"""Read a fieldSelector parameter; `\,`, `\=` and `\\` are escapes.

    Raises:
        ApiStatusError: 400 when it does not parse or names a field that the resource does not offer.
    """
    if not text.strip():
        return FieldSelector()
    allowed = {"metadata.name", "metadata.namespace", *supported}
    terms = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = re.fullmatch(r"(.*?)(?<!\\)(==|!=|=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if field not in allowed:
            raise bad_request(f"field label not supported: {field}")
        terms.append((field, operator != "!=", re.sub(r"\\([\\,=])", r"\1", value)))
    return FieldSelector(tuple(terms))
