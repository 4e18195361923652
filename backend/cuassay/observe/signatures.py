"""Find what is known of the calls with the same signature: the op, and the type, dtype and shape of each argument.

The signature decides the dispatch path. It is read at each call, because the shape of an array may be changed later.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from cuassay.observe.assembly import Way
from cuassay.ops import Op

__all__ = ["finding"]

#: The types of numbers; their values do not decide the dispatch path.
_NUMBERS = frozenset((bool, int, float, complex))

#: What of an array is part of a signature, in one C call.
_traits = attrgetter("__class__", "dtype", "shape")


def finding(ways: dict[Any, Way]) -> Callable[[Op, tuple[Any, ...]], Way]:
    """Return what finds the way of a call in `ways`, and adds it if it is new.

    One array, two arrays of one type, and an array and a number have signatures that are made faster than others.
    """

    def find(op: Op, args: tuple[Any, ...]) -> Way:
        try:
            if len(args) == 2:
                first, second = args
                one, other = first.__class__, second.__class__
                if other is one:
                    return ways[op, one, first.dtype, second.dtype, first.shape, second.shape]
                if other in _NUMBERS:
                    return ways[op, one, first.dtype, first.shape, other]
            elif len(args) == 1:
                (first,) = args
                return ways[op, first.__class__, first.dtype, first.shape]
            return ways[(op, *map(_traits, args))]
        except (AttributeError, KeyError, TypeError):
            return _met(ways, op, args)

    return find


def _met(ways: dict[Any, Way], op: Op, args: tuple[Any, ...]) -> Way:
    """Return the way of any call. If a shape or dtype cannot be hashed it is not kept; the op rejects the argument."""
    key = _signature(op, args)
    try:
        return ways.get(key) or ways.setdefault(key, Way(op.name))
    except TypeError:
        return Way(op.name)


def _signature(op: Op, args: tuple[Any, ...]) -> Any:
    """Return the signature of any call, in the form that `finding` looks for."""
    traits = [(one.__class__, getattr(one, "dtype", None), getattr(one, "shape", None)) for one in args]
    if len(traits) == 1:
        return op, *traits[0]
    if len(traits) == 2:
        first, second = traits
        if second[0] is first[0]:
            return op, first[0], first[1], second[1], first[2], second[2]
        if second[0] in _NUMBERS:
            return op, *first, second[0]
    return op, *traits
