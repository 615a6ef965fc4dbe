"""Kubernetes quantities (`500m`, `16Gi`, `2`, `1e3`) as exact numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

_SUFFIXES: Final = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
_KIBI: Final = 1024
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_PATTERN: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?")


def parse_quantity(value: str | float) -> Fraction:
    """The number that a quantity means, in its base unit (cores, bytes, pieces).

    Raises:
        ValueError: naming the text, when it is no quantity.
    """
    found = _PATTERN.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f'quantity "{value}" is not understood: write a number with a unit, like "500m" or "16Gi"')
    number, exponent, suffix = found.groups()
    return Fraction(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def canonical_quantity(text: str) -> str:
    """A quantity as a server stores it: the largest unit of its family that needs no fraction.

    `1024Mi` is `1Gi`, `0.5` is `500m`, `1000m` is `1`. What is finer than a billionth is rounded up.

    Raises:
        ValueError: naming the text, when it is no quantity.
    """
    value = parse_quantity(text)
    if re.search(r"[KMGTPE]i$", text) and abs(value) >= _KIBI and value.denominator == 1:
        power = max(power for power in range(7) if value % _KIBI**power == 0)
        return f"{value // _KIBI**power}{'KMGTPE'[power - 1] + 'i' if power else ''}"
    scaled = math.ceil(abs(value) * 10**9) * (-1 if value < 0 else 1)
    if scaled == 0:
        return "0"
    power = max(power for power in range(10) if scaled % 1000**power == 0)
    if re.search(r"[eE][+-]?\d+$", text):
        exponent = 3 * (power - 3)
        return f"{scaled // 1000**power}" + (f"e{exponent}" if exponent else "")
    return f"{scaled // 1000**power}{_DECIMAL[power]}"
