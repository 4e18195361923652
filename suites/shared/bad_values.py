"""Values that hardly any argument can take, and how a function must answer one.

`BAD` is one table for every argument of every public function. Sizes in it are either small or beyond any machine, so
that none of them can fill the memory of the machine that runs the tests.

The rule for an answer: a value, or an error that is ours, a `TypeError`, a `ValueError` or a `MemoryError`; its message
says what was wrong, what was given and what to do; and no argument was written. Two exceptions, both in `offence`:
Python's own `TypeError` for a call that does not fit the signature, and the system's `OSError` from a function that
opens a file.
"""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cuassay import devices
from cuassay.errors import CuassayError
from cuassay.ops import registry

__all__ = ["BAD", "LONGEST", "contents", "offence"]

#: Characters of a message that still fits on a screen.
LONGEST = 4_200


class _LongRepr:
    """An object whose repr would fill the screen."""

    def __repr__(self) -> str:
        return "x" * 1_000_000


class _Duck:
    """An object with the attributes of an array, which is not one."""

    shape = (2, 2)
    dtype = np.dtype(np.float32)
    ndim = 2
    size = 4
    strides = (8, 4)


class _Quantity(np.ndarray[Any, Any]):
    """A subclass that computes by rules of its own, as those with units do."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented


def _read_only() -> np.ndarray[Any, Any]:
    made = np.ones((2, 2), np.float32)
    made.setflags(write=False)
    return made


def _numbers() -> dict[str, Callable[[], Any]]:
    values = {
        "minus one": -1, "a million": 1_000_000, "2**62": 2**62, "2**63": 2**63, "2**70": 2**70,
        "-2**63-1": -(2**63) - 1,
        "10**400": 10**400, "True": True, "0.5": 0.5, "-0.5": -0.5, "nan": math.nan, "inf": math.inf, "1e300": 1e300,
        "1j": 1j, "Decimal": decimal.Decimal("0.5"), "Fraction": fractions.Fraction(1, 3), "np.int64": np.int64(-7),
        "np.float64": np.float64("nan"), "np.bool": np.bool_(True), "np.complex64": np.complex64(1j),
    }  # fmt: skip
    return {name: lambda value=value: value for name, value in values.items()}


def _words() -> dict[str, Callable[[], Any]]:
    values = {
        "empty str": "", "'0'": "0", "'nope'": "nope", "'cuda:99'": "cuda:99", "'sim:-1'": "sim:-1",
        "surrogate": "\ud800",
        "long str": "y" * 100_000, "bytes": b"float32", "NUL": "a\0b",
    }  # fmt: skip
    return {name: lambda value=value: value for name, value in values.items()}


def _objects() -> dict[str, Callable[[], Any]]:
    return {
        "None": lambda: None, "object": object, "type": lambda: int, "lambda": lambda: lambda *args: None,
        "module": lambda: math, "Ellipsis": lambda: ..., "NotImplemented": lambda: NotImplemented,
        "slice": lambda: slice(3),
        "date": lambda: datetime.date(2026, 1, 1), "error": lambda: ValueError("no"),
        "long repr": _LongRepr, "duck": _Duck,
        "generator": lambda: (x for x in ()),
    }  # fmt: skip


def _containers() -> dict[str, Callable[[], Any]]:
    return {
        "[]": list, "()": tuple, "{}": dict, "set": lambda: {1}, "[1.0]": lambda: [1.0], "[None]": lambda: [None],
        "ragged": lambda: [[1.0], [1.0, 2.0]], "(-1,)": lambda: (-1,), "(2**62, 2**62)": lambda: (2**62, 2**62),
        "('a',)": lambda: ("a",), "(0.5, 0.5)": lambda: (0.5, 0.5), "{1: 2}": lambda: {1: 2}, "range": lambda: range(3),
        "array.array": lambda: array.array("f", [1.0]), "memoryview": lambda: memoryview(b"\1\2"),
        "65 axes": lambda: (1,) * 65, "itself": _itself,
    }  # fmt: skip


def _itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _arrays() -> dict[str, Callable[[], Any]]:
    return {
        "masked": lambda: np.ma.masked_array(np.ones((2, 2), np.float32), mask=[[0, 1], [0, 0]]),
        "matrix": lambda: np.matrix(np.ones((2, 2), np.float32)),
        "quantity": lambda: np.ones((2, 2), np.float32).view(_Quantity),
        "recarray": lambda: np.rec.array([(1.0, 2)], dtype=[("x", "f4"), ("y", "i4")]),
        "objects": lambda: np.array([object(), None]),
        "strings": lambda: np.array(["a", "b"]),
        "datetimes": lambda: np.array(["2026-01-01"], "M8[D]"),
        "structured": lambda: np.zeros(2, [("x", "f4")]),
        "big-endian": lambda: np.ones((2, 2), ">f4"),
        "long double": lambda: np.ones((2, 2), np.longdouble),
        "read-only": _read_only,
        "64 axes": lambda: np.ones((1,) * 64, np.float32),
        "0-d": lambda: np.ones((), np.float32),
        "empty": lambda: np.empty((0, 3), np.float32),
        "void": lambda: np.zeros(2, "V8"),
        "overlapping": lambda: np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (2, 2), (4, 4)),
        "list of masked": lambda: [np.ma.masked_array([1.0], mask=[1])],
        "list of lists": lambda: [[1.0], [2.0]],
    }


#: Name to a function that makes the value; a call may use one up.
BAD: dict[str, Callable[[], Any]] = {**_numbers(), **_words(), **_objects(), **_containers(), **_arrays()}


def contents(value: Any, depth: int = 4) -> Iterator[bytes]:
    """The bytes of every array in arguments, in lists and dicts too, as deep as calls have them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value if depth else ():
            yield from contents(one, depth - 1)
    elif registry.backend_of(type(value)) is not None:
        yield devices.to_host(value).tobytes()


def offence(error: BaseException, *, opens_file: bool = False) -> str | None:
    """What is wrong with an error as the answer to a bad argument, or None."""
    if _is_pythons(error) or (opens_file and isinstance(error, OSError)):
        return None
    if not isinstance(error, (CuassayError, TypeError, ValueError, MemoryError)):
        return f"raw {type(error).__name__}: {error!s:.150}"
    message = str(error)
    if len(message) > LONGEST:
        return f"a message of {len(message):,} characters"
    if not re.search(r"[;:] ", message):
        return f"not three parts: {type(error).__name__}: {message:.300}"
    return None


def _is_pythons(error: BaseException) -> bool:
    """Whether Python itself says that a call does not fit the signature."""
    return type(error) is TypeError and re.search(r"argument|positional", str(error)) is not None and "()" in str(error)
