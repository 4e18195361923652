"""Replace the numbers of a call: which floats may change, and how far their last digits move the result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import is_float
from cuassay.testing.generated.execution import is_safely_taken
from cuassay.testing.generated.result_dtypes import floats_of
from cuassay.testing.generated.selection import generator
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each, over_arguments
from cuassay.testing.tolerance import largest_size

__all__ = [
    "Change",
    "conditioning",
    "free_floats",
    "is_changed",
    "is_general",
    "last_digit_moves",
    "near_zero",
    "refilled",
    "some_tiny",
    "span_of",
    "with_element",
]

Change = Callable[[NDArray[Any]], NDArray[Any]]


def refilled(
    sample: Sample, change: Change, label: str, *, every: bool = False, chosen: list[NDArray[Any]] | None = None
) -> Sample:
    """The same call with `change` applied to some of its floats.

    By default these are the free floats: those drawn from the default range. If there are none, or with `every`, all
    floats are changed; with `chosen`, only those arrays. An array without elements is left alone. A changed array keeps
    the range that was asked for it.
    """
    chosen = chosen or (not every and free_floats(sample)) or floats_of(sample)

    def put(value: Any) -> Any:
        array = value.values if isinstance(value, HostArray) else value
        if not any(array is one for one in chosen) or not array.size:
            return value
        return HostArray(change(array), span=getattr(value, "span", None))

    args, kwargs = over_arguments(sample.args, sample.kwargs, put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, {label}")


def is_changed(args: Iterable[Any], before: Iterable[Any]) -> bool:
    """Whether some argument, or some member of a list, is another object than that at the same place before."""
    return any(new is not old for new, old in zip(each(args), each(before), strict=True))


def with_element(array: NDArray[Any], place: int, number: complex) -> NDArray[Any]:
    """A copy of the array with `number` at index `place` of the flattened array."""
    changed = array.copy()
    changed.reshape(-1)[place] = number
    return changed


def free_floats(sample: Sample) -> list[NDArray[Any]]:
    """The free floats: arrays that `make` drew from its default range, or that look like it."""
    found = [one for one in each(sample.args, sample.kwargs) if isinstance(one, HostArray | np.ndarray)]
    return [_values(one) for one in found if is_float(one.dtype) and _is_free(one)]


def span_of(sample: Sample, array: NDArray[Any]) -> tuple[float, float] | None:
    """The range that was asked for this array of a call; None if there is none."""
    given = (one for one in each(sample.args, sample.kwargs) if isinstance(one, HostArray))
    return next((one.span for one in given if one.values is array), None)


def near_zero(sample: Sample) -> list[NDArray[Any]]:
    """The free floats, and floats whose range contains zero, so that small numbers are in it.

    Empty if no array has a range that contains zero.
    """
    found = [one for one in each(sample.args, sample.kwargs) if isinstance(one, HostArray) and is_float(one.dtype)]
    from_zero = [one.values for one in found if one.span is not None and _holds_zero(one.span)]
    return [*free_floats(sample), *from_zero] if from_zero else []


def some_tiny(array: NDArray[Any]) -> NDArray[Any]:
    """Some numbers lost when added to 1, and negative unless none is: for them ``x - floor(x)`` is 1."""
    flat = array.reshape(-1).copy()
    sign = -1 if flat.min(initial=0) < 0 else 1
    flat[1::8] = sign * _TINY * np.abs(flat[1::8].astype(np.float64))
    return flat.reshape(array.shape)


#: Lost when added to 1, in float64 too.
_TINY = 2.0**-70


def _holds_zero(span: tuple[float, float]) -> bool:
    return span[0] <= 0 <= span[1] and span[0] < span[1]


def _values(array: HostArray | NDArray[Any]) -> NDArray[Any]:
    return array.values if isinstance(array, HostArray) else array


def is_general(spec: OpSpec, sample: Sample) -> bool:
    """Whether the function seems to accept any number: its samples are the default ones, or some floats are free."""
    return bool(floats_of(sample) if spec.has_default_samples else free_floats(sample))


def _is_free(given: HostArray | NDArray[Any]) -> bool:
    if isinstance(given, HostArray) and (given.is_free or given.span is not None):
        return given.is_free
    array = _values(given)
    wide = array.astype(np.float64)
    return bool(array.size > 8 and wide.min() < -1.5 and wide.max() > 1.5 and np.abs(wide).max() <= 3)


def conditioning(spec: OpSpec, sample: Sample) -> float:
    """How far the exact result moves if each input moves by its last digit; no library can be more precise than that.

    Numbers stay in the range that `span_of` finds. Infinite if the shape of the result changes.
    """
    if any(array.dtype not in (np.float32, np.float64) for array in floats_of(sample)):
        return 0.0
    chance = generator()  # one generator for all arrays: equal moves of two arrays might cancel

    def move(array: NDArray[Any]) -> NDArray[Any]:
        low, high = span_of(sample, array) or (-np.inf, np.inf)
        inside = np.clip(_moved(array, chance), min(low, array.min()), max(high, array.max()))
        return np.asarray(np.where(array == 0, array, inside), array.dtype)  # zeros are taken as exact

    moved = refilled(sample, move, "last digits moved", every=True)
    if not is_safely_taken(spec, moved):
        return 0.0
    found, expected = spec.expected(moved), spec.expected(sample)
    if found.shape != expected.shape:
        return np.inf
    with np.errstate(all="ignore"):
        return largest_size(np.subtract(found, expected, dtype=np.complex128))


def last_digit_moves(spec: OpSpec, sample: Sample) -> NDArray[Any]:
    """For each element, how far the exact result moves if each input moves by its last digit.

    Infinite if the shape of the result changes.
    """
    expected = spec.expected(sample)
    most = np.zeros(expected.shape)
    for seed in range(3):
        chance = np.random.default_rng(seed)
        other = refilled(sample, functools.partial(_moved, chance=chance), "last digits moved", every=True)
        if is_safely_taken(spec, other):
            found = spec.expected(other)
            if found.shape != expected.shape:
                return np.full(expected.shape, np.inf)
            with np.errstate(all="ignore"):
                most = np.maximum(most, np.abs(np.subtract(found, expected, dtype=np.complex128)))
    return most


def _moved(array: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Move each number to the next larger or smaller one, at random."""
    ways = np.where(chance.integers(0, 2, array.shape), np.inf, -np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, ways), array.dtype)
