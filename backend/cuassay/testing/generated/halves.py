"""A check with ties: numbers that lie half-way between two results of a rounding, or that are in two arrays.

Results are compared only where the reference, run in the dtype itself, rounds the tie as it does in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import is_float
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare, compare_values, of_reference, on_host
from cuassay.testing.generated.execution import check, filled_from, is_function, is_safely_taken, run_sample
from cuassay.testing.generated.filling import Change, refilled
from cuassay.testing.generated.natively import decided
from cuassay.testing.generated.patterns import ends_of, may_be_filled
from cuassay.testing.generated.selection import generator, samples_of
from cuassay.testing.generated.special import samples_to_fill
from cuassay.testing.opspec import OpSpec
from cuassay.testing.rounding_error import is_coarse
from cuassay.testing.samples import HostArray, Sample, is_sorted
from cuassay.testing.tolerance import largest_size

__all__ = ["eighths"]

Array = NDArray[Any]


def eighths(array: Array) -> Array:
    """The nearest multiples of 1/8: some of them are ties when rounded to integers or quarters."""
    return np.asarray((np.round(array.astype(np.float64) * 8) / 8).astype(array.dtype))


#: Numbers are multiples of powers of 1/2 below this exponent. Some of them are ties after multiplication by up to 256,
#: as in rounding to decimal places, to 16 levels a unit, or with the largest number scaled to 127.
_FINEST = 9


def _dyadic(array: Array) -> Array:
    """Each number rounded down to a multiple of 1/2, 1/4 or a smaller power of two."""
    levels = 2.0 ** generator().integers(1, _FINEST + 1, array.shape)
    return np.asarray((np.floor(array * levels) / levels).astype(array.dtype))


def _to_127(array: Array) -> Array:
    """Multiples of 1/2 up to 127; each row along the last axis contains 127, so that its quantization scale is 1."""
    wide = np.floor(array.astype(np.float64) * 64) / 2
    if wide.ndim and wide.size:
        wide[..., 0] = 127
    return np.asarray(np.clip(wide, -127, 127).astype(array.dtype))


def _next_to_halves(array: Array) -> Array:
    """As `_dyadic`, but larger by a factor of 1 + 2^-30: a cast to float32 makes a tie, which is then rounded again."""
    return np.asarray(_dyadic(array) * (1 + 2.0**-30))


def _below_powers(array: Array) -> Array:
    """Numbers just below a power of two, far enough from 1 for their logarithm to be rounded to an integer."""
    exponents = generator().choice([*range(-9, -2), *range(3, 7)], array.shape)
    below = np.nextafter(np.ldexp(np.ones(array.shape, array.dtype), exponents), array.dtype.type(0))
    return np.asarray(np.copysign(below, array))


_HALVES: dict[str, Change] = {
    "multiples of 1/8, some half-way between two results of a rounding": eighths,
    "multiples of powers of 1/2, some half-way between two results of a rounding": _dyadic,
    "multiples of 1/2, the first is 127, some half-way between two results of a rounding": _to_127,
    "numbers just below powers of two": _below_powers,
}
_OF_FLOAT64: dict[str, Change] = {
    "multiples of powers of 1/2 and a part of 2^-30 more, which float32 does not hold": _next_to_halves,
}


@check(lambda spec: is_function(spec) and not spec.is_its_own_reference)
def check_halves(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Results are right for numbers half-way between two results of a rounding, and for ties between two arrays.

    Other numbers that are tried are those just below powers of two, numbers of one array that are also in another one,
    integers next to the numbers of another array, and quotients by a scale that are half-way between two integers.
    """
    if is_coarse(dtype):
        return
    for sample in islice(samples_of(spec, device, dtype, "values"), _MOST_SAMPLES):
        for shared in (*_with_shared(sample), *_with_steps(sample)):
            if is_safely_taken(spec, shared):
                with filled_from(spec, device, dtype, sample, shared):
                    if is_float(dtype):
                        _check_halves(spec, device, dtype, shared)
                    else:
                        compare(spec, device, dtype, shared, run_sample(spec, device, shared))
    for sample in samples_to_fill(spec, device, dtype):
        for label, fill in (_HALVES | _OF_FLOAT64 if dtype == np.float64 else _HALVES).items():
            filled = refilled(sample, fill, label)
            if is_safely_taken(spec, filled):
                with filled_from(spec, device, dtype, sample, filled):
                    _check_halves(spec, device, dtype, filled)


#: The most samples in which numbers are copied from one array to another; the order of edges may differ in each.
_MOST_SAMPLES = 12

#: The most numbers of an array that is taken for a list of edges, levels or centres.
_MOST_EDGES = 64


def _with_shared(sample: Sample) -> Iterator[Sample]:
    """The sample with half of the numbers of a drawn array replaced by those of a short one, for each such pair.

    Integers get the numbers next to floats as well: a comparison in float32 takes 2^30 - 1 for 2^30.
    """
    arrays = [(place, given) for place, given in enumerate(sample.args) if isinstance(given, HostArray)]
    for (into, drawn), (of, short) in permutations(arrays, 2):
        is_short = short.values.ndim == 1 and 1 < short.values.size <= _MOST_EDGES
        is_next = drawn.dtype.kind in "iu" and short.dtype.kind == "f"
        if not (is_short and (is_next or short.dtype == drawn.dtype)):
            continue
        if not may_be_filled(drawn) or is_sorted(drawn.values):
            continue
        chance, inside = generator(), _inside(_next_to(short.values) if is_next else short.values, drawn)
        if inside.size:
            values = drawn.values.copy().reshape(-1)
            values[::2] = chance.choice(inside, values[::2].size)
            args = list(sample.args)
            args[into] = replace(drawn, values=values.reshape(drawn.shape))
            where = "next to those of" if is_next else "also in"
            label = f"{sample.label}, half of the numbers of input {into} are {where} input {of}"
            yield replace(sample, args=tuple(args), label=label)


def _with_steps(sample: Sample) -> Iterator[Sample]:
    """The sample with one array of positive numbers filled with a power of two in its declared range.

    Other arrays of its dtype get multiples of half of that number, so that quotients by a scale are ties.
    """
    floats = [
        (place, given) for place, given in enumerate(sample.args)
        if isinstance(given, HostArray) and given.dtype.kind == "f"
    ]  # fmt: skip
    for of, scale in floats:
        low, high = scale.span or (0.0, 0.0)
        step = 2.0 ** np.floor(np.log2(high)) if 0 < low < high < np.inf else 0.0
        others = [(place, given) for place, given in floats if place != of and given.dtype == scale.dtype]
        if not others or step < low or step == 0.0:
            continue
        args = list(sample.args)
        args[of] = replace(scale, values=np.full(scale.shape, step, scale.dtype))
        for place, given in others:
            least, most = given.span or (-np.inf, np.inf)
            multiples = (np.round(given.values.astype(np.float64) / step * 2) * step / 2).astype(given.dtype)
            inside = (multiples >= least) & (multiples <= most)
            args[place] = replace(given, values=np.where(inside, multiples, given.values))
        label = f"{sample.label}, input {of} is {step:g}, the others are multiples of half of it: quotients are ties"
        yield replace(sample, args=tuple(args), label=label)


def _next_to(floats: Array) -> Array:
    """The integers at, below and above each finite number."""
    whole = np.floor(floats[np.isfinite(floats)])
    return np.asarray(np.unique(whole + np.array([[-1.0], [0.0], [1.0]])))


def _inside(values: Array, drawn: HostArray) -> Array:
    """The finite values in the range of the drawn array; for integers without a range, in that of their numbers."""
    values = values[np.isfinite(values)]
    low, high = ends_of(drawn) if drawn.dtype.kind in "iu" else drawn.span or (-np.inf, np.inf)
    return np.asarray(values[(values >= low) & (values <= high)])


def _check_halves(spec: OpSpec, device: Device, dtype: Any, sample: Sample) -> None:
    """Compare where the reference gives the same in the dtype itself: there no rounding error decides the result."""
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    got, narrow = on_host(result), of_reference(spec, sample)
    if narrow is None or narrow.shape != expected.shape or got.shape != expected.shape:
        return
    size = max(1.0, largest_size(expected))
    expected = np.where(decided(narrow, expected, dtype, size), expected, got)
    try:
        compare(spec, device, dtype, sample, result, expected=expected)
    except AssertionError:  # sums of large products may be off by more than their inputs, but not by a rounding step
        if expected.dtype.kind not in "fc":
            raise
        limit = _STEP * largest_size(expected)
        compare_values(spec, device, dtype, sample, result, expected=expected, limit=limit)


#: Rounding errors up to this fraction of the largest result are allowed; a tie rounded the wrong way is off by more.
_STEP = 2.0**-14
