"""CEL rules of CRDs (`x-kubernetes-validations`) and match conditions of webhooks.

Expressions run in PyPI's common-expression-language with its extended string, list and math functions and those of
`cel_libraries`. Not there: what that names, cost limits, and type checking before evaluation. A rule that needs it is
refused when the CRD is created, or reported as an evaluation error.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.cel_libraries import FUNCTIONS
from homelab_autoscaler.sandbox.apiserver.semantics.shape import UNSET, Shape
from homelab_autoscaler.sandbox.status import Cause, go_value

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

# The library imports its command line, and with it a terminal toolkit that costs a quarter of a second and 12 MB.
if "cel" not in sys.modules:
    sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
import cel
from cel import stdlib

_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_OLD_SELF = re.compile(r"\boldSelf\b")


class CelError(ValueError):
    """An expression that does not compile."""


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Any:
    """The program of an expression.

    Raises:
        CelError: with the parser's own words.
    """
    try:
        return cel.compile(expression)
    except (ValueError, RuntimeError, TypeError) as error:
        raise CelError(str(error)) from error


def evaluate(expression: str, variables: JsonObject) -> Any:
    """Run an expression.

    Raises:
        CelError: when it does not compile.
        RuntimeError, ValueError, TypeError, KeyError: whatever the evaluation ran into.
    """
    context = cel.Context()
    stdlib.add_stdlib_to_context(context)
    for name, function in FUNCTIONS.items():
        context.add_function(name, function)
    for name, value in variables.items():
        context.add_variable(name, value)
    return compiled(expression).execute(context)


def _plain(expression: str, variables: JsonObject) -> Any:
    """Run without the extended functions, which is much faster; fall back to them when a name is unknown."""
    try:
        return compiled(expression).execute(variables)
    except RuntimeError as error:
        if "Undefined" not in str(error):
            raise
    return evaluate(expression, variables)


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule.

    Attributes:
        rule: the expression that must be true.
        message: text of a violation; `messageExpression` goes first.
        transition: the rule compares with the old value and only holds on updates.
    """

    rule: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    transition: bool

    @classmethod
    def of(cls, entry: JsonObject) -> Rule:
        """Read an item of x-kubernetes-validations."""
        rule = entry.get("rule", "")
        return cls(
            rule,
            entry.get("message", ""),
            entry.get("messageExpression", ""),
            entry.get("reason", "FieldValueInvalid"),
            entry.get("fieldPath", ""),
            bool(_OLD_SELF.search(rule)),
        )

    def problems(self, value: Any, old: Any, shape: Shape, path: str, *, updating: bool) -> list[Cause]:
        """The rule's violation at one place, if any.

        Args:
            value: the value that the rule is attached to.
            old: the value before, UNSET when there was none or nobody can tell which one it was.
            shape: the shape of both.
            path: where they stand.
            updating: an unchanged value is not held against an update.
        """
        if self.transition and old is UNSET:
            return []
        if updating and not self.transition and old is not UNSET and old == value:
            return []
        try:
            variables = {"self": typed(value, shape, self.rule)}
            if self.transition:
                variables["oldSelf"] = typed(old, shape, self.rule)
            passed = _plain(self.rule, variables)
        except CelError as error:
            return [self._cause(value, path, f"{error}", shown=True)]
        except (RuntimeError, ValueError, TypeError, KeyError, OverflowError) as error:
            text = str(error) if isinstance(error, _FloatForIntegerError) else f"{error}".strip("'")
            return [self._cause(value, path, f"{text} evaluating rule: {self.message or self.rule}", shown=True)]
        if passed is True:
            return []
        return [self._cause(value, path, self._text(variables))]

    def _text(self, variables: JsonObject) -> str:
        if self.message_expression:
            try:
                found = _plain(self.message_expression, variables)
            except (CelError, RuntimeError, ValueError, TypeError, KeyError):
                found = None
            if isinstance(found, str) and found.strip() and "\n" not in found:
                return found
        return self.message or f"failed rule: {self.rule}"

    def _cause(self, value: Any, path: str, text: str, *, shown: bool = False) -> Cause:
        field = path + self.field_path if path else self.field_path.lstrip(".")
        if shown or self.reason == "FieldValueInvalid":
            # Objects and lists are not repeated in the message.
            prefix = "Invalid value: " if isinstance(value, dict | list) else f"Invalid value: {go_value(value)}: "
            return Cause("FieldValueInvalid", prefix + text, field or "<nil>")
        if self.reason == "FieldValueForbidden":
            return Cause(self.reason, f"Forbidden: {text}", field)
        if self.reason == "FieldValueRequired":
            return Cause(self.reason, f"Required value: {text}", field)
        return Cause(self.reason, f"Duplicate value: {go_value(value)}", field)


class _FloatForIntegerError(ValueError):
    """2.0 where an integer is declared: valid for the schema, but not for CEL's types."""


def typed(value: Any, shape: Shape, rule: str, name: str = "self") -> Any:
    """A value with CEL's types: times as timestamps, numbers as doubles, escaped property names.

    Args:
        value: parsed JSON.
        shape: its shape.
        rule: the expression that will see it.
        name: the last part of the value's path.

    Raises:
        ValueError: a whole float in an integer field that the rule reads.
    """
    kind = shape.kind
    if kind in {"object", "map"} and isinstance(value, dict):
        found = {}
        for key, item in value.items():
            child = shape.field(key)
            put = escaped(key) if kind == "object" else key
            found[put] = item if child is None else typed(item, child, rule, key)
        return found
    if kind == "list" and isinstance(value, list):
        items = shape.items
        return value if items is None else [typed(item, items, rule, name) for item in value]
    if kind == "time" and isinstance(value, str):
        return datetime.fromisoformat(value.upper())
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "integer" and isinstance(value, float) and re.search(rf"\b{re.escape(name)}\b", rule):
        raise _FloatForIntegerError("expected int, got float64")
    return value


def escaped(name: str) -> str:
    """A property name as CEL identifiers spell it: reserved words and special characters are escaped."""
    if name in _RESERVED:
        return f"__{name}__"
    if name.isidentifier() and "__" not in name:
        return name
    for text, put in _ESCAPES.items():
        name = name.replace(text, put)
    return name
