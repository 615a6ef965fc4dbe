"""Kubernetes' own CEL functions: regular expressions, lists, URLs, quantities, IP addresses.

What a real server has as types of their own are maps here: they can be compared, handed on and asked by these
functions, and nothing else should be done with them. Not there: authorizer, named formats, semantic versions, `format`
but for `%s` and `%d`, and the syntax of optional fields (`a.?b`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from homelab_autoscaler.sandbox.quantity import parse_quantity

# Values come from and go back to the CEL library, which knows no more of their types than Any says.
_Function = Callable[..., Any]
_QUANTITY, _URL, _IP, _CIDR = "quantity", "url", "ip", "cidr"
_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?/[^\x00-\x20\x7f]*|[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]+")


def _is(parse: _Function) -> _Function:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


# Regular expressions and texts


def _find(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in re.finditer(pattern, text)]
    return found if limit < 0 else found[:limit]


def _format(text: str, values: list[Any]) -> str:
    return text % tuple(values)


# Lists; two of the names are functions of texts as well


def _is_sorted(items: list[Any]) -> bool:
    return all(not later < earlier for earlier, later in pairwise(items))


def _index_of(items: Any, wanted: Any, *start: int) -> int:
    if isinstance(items, str):
        return items.find(wanted, *start)
    return items.index(wanted) if wanted in items else -1


def _last_index_of(items: Any, wanted: Any) -> int:
    if isinstance(items, str):
        return items.rfind(wanted)
    return len(items) - 1 - items[::-1].index(wanted) if wanted in items else -1


# Quantities


def _quantity(text: str) -> dict[str, str]:
    return {_QUANTITY: str(parse_quantity(text))}


def _number(value: Any) -> Fraction:
    """Of a quantity, or of a plain whole number."""
    return Fraction(value[_QUANTITY]) if isinstance(value, dict) else Fraction(value)


def _as_integer(value: Any) -> int:
    number = _number(value)
    if number.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return int(number)


def _compare(one: Any, other: Any) -> int:
    difference = _number(one) - _number(other)
    return (difference > 0) - (difference < 0)


# URLs


def _url(text: str) -> dict[str, str]:
    if not _ABSOLUTE.fullmatch(text):
        raise ValueError(f"URL parse error during conversion from string: {text}")
    urlsplit(text)
    return {_URL: text}


def _part(read: Callable[[SplitResult], Any]) -> _Function:
    return lambda value: read(urlsplit(value[_URL]))


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


# Addresses


def _ip(text: str) -> dict[str, str]:
    if "%" in text:
        raise ValueError("IP address with zone value is not allowed")
    return {_IP: str(ipaddress.ip_address(text))}


def _cidr(text: str) -> dict[str, str]:
    ipaddress.ip_interface(text)
    if "/" not in text:
        raise ValueError(f"network address parse error: {text}")
    return {_CIDR: text}


def _network(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(value[_CIDR] if isinstance(value, dict) else value, strict=False)


def _contains_ip(value: Any, address: Any) -> bool:
    return ipaddress.ip_address(address[_IP] if isinstance(address, dict) else address) in _network(value)


FUNCTIONS: dict[str, _Function] = {
    "find": _find,
    "findAll": _find_all,
    "format": _format,
    "isSorted": _is_sorted,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "quantity": _quantity,
    "isQuantity": _is(_quantity),
    "isInteger": lambda value: _number(value).denominator == 1,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_number(value)),
    "add": lambda one, other: {_QUANTITY: str(_number(one) + _number(other))},
    "sub": lambda one, other: {_QUANTITY: str(_number(one) - _number(other))},
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "compareTo": _compare,
    "url": _url,
    "isURL": _is(_url),
    "getScheme": _part(lambda parts: parts.scheme),
    "getHost": _part(_host),
    "getHostname": _part(lambda parts: re.sub(r":\d*$", "", _host(parts)).strip("[]")),
    "getPort": _part(lambda parts: str(parts.port or "")),
    "getEscapedPath": _part(lambda parts: parts.path),
    "getQuery": _part(lambda parts: parse_qs(parts.query, keep_blank_values=True)),
    "ip": _ip,
    "isIP": _is(_ip),
    "family": lambda value: ipaddress.ip_address(value[_IP]).version,
    "cidr": _cidr,
    "isCIDR": _is(_cidr),
    "containsIP": _contains_ip,
    "prefixLength": lambda value: _network(value).prefixlen,
}
"""By name; methods get what they are called on as their first argument."""
