"""The requirements for a value of each JSON type, so that a file, a frame and a page can hold it.

This module checks single values; `columns` defines the type of each column. Needs only the standard library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime

from cuassay_reports.facts import Kind

__all__ = ["INT64", "expected", "is_of"]


def is_of(kind: Kind, value: object) -> bool:
    """Return whether `value` is allowed in a column of this type."""
    return _TYPES[kind](value)


def expected(kind: Kind, got: str) -> str:
    """Return the end of a sentence, such as ``a finite number, got 'x' (str)``."""
    return f"{_WORDS[kind]}, got {got}{_BOUNDS.get(kind, '')}"


INT64 = 2**63
"""The bound of whole numbers, exclusive above and inclusive, negated, below."""


def _is_text(value: object) -> bool:
    """Return whether it is a text that a file and a page can hold: a lone surrogate has no encoding."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -INT64 <= value < INT64


def _is_float(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST


def _is_floats(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(map(math.isfinite if set(map(type, value)) == {float} else _is_float, value))


def _is_time(value: object) -> bool:
    """Return whether it is an ISO 8601 time with a valid date and a year that pandas supports."""
    if not isinstance(value, str) or not _ISO_TIME.fullmatch(value):
        return False
    try:
        return _YEARS[0] <= datetime.fromisoformat(value).year <= _YEARS[1]
    except ValueError:
        return False


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and _is_plain(value, _DEEPEST)


def _is_plain(value: object, deepest: int) -> bool:
    """Return whether it is a JSON value, nested at most `deepest` levels for recursive readers."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, Mapping):
        return deepest > 0 and all(_is_text(key) and _is_plain(item, deepest - 1) for key, item in value.items())
    if isinstance(value, list):
        return deepest > 0 and all(_is_plain(item, deepest - 1) for item in value)
    return _is_text(value) or (isinstance(value, int | float) and _is_float(value))


_MOST = 10**308
"""Larger whole numbers may not fit into a float."""

_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_YEARS = (1700, 2200)
_DEEPEST = 16

_TYPES: dict[Kind, Callable[[object], bool]] = {
    "str": _is_text,
    "time": _is_time,
    "int": _is_int,
    "float": _is_float,
    "bool": lambda value: isinstance(value, bool),
    "object": _is_object,
    "list": _is_floats,
}

_WORDS: dict[Kind, str] = {
    "str": "a text",
    "time": "a time in ISO 8601, such as 2026-01-31T12:00:00Z",
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "object": "an object with text keys",
    "list": "a list of finite numbers",
}

_BOUNDS: dict[Kind, str] = {
    "str": "; a lone surrogate cannot be written",
    "time": f"; years from {_YEARS[0]} to {_YEARS[1]}",
    "int": "; at most 64 bits",
    "float": "; at most 1e308",
    "object": f"; its numbers are finite, its texts can be written, and it has at most {_DEEPEST} levels",
}
"""Further conditions for a value of the right type."""
