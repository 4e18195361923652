"""Patterns of numbers in the range of an input: all equal, few, in order, in runs, and truth values in blocks.

Independent random numbers show none of these: no block of a mask is all false, and no histogram bin gets all numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import INTEGERS, dtype_name, is_float
from cuassay.testing.samples import SPAN, HostArray, is_permutation, is_sorted

__all__ = ["ends_of", "may_be_filled", "next_to_multiples", "path", "patterned"]

Array = NDArray[Any]
Chance = np.random.Generator


def may_be_filled(given: Any) -> bool:
    """Whether an argument was drawn at random, in no order; fixed values may have to be as they are."""
    if not isinstance(given, HostArray) or not given.values.size or not (given.is_free or given.span is not None):
        return False
    return not (is_permutation(given.values) or (given.dtype.kind in "iu" and is_sorted(given.values)))


def patterned(
    given: HostArray, shape: tuple[int, ...], chance: Chance, named: Sequence[float] = (), *, at_ends: bool = False
) -> tuple[HostArray, str]:
    """Make an array of numbers from the range of `given`, in a random pattern.

    Parameters
    ----------
    given : HostArray
        Gives range and dtype.
    shape : tuple of int
        The shape of the new array.
    named : sequence of float
        Integers may also be placed next to multiples of these numbers.
    at_ends : bool
        Put many numbers at the ends of the range instead of drawing a pattern.

    Returns
    -------
    tuple of (HostArray, str)
        The array, and the name of the pattern.
    """
    drawn = _drawn(given, shape, chance)
    patterns = _OF_TRUTH_VALUES if given.dtype == np.bool_ else _OF_NUMBERS
    pattern = patterns[int(chance.integers(len(patterns)))]
    if dtype_name(given.dtype) in INTEGERS and named and chance.integers(4) == 0:
        return next_to_multiples(given, drawn, named, chance), "next to multiples of numbers from the function's code"
    if at_ends and given.dtype != np.bool_:
        pattern = _at_ends
    filled = pattern(drawn, chance) if drawn.size else drawn
    label = (pattern.__doc__ or "").rstrip(".").lower()
    return replace(given, values=np.array(filled, given.dtype, order="C")), label


def _drawn(given: HostArray, shape: tuple[int, ...], chance: Chance) -> Array:
    """Numbers of the requested range; integers without one are drawn between those of `given`."""
    dtype = given.dtype
    if dtype == np.bool_:
        return chance.integers(0, 2, shape).astype(dtype)
    if dtype_name(dtype) in INTEGERS:
        low, high = ends_of(given)
        return _with_ends(chance.integers(low, high, shape, dtype=dtype, endpoint=True), (low, high), chance)
    if not is_float(dtype):
        return np.asarray(chance.choice(given.values.reshape(-1), shape))
    ends = given.span or SPAN
    return _with_ends(np.asarray(chance.uniform(*ends, shape)), ends, chance).astype(dtype)


def _with_ends(values: Array, ends: tuple[float, float], chance: Chance) -> Array:
    """Put both ends of the range among the numbers, for patterns that use them; very small arrays are left alone."""
    flat = np.array(values).reshape(-1)
    if flat.size > 3:
        flat[:2] = ends
    return np.asarray(chance.permutation(flat).reshape(np.shape(values)))


def ends_of(given: HostArray) -> tuple[int, int]:
    """The ends of the requested integer range, clipped to the dtype; without a range, those of the numbers."""
    if given.span is None:
        return int(given.values.min()), int(given.values.max())
    limits = np.iinfo(given.dtype)
    return max(int(given.span[0]), limits.min), min(int(given.span[1]), limits.max)


def next_to_multiples(given: HostArray, drawn: Array, named: Sequence[float], chance: Chance) -> HostArray:
    """Move two thirds of the integers down to a multiple of a named number, or next to it, within the range.

    The named number is drawn for each integer separately.
    """
    low, high = ends_of(given)
    steps = [0, *(int(one) for one in named if one == int(one) and 2 <= one <= high)]
    values = [int(one) for one in drawn.flat]
    for place in np.flatnonzero(chance.integers(0, 3, drawn.size)):
        step = steps[int(chance.integers(len(steps)))]
        near = values[place] // max(step, 1) * step + int(chance.integers(-1, 2))
        values[place] = near if step and low <= near <= high else values[place]
    return replace(given, values=np.array(values, given.dtype).reshape(drawn.shape))


def path(given: HostArray, chance: Chance) -> HostArray | None:
    """Fill square matrices with the weights of a graph whose cheap edges form one path through all nodes.

    The edges of the path have the least number of the range, and all others the largest. With independent random
    weights, shortest paths have few edges. Return None if the matrices are not square, or have fewer than four rows.
    """
    nodes = given.shape[-1] if len(given.shape) > 1 and given.shape[-1] == given.shape[-2] else 0
    if nodes < _NODES or given.dtype.kind == "c":
        return None
    near, far = _weights(given)
    order = chance.permutation(nodes)
    values = np.full(given.shape, far, given.dtype)
    values[..., order[:-1], order[1:]] = near
    return replace(given, values=values)


#: In a graph of fewer nodes every path is short.
_NODES = 4


def _weights(given: HostArray) -> tuple[float, float]:
    """The weight of an edge of the path and that of any other edge; True and False for truth values."""
    if given.dtype == np.bool_:
        return True, False
    if given.dtype.kind in "iu":
        return ends_of(given)
    return given.span or (float(given.values.min()), float(given.values.max()))


# ------------------------------------------------------------------------------------------------ numbers


def _any_numbers(drawn: Array, _chance: Chance) -> Array:
    """Any numbers."""
    return drawn


def _equal(drawn: Array, _chance: Chance) -> Array:
    """All numbers equal."""
    return np.full_like(drawn, drawn.reshape(-1)[0])


def _least(drawn: Array, _chance: Chance) -> Array:
    """All numbers the least."""
    return np.full_like(drawn, np.sort(drawn, axis=None)[0])


def _largest(drawn: Array, _chance: Chance) -> Array:
    """All numbers the largest."""
    return np.full_like(drawn, np.sort(drawn, axis=None)[-1])


def _equal_in_rows(drawn: Array, _chance: Chance) -> Array:
    """The numbers of a row equal."""
    return np.broadcast_to(drawn[..., :1], drawn.shape) if drawn.ndim else drawn


def _few(drawn: Array, chance: Chance) -> Array:
    """Only two numbers."""
    return np.asarray(chance.choice(drawn.reshape(-1)[:2], drawn.shape))


def _in_order(drawn: Array, _chance: Chance) -> Array:
    """Numbers in ascending order."""
    return np.sort(drawn) if drawn.ndim else drawn


def _in_descending_order(drawn: Array, _chance: Chance) -> Array:
    """Numbers in descending order."""
    return np.sort(drawn)[..., ::-1] if drawn.ndim else drawn


def _one_other(drawn: Array, chance: Chance) -> Array:
    """All numbers equal but one."""
    filled = np.full(drawn.size, drawn.reshape(-1)[0], drawn.dtype)
    filled[chance.integers(drawn.size)] = drawn.reshape(-1)[-1]
    return filled.reshape(drawn.shape)


def _in_runs(drawn: Array, chance: Chance) -> Array:
    """Numbers in runs."""
    flat = drawn.reshape(-1)
    length = int(chance.integers(2, 80))
    return np.repeat(flat, length)[: flat.size].reshape(drawn.shape)


def _at_ends(drawn: Array, chance: Chance) -> Array:
    """Many numbers the least or the largest."""
    ends = np.sort(drawn, axis=None)[[0, -1]]
    return np.where(chance.integers(0, 3, drawn.shape) > 0, chance.choice(ends, drawn.shape), drawn)


def _at_one_end(drawn: Array, _chance: Chance) -> Array:
    """Numbers close to one another, at an end of their range."""
    if drawn.dtype.kind != "f":
        return drawn
    wide = drawn.astype(np.float64)
    high = wide.max()
    return np.asarray(high - (high - wide) * _CLOSE, drawn.dtype)


#: How close they are, as a fraction of the range.
_CLOSE = 2.0**-16

Pattern = Callable[[Array, Chance], Array]

#: The patterns of numbers. Unchanged random numbers have more weight than any other pattern.
_OF_NUMBERS: tuple[Pattern, ...] = (
    *(_any_numbers,) * 3,
    _equal, _least, _largest, _equal_in_rows, _few, _in_order, _in_descending_order, _one_other, _in_runs, _at_ends,
    *(_at_one_end,) * 2,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ truth values


def _false(drawn: Array, _chance: Chance) -> Array:
    """All false."""
    return np.zeros_like(drawn)


def _true(drawn: Array, _chance: Chance) -> Array:
    """All true."""
    return np.ones_like(drawn)


def _one_true(drawn: Array, chance: Chance) -> Array:
    """One true."""
    filled = np.zeros(drawn.size, np.bool_)
    filled[chance.integers(drawn.size)] = True
    return filled.reshape(drawn.shape)


def _one_false(drawn: Array, chance: Chance) -> Array:
    """One false."""
    return ~_one_true(drawn, chance)


def _false_first(drawn: Array, chance: Chance) -> Array:
    """False at first, any then."""
    return drawn & (_places(drawn) >= chance.integers(drawn.shape[-1] if drawn.ndim else 1))


def _false_at_last(drawn: Array, chance: Chance) -> Array:
    """Any at first, false then."""
    return drawn & (_places(drawn) < chance.integers(drawn.shape[-1] if drawn.ndim else 1))


def _in_blocks(drawn: Array, chance: Chance) -> Array:
    """In blocks of a power of two."""
    length = 2 ** int(chance.integers(1, 8))
    first = bool(chance.integers(2))
    return np.broadcast_to((_places(drawn) // length % 2 == 0) == first, drawn.shape)


def _places(drawn: Array) -> Array:
    return np.arange(drawn.shape[-1]) if drawn.ndim else np.zeros((), np.int64)


_OF_TRUTH_VALUES: tuple[Pattern, ...] = (
    *(_any_numbers,) * 2,
    _false, _true, _one_true, _one_false, _false_first, _false_at_last, _in_blocks,
)  # fmt: skip
