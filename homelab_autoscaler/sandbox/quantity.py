"""Kubernetes quantities (`500m`, `16Gi`, `2`, `1e3`) as exact numbers."""

from __future__ import annotations

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
