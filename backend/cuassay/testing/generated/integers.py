"""Checks with integers over the whole range of their dtype: they find overflow and wrong dtypes in intermediate steps.

The expected result comes from the reference for the same integers in 64 bits. It is used where the reference gives the
same in the integers' own dtype, or where all of its results are in range: few references are written for overflow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import INTEGERS, dtype_name
from cuassay.core.device import Device
from cuassay.testing.generated.comparison import compare, compare_values, on_host
from cuassay.testing.generated.crossed import check_many_integers
from cuassay.testing.generated.execution import (
    compare_filled,
    explained,
    filled_from,
    is_safely_taken,
    on_sample,
    refusal_of,
    run_sample,
)
from cuassay.testing.generated.extents import elements_of, longest_axis
from cuassay.testing.generated.filling import is_changed
from cuassay.testing.generated.patterns import ends_of
from cuassay.testing.generated.result_dtypes import coarsest
from cuassay.testing.generated.selection import by_options, generator, one, samples_of
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import HostArray, Sample, each, is_sorted, over_lists
from cuassay.testing.terms import arrays_of
from cuassay.testing.tolerance import FUNCTION, allowed

__all__ = ["check_default_integers", "check_given_integers", "in_64_bits", "wraps_in_reference"]

Array = NDArray[Any]

#: The number of elements of each array.
_COUNT = 1025


def check_default_integers(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Check a function that takes one or two arrays of any shape."""
    if np.dtype(dtype).itemsize < 8:
        _check_narrow(spec, device, dtype)
    elif not spec.is_its_own_reference:
        _check_wide(spec, device, dtype)


def _check_narrow(spec: OpSpec, device: Device, dtype: Any) -> None:
    if spec.reference is None and np.iinfo(dtype).min == 0:
        return  # a function of unsigned integers, such as a hash, may wrap around on purpose
    like = one(spec, device, dtype, most=_COUNT)
    chance = generator()
    args = tuple(HostArray(_of_whole_range((_COUNT,), dtype, chance)) for _ in arrays_of(like.host()[0], {}))
    sample = replace(like, args=args, label="integers over the whole range of the dtype")
    with on_sample(sample), np.errstate(all="ignore"):
        wide = in_64_bits(sample)
        if is_safely_taken(spec, wide) and is_safely_taken(spec, sample):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample), expected=spec.expected(wide))


def _of_whole_range(shape: tuple[int, ...], dtype: Any, chance: np.random.Generator) -> Array:
    """Integers of the whole range of `dtype`, including its ends; in 64 bits, sums of two stay in range."""
    least, most = _ends(dtype)
    ends = np.array([least, most, least + 1, most - 1, 0, 1], dtype)
    values = chance.integers(least, most, shape, dtype=dtype, endpoint=True).reshape(-1)
    values[: ends.size] = ends[: values.size]
    return np.asarray(chance.permutation(values).reshape(shape))


def _ends(dtype: Any) -> tuple[int, int]:
    """The ends of the drawn integers; for 64 bits a quarter of the range, as no wider reference can show overflow."""
    limits = np.iinfo(dtype)
    return (limits.min, limits.max) if limits.bits < 64 else (limits.min // 4, limits.max // 4)


def in_64_bits(sample: Sample) -> Sample:
    """The call with the same integers in int64, where sums and products of narrow ones stay in range."""

    def put(value: Any) -> Any:
        is_integer = isinstance(value, np.ndarray) and dtype_name(value.dtype) in INTEGERS
        return HostArray(value.astype(np.int64)) if is_integer else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def check_given_integers(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Replace the integers of given samples: over the whole range, at the ends of requested ranges, and as text."""
    if dtype_name(dtype) not in INTEGERS or spec.reference is None:
        return
    chance = generator()
    for sample in _of_each_range(spec, device, dtype):
        _check_ranges(spec, device, dtype, sample, chance)
    for sample in by_options(spec, device, dtype, most=_COUNT)[:_OPTIONS]:
        check_many_integers(spec, device, dtype, sample)
    if np.dtype(dtype).itemsize == 1:
        _check_text(spec, device, dtype)
    like = _of_free_integers(spec, device, dtype, most=_COUNT)
    _check_zeros_and_ones(spec, device, dtype, like)
    if dtype_name(dtype) == "uint64":
        _check_beyond_float64(spec, device, dtype, chance)
        return
    for label, numbers in (
        ("integers of the whole range", lambda shape: _of_whole_range(shape, dtype, chance)),
        ("all integers the largest", lambda shape: np.full(shape, _ends(dtype)[1], dtype)),
    ):
        args = tuple(HostArray(numbers(given.shape)) if _is_free(given, dtype) else given for given in like.args)
        sample = replace(like, args=args, label=f"{like.label}, {label}")
        wide = in_64_bits(sample)
        if is_changed(args, like.args) and is_safely_taken(spec, wide) and is_safely_taken(spec, sample):
            with on_sample(sample), explained(f"wrong for {label}: does a step overflow?"):
                _compare_trusted(spec, device, dtype, sample, spec.expected(wide))


#: The most sets of options for which very many integers are tried, and the most samples with ranges of their own.
_OPTIONS, _RANGES = 3, 4

#: The most elements of a sample that is tried at the ends of its ranges: 16 bits overflow after 257 sums of 8 bits.
_MOST_OF_RANGES = 16 * _COUNT


def _of_each_range(spec: OpSpec, device: Device, dtype: Any) -> list[Sample]:
    """Ordinary samples, one for each combination of requested ranges and options: the one with the longest axis."""
    found: dict[str, Sample] = {}
    for sample in samples_of(spec, device, dtype, "values"):
        if elements_of(sample) <= _MOST_OF_RANGES and spec.refusal(sample) is None:
            spans = [one.span for one in each(sample.args) if isinstance(one, HostArray) and not one.is_free]
            key = repr((spans, sorted(sample.kwargs.items())))
            if key not in found or longest_axis(sample) > longest_axis(found[key]):
                found[key] = sample
    return list(found.values())[:_RANGES]


def _check_zeros_and_ones(spec: OpSpec, device: Device, dtype: Any, like: Sample) -> None:
    """Try only 0 and 1, as in a dark image: code that guesses the unit from the largest number then guesses wrong."""
    chance = generator()
    args = tuple(
        HostArray(chance.integers(0, 2, given.shape, dtype=dtype)) if _is_free(given, dtype) else given
        for given in like.args
    )
    sample = replace(like, args=args, label=f"{like.label}, all integers 0 or 1")
    if is_changed(args, like.args):
        compare_filled(spec, device, dtype, like, sample)


def _of_free_integers(spec: OpSpec, device: Device, dtype: Any, *, most: int) -> Sample:
    """The largest small sample with integers from the default range; if there is none, any small sample."""
    free = by_options(spec, device, dtype, most=most, keep=lambda sample: any(_is_free(a, dtype) for a in sample.args))
    return max(free, key=elements_of) if free else one(spec, device, dtype, most=most)


def _check_ranges(spec: OpSpec, device: Device, dtype: Any, like: Sample, chance: np.random.Generator) -> None:
    """Try integers at the ends of the requested range, and next to powers of ten and two and squares within it."""
    for place in range(_ROUNDS):
        edged = functools.partial(_filled_with_edges, dtype, place, chance)
        args = tuple(over_lists(given, edged) for given in like.args)
        label = f"{like.label}, ends of the range, and steps of roots and logarithms in it"
        sample = replace(like, args=args, label=label)
        if not is_changed(args, like.args):
            return
        at_ends = () if place else (one for one in _of_ends(sample, like) if not wraps_in_reference(spec, one))
        for filled in (sample, *at_ends):
            compare_filled(spec, device, dtype, like, filled)


def wraps_in_reference(spec: OpSpec, sample: Sample) -> bool:
    """Whether sums of signed integers wrap around in the reference: for the same integers in 64 bits it gives others.

    Unsigned integers may wrap around on purpose, as in a hash.
    """
    wide = in_64_bits(sample)
    if not any(array.dtype.kind == "i" and array.itemsize < 8 for array in arrays_of(*sample.host())):
        return False
    if refusal_of(spec, sample) is not None or refusal_of(spec, wide) is not None:
        return True
    return not np.array_equal(spec.expected(sample), spec.expected(wide), equal_nan=True)


#: The number of calls over which powers, squares and their neighbours are spread; one call has too few elements.
_ROUNDS = 4


def _filled_with_edges(dtype: Any, place: int, chance: np.random.Generator, given: Any) -> Any:
    """The array refilled with the ends of its range and the steps number `place` of `_edges`; others are unchanged."""
    if not isinstance(given, HostArray) or given.dtype != dtype or given.span is None:
        return given
    low, high = ends_of(given)
    if given.values.size < 2 or high - low < _RANGE or is_sorted(given.values):
        return given
    steps = [0, *(int(one) for one in _edges())]
    inside = [one for step in steps for one in (step, -step) if low < one < high]
    count = given.values.size - 2
    chosen = inside[place * count : (place + 1) * count]
    if place and not chosen:
        return given
    values = np.array([low, high, *chosen], dtype)
    return HostArray(chance.permutation(np.resize(values, given.values.size)).reshape(given.shape))


def _of_ends(sample: Sample, like: Sample) -> Iterator[Sample]:
    """The sample with one changed array at one end of its range throughout, then with all of several so.

    Two arrays at the ends of their ranges may give a product that is half a rounding step. A sum of the largest
    differences overflows first.
    """
    changed = [at for at, (new, old) in enumerate(zip(sample.args, like.args, strict=True)) if new is not old]
    ends = {at: ends_of(given) for at in changed if isinstance(given := like.args[at], HostArray) and given.span}
    for number in range(2) if ends else ():
        args = list(sample.args)
        for place, both in ends.items():
            args[place] = _near(like.args[place], both, number)
        yield replace(sample, args=tuple(args), label=f"{sample.label}, all near the {('lower', 'upper')[number]} end")
    together = [dict(zip(ends, chosen, strict=True)) for chosen in product(*ends.values())][:_TOGETHER]
    for chosen in ({place: end} for place, both in ends.items() for end in both), together if len(ends) > 1 else ():
        for filled in chosen:
            args = list(sample.args)
            for place, end in filled.items():
                args[place] = HostArray(np.full(like.args[place].shape, end, like.args[place].dtype))
            named = " and of ".join(f"input {place} are {end}" for place, end in filled.items())
            yield replace(sample, args=tuple(args), label=f"{sample.label}, all of {named}")


def _near(given: HostArray, ends: tuple[int, int], number: int) -> HostArray:
    """Integers in the lowest or highest eighth of the range, whose sums are large and odd as often as even."""
    width = (ends[1] - ends[0]) // 8
    low = (ends[0], ends[1] - width)[number]
    drawn = generator().integers(low, low + width, given.shape, dtype=given.dtype, endpoint=True)
    return HostArray(drawn, span=given.span)


#: The most combinations of ends that are tried.
_TOGETHER = 8


def _check_text(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Try each printable character, if the function maps a text to another of the same length.

    The characters are those of ASCII, or of Latin-1 if a sample's text has characters beyond ASCII.
    """
    beyond = by_options(
        spec, device, dtype, most=_COUNT, keep=lambda sample: _is_text(sample) and _largest_character(sample) > 127
    )
    texts = beyond or by_options(spec, device, dtype, most=_COUNT, keep=_is_text)
    letters = (_LATIN_1 if beyond else _ASCII).astype(dtype)
    for like in texts[:1]:
        sample = replace(like, args=(HostArray(letters),), label="each printable character")
        keeps_length = spec.expected(like).shape == like.args[0].shape
        if keeps_length and is_safely_taken(spec, sample) and spec.expected(sample).shape == letters.shape:
            compare_filled(spec, device, dtype, like, sample)


def _largest_character(sample: Sample) -> int:
    return int(sample.args[0].values.max())


def _is_text(sample: Sample) -> bool:
    """Whether the only array seems to be a text: fixed numbers, printable, with a space and eight different ones."""
    (given, *others) = sample.args or (None,)
    if others or not isinstance(given, HostArray) or len(arrays_of(*sample.host())) != 1:
        return False
    met = set(given.values.reshape(-1).tolist())
    is_written = given.span is None and not given.is_free and given.values.ndim == 1
    return is_written and len(met) >= 8 and ord(" ") in met and met <= set(_LATIN_1.tolist())


_ASCII = np.arange(32, 127)
_LATIN_1 = np.concatenate([_ASCII, np.arange(160, 256)])

#: The least width of a range whose steps are tried: the samples contain most numbers of a narrower one.
_RANGE = 64


def _check_beyond_float64(spec: OpSpec, device: Device, dtype: Any, chance: np.random.Generator) -> None:
    """Try integers that float64 cannot represent, small enough for sums; skipped if the reference uses float64."""
    like = _of_free_integers(spec, device, dtype, most=_FEW)
    if max((array.size for array in arrays_of(*like.host())), default=0) > _FEW:
        return

    def drawn(given: Any) -> Any:
        return HostArray(chance.integers(2**53, 2**55, given.shape, dtype=dtype)) if _is_free(given, dtype) else given

    args = tuple(drawn(given) for given in like.args)
    sample = replace(like, args=args, label=f"{like.label}, integers of 54 bits")
    rounded = replace(sample, args=tuple(_through_float64(given, dtype) for given in args))
    if not is_changed(args, like.args) or not is_safely_taken(spec, sample) or not is_safely_taken(spec, rounded):
        return
    expected, result = spec.expected(sample), run_sample(spec, device, sample)
    is_exact = not np.array_equal(expected, spec.expected(rounded))
    if is_exact and expected.dtype.kind in "iu" and on_host(result).dtype.kind in "iu":
        with filled_from(spec, device, dtype, like, sample):
            compare_values(spec, device, dtype, sample, result)


#: The most elements of an array: a sum of 256 numbers of 55 bits is below 2^64.
_FEW = 256


def _through_float64(given: Any, dtype: Any) -> Any:
    return HostArray(given.values.astype(np.float64).astype(dtype)) if isinstance(given, HostArray) else given


def _is_free(given: Any, dtype: Any) -> bool:
    return isinstance(given, HostArray) and given.dtype == dtype and given.is_free


def _compare_trusted(spec: OpSpec, device: Device, dtype: Any, sample: Sample, expected: Array) -> None:
    narrow, result = spec.expected(sample), run_sample(spec, device, sample)
    got = on_host(result)
    if not narrow.shape == expected.shape == got.shape:
        compare(spec, device, dtype, sample, result, expected=expected)
        return
    if got.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            same = np.abs(narrow - expected) <= _SAME * np.abs(expected)
        trusted = np.where(same, expected, got)
        terms = max(array.size for array in arrays_of(*sample.host())) // max(1, got.size)
        is_exact = terms <= 1 and np.dtype(dtype).itemsize < 4  # float32 represents each of them
        size = np.maximum(np.abs(expected), 1 if is_exact else np.iinfo(dtype).max)
        limit = allowed(FUNCTION, coarsest(sample, got.dtype), terms=max(1, terms), magnitude=size)
        compare_values(spec, device, dtype, sample, result, expected=trusted, limit=limit)
        return
    if got.dtype.kind == expected.dtype.kind == "b":
        compare_values(spec, device, dtype, sample, result, expected=np.where(narrow == expected, expected, got))
        return
    if got.dtype.kind not in "iu" or expected.dtype.kind not in "iub":
        return
    limits = np.iinfo(got.dtype)
    inside = (limits.min <= expected) & (expected <= limits.max)
    saturated = np.clip(expected, limits.min, limits.max)
    if np.array_equal(narrow, saturated):  # the reference saturates on purpose
        expected = saturated
    elif np.iinfo(dtype).min == 0 or not inside.all():
        expected = np.where(inside & (narrow == expected), expected, got)
    compare_values(spec, device, dtype, sample, result, expected=expected)


#: Relative difference between floats for narrow and for wide integers that is taken for rounding.
_SAME = 2.0**-40


def _check_wide(spec: OpSpec, device: Device, dtype: Any) -> None:
    """Try integers that float64 cannot represent, half of them next to squares and powers of two."""

    def drawn(array: Array) -> Array:
        least = 0 if np.iinfo(dtype).min == 0 else -_WIDE
        chance = generator()
        values = chance.integers(least, _WIDE, array.shape, dtype=np.int64, endpoint=True).reshape(-1)
        values[1::2] = chance.choice(_edges(), values[1::2].size)
        return values.reshape(array.shape).astype(dtype)

    like = one(spec, device, dtype, most=_COUNT)
    args, kwargs = like.changed(
        lambda array: HostArray(drawn(array)) if getattr(array, "dtype", None) == dtype else array
    )
    sample = replace(
        like, args=args, kwargs=kwargs, label="integers of 62 bits, some next to squares and powers of two"
    )
    if is_safely_taken(spec, sample):
        with on_sample(sample), np.errstate(all="ignore"):
            compare(spec, device, dtype, sample, run_sample(spec, device, sample))


#: The largest 64-bit integer that is drawn: sums of two stay in range.
_WIDE = 2**61


def _edges() -> NDArray[np.int64]:
    """Squares and powers of two with their neighbours: a root or logarithm in float64 rounds them to the wrong side."""
    chance = generator()
    tens = 10 ** np.arange(18, 0, -1, dtype=np.int64)
    powers, roots = 2 ** chance.permutation(np.arange(1, 61, dtype=np.int64)), chance.integers(2**26, 2**30, 64)
    steps = np.concatenate([tens, powers, roots * roots])
    return np.stack([steps - 1, steps, steps + 1], axis=-1).reshape(-1)
