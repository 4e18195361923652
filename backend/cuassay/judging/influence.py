"""Inputs with other numbers than those that are drawn, and whether the results follow a number that is moved.

A candidate may be right for the drawn numbers alone: it may leave some of them out, cut what is larger, or use an
approximation that holds in their range. An array that the declaration draws between `low` and `high` keeps this range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import epsilon, is_complex, is_float
from cuassay.judging.probes import LARGE, Draw, Finding, Probe, judged_values, same
from cuassay.judging.results import Outputs, Results
from cuassay.judging.verdict import Evidence
from cuassay.testing.generated.integers import in_64_bits
from cuassay.testing.samples import HostArray, Sample, each, is_sorted, over_lists
from cuassay.testing.terms import arrays_of

__all__ = ["exchanged", "influences", "moved_everywhere", "scaled", "special_values", "spikes", "unwrapped"]

#: How far a spike is, in ranges of an input; less in 16 bits, where squares must stay in range.
_SPIKE, _SMALL_SPIKE = 2.0**10, 2.0**4

#: Parts of a flattened array, in each of which one number is moved.
_PLACES = 8

#: Spikes in an array, and in a large one: of what leaves out a fourteenth of it, one in a hundred escapes.
_SPIKES, _MANY_SPIKES = 3, 64

#: The part of the range by which each spike is nearer to the middle than the one before: a sort must not meet ties. It
#: is a rounding step of bfloat16, so that all spikes differ there too.
_STEP = 2.0**-8

#: Calls in which each number is moved once.
_TURNS = 4

#: Ranges of binary exponents by which all numbers of a call are scaled, and the part of them in 16 bits. The exponents
#: are not whole numbers: a function may give the very same bits for inputs that differ by a power of two.
_SCALES = ((-24.0, -15.0), (-15.0, -6.0), (0.3, 3.0), (3.0, 10.0))
_PART_IN_16_BITS = 0.4

#: Part of a result by which a moved number must change the reference, to be seen.
_SEEN = 2.0**-6


def spikes(sample: Sample, chance: np.random.Generator) -> Sample:
    """Some numbers in random places much larger than all others; at the ends of their range where they have one."""

    def put(value: Any) -> Any:
        given = HostArray(value) if isinstance(value, np.ndarray) else value
        if not isinstance(given, HostArray) or not _is_movable(given.values):
            return value
        flat = given.values.copy().reshape(-1)
        count = _SPIKES if flat.size <= LARGE else _MANY_SPIKES
        places = chance.integers(0, flat.size, min(count, flat.size))
        ends = (-_far(flat), _far(flat)) if given.span is None else given.span
        low, high = ends
        inward = (high - low) * _STEP * np.arange(places.size)
        flat[places] = np.where(chance.random(places.size) < 0.5, low + inward, high - inward).astype(flat.dtype)
        return HostArray(flat.reshape(given.shape))

    args = tuple(over_lists(one, put) for one in sample.args)
    kwargs = {name: over_lists(one, put) for name, one in sample.kwargs.items()}
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, spikes")


def special_values(sample: Sample, chance: np.random.Generator) -> Sample:
    """NaN and both infinities in random places."""

    def put(value: Any) -> Any:
        if not _is_movable(value) or value.size < 3:
            return value
        flat = value.copy().reshape(-1)
        with np.errstate(all="ignore"):  # formats without infinities have NaN there
            flat[chance.permutation(flat.size)[:3]] = np.array([np.nan, np.inf, -np.inf]).astype(value.dtype)
        return HostArray(flat.reshape(value.shape))

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, special values")


# ------------------------------------------------------------------------------------------------ all numbers


def moved_everywhere(sample: Sample, chance: np.random.Generator) -> Iterator[Draw]:
    """Draws that together move each number of every array once, by random sizes from the drawn range to a spike's.

    Only a quarter of the numbers is moved at a time, so that a sum depends visibly on each of them; of a large array
    only the first quarter is. Of integers only those are moved that are drawn without a range.
    """
    seed = int(chance.integers(2**62))
    for turn in range(_TURNS if _largest(sample) <= LARGE else 1):
        if _may_change(sample, partial(_moved_in_turn, seed=seed, place=0, turn=turn)):
            yield partial(_drawn_in_turn, sample, seed, turn)


def _drawn_in_turn(sample: Sample, seed: int, turn: int) -> Sample:
    """The sample with those numbers moved whose turn it is, of each array others."""
    places = count()
    label = f"{sample.label}, every {_TURNS}th number moved, {turn}"
    return _drawn_changed(sample, lambda given: _moved_in_turn(given, seed=seed, place=next(places), turn=turn), label)


def _moved_in_turn(given: HostArray, *, seed: int, place: int, turn: int) -> HostArray:
    """The array with those numbers moved whose turn it is: the seed says which, so that each has its turn once.

    Arrays at different places get independent numbers: equal ones would cancel in their difference.
    """
    size = given.values.size
    order = np.random.default_rng([seed, place, _TURNS]).permutation(size)
    is_moved = (order % _TURNS == turn).reshape(given.shape)
    numbers = _numbers_like(given, np.random.default_rng([seed, place, turn]))
    return HostArray(np.where(is_moved, numbers, given.values))


def scaled(sample: Sample, chance: np.random.Generator) -> Iterator[Draw]:
    """Draws in which all numbers without a range are smaller, or larger; of a large sample one of each."""
    ranges = _SCALES if _largest(sample) <= LARGE else (_SCALES[chance.integers(2)], _SCALES[2 + chance.integers(2)])
    for least, most in ranges:
        change = partial(_scaled, exponent=float(chance.uniform(least, most)))
        if _may_change(sample, change):
            yield partial(_drawn_changed, sample, change, f"{sample.label}, other range")


def _scaled(given: HostArray, *, exponent: float) -> HostArray:
    if not given.is_free:
        return given
    values = given.values
    if _is_integer(values):
        largest = max(int(np.abs(values.astype(np.int64)).max()), 1)
        factor = min(2 ** round(abs(exponent) / 2), int(np.iinfo(values.dtype).max) // largest)
        return HostArray(values * values.dtype.type(max(factor, 1)))
    part = 1.0 if epsilon(values.dtype) < 2.0**-12 else _PART_IN_16_BITS
    return HostArray((values * 2.0 ** (part * exponent)).astype(values.dtype))


def exchanged(sample: Sample, chance: np.random.Generator) -> Iterator[Sample]:
    """The sample with the given integers, such as indices, in another order, where they are in none.

    Whole rows are exchanged, because a function may need the integers of a row to be distinct.
    """
    is_changed = False

    def put(value: Any) -> Any:
        nonlocal is_changed
        is_given = isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size > 1 and value.ndim > 0
        if not is_given or is_sorted(value):
            return value
        is_changed = True
        axis = next(axis for axis, extent in enumerate(value.shape) if extent > 1)
        order = chance.permutation(value.shape[axis])
        order = order if (order[1:] < order[:-1]).any() else np.roll(order, 1)
        return HostArray(np.ascontiguousarray(value.take(order, axis)))

    args, kwargs = sample.changed(put)
    if is_changed:
        yield replace(sample, args=args, kwargs=kwargs, label=f"{sample.label}, integers exchanged")


def unwrapped(results: Results, sample: Sample, draw: Draw) -> Sample:
    """What `draw` gives for `sample`, its changed integers made smaller until no step of the reference wraps around.

    A right function may compute in another order, which wraps elsewhere. If a step wraps for `sample` itself, as in a
    hash, the integers stay as they were drawn.
    """
    drawn = draw()
    pairs = list(zip(arrays_of(*drawn.host()), arrays_of(*sample.host()), strict=True))
    if not any(new is not old and _is_integer(new) and new.itemsize < 8 for new, old in pairs):
        return drawn
    if _wraps(results, sample):
        return drawn
    while _wraps(results, drawn):
        drawn = _made_smaller(drawn, sample)
        pairs = list(zip(arrays_of(*drawn.host()), arrays_of(*sample.host()), strict=True))
        if all(_size(new) <= max(_size(old), 1) for new, old in pairs if new is not old and _is_integer(new)):
            return sample
    return drawn


def _made_smaller(drawn: Sample, sample: Sample) -> Sample:
    """The drawn sample with a quarter of each integer in the arrays that are not those of `sample`."""
    declared = iter(arrays_of(*sample.host()))

    def put(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value is next(declared) or not _is_integer(value):
            return value
        return HostArray(value >> 2)

    args, kwargs = drawn.changed(put)
    return replace(drawn, args=args, kwargs=kwargs)


def _size(array: NDArray[Any]) -> int:
    return int(np.abs(array.astype(np.int64)).max(initial=0))


def _wraps(results: Results, sample: Sample) -> bool:
    """Whether the reference gives other results for the same integers in 64 bits; results that saturate are equal."""
    wide = in_64_bits(sample)
    with np.errstate(all="ignore"):
        if not results.takes(wide) or not results.takes(sample):
            return True
        return any(_differ(spec.expected(sample), spec.expected(wide)) for spec in results.of(sample))


def _differ(narrow: NDArray[Any], wide: NDArray[Any]) -> bool:
    if narrow.shape != wide.shape:
        return True
    if _is_integer(narrow):
        limits = np.iinfo(narrow.dtype)
        return not np.array_equal(narrow, np.clip(wide, limits.min, limits.max))
    return not np.allclose(narrow, wide, rtol=_SAME, atol=0, equal_nan=True)


#: Relative difference between floats for narrow and for wide integers that is taken for rounding.
_SAME = 2.0**-40


def _drawn_changed(sample: Sample, change: Callable[[HostArray], HostArray], label: str) -> Sample:
    """The sample with the arrays of numbers changed that may be moved."""

    def put(value: Any) -> Any:
        given = _movable_array(value)
        return value if given is None else change(given)

    args = tuple(over_lists(one, put) for one in sample.args)
    kwargs = {name: over_lists(one, put) for name, one in sample.kwargs.items()}
    return replace(sample, args=args, kwargs=kwargs, label=label)


def _may_change(sample: Sample, change: Callable[[HostArray], HostArray]) -> bool:
    """Whether `change` changes an array of the sample; tried on a few of its numbers."""
    arrays = filter(None, map(_movable_array, each(sample.args, sample.kwargs)))
    few = (replace(one, values=one.values.reshape(-1)[:_TURNS]) for one in arrays)
    return any(change(one) is not one for one in few)


def _movable_array(value: Any) -> HostArray | None:
    """The array whose numbers may be moved, or None."""
    given = HostArray(value) if isinstance(value, np.ndarray) else value
    if not isinstance(given, HostArray) or not given.values.size or given.values.dtype == np.bool_:
        return None
    return given if given.is_free or _is_movable(given.values) else None


def _largest(sample: Sample) -> int:
    return max((array.size for array in arrays_of(*sample.host())), default=0)


def _numbers_like(given: HostArray, chance: np.random.Generator) -> NDArray[Any]:
    """Numbers for an array: in its range if it has one, else of any size up to that of a spike."""
    values, shape = given.values, given.shape
    if given.span is not None and not _is_integer(values):
        low, high = given.span
        return np.asarray((low + (high - low) * chance.uniform(0, 1, shape)).astype(values.dtype))
    if _is_integer(values):
        limits = np.iinfo(values.dtype)
        most = int(min(limits.max, _SPIKE))
        return np.asarray(chance.integers(max(limits.min, -most), most + 1, shape).astype(values.dtype))
    exponents = chance.uniform(0, 1, shape) * np.log2(_spike(values.dtype))
    sizes = _far(values) / _spike(values.dtype) * 2.0**exponents * chance.choice((-1.0, 1.0), shape)
    return np.asarray(sizes.astype(values.dtype))


def _is_integer(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu"


# ------------------------------------------------------------------------------------------------ one number at a time


def influences(
    results: Results,
    dtype: str,
    sample: Sample,
    chance: np.random.Generator,
    *,
    bases: Sequence[bool] = (True, False),
    places: int = _PLACES,
) -> Iterator[Probe]:
    """For each array of floats: numbers moved a lot, among zeros and among others; the output must follow.

    Integer results are not judged among zeros: places of equal numbers may come in any order.
    """
    if any(bases) and all(_is_integer(spec.expected(sample)) for spec in results.of(sample)):
        bases = [among_zeros for among_zeros in bases if not among_zeros]
    spans = [getattr(one, "span", None) for one in each(sample.args, sample.kwargs) if _is_array(one)]
    for place, array in enumerate(arrays_of(*sample.host())):
        span = spans[place]
        if _is_movable(array):
            bounds = np.unique(np.linspace(0, array.size, places + 1).astype(np.int64))
            spots = [int(chance.integers(low, high)) for low, high in pairwise(bounds)]
            for among_zeros in bases:
                if among_zeros and span is not None and not span[0] <= 0 <= span[1]:
                    continue
                base = _with(sample, place, array * 0) if among_zeros else sample
                moved = [_moved(base, place, spot, span) for spot in spots]
                draws = tuple(partial(same, one) for one in (base, *moved))
                yield Probe("influence", dtype, draws, partial(_judged_influence, results, dtype, among_zeros))


def _with(sample: Sample, place: int, values: NDArray[Any]) -> Sample:
    """The sample with other numbers in the array at `place` among its arrays."""
    count = iter(range(len(arrays_of(*sample.host()))))

    def put(value: Any) -> Any:
        return HostArray(values) if isinstance(value, np.ndarray) and next(count) == place else value

    args, kwargs = sample.changed(put)
    return replace(sample, args=args, kwargs=kwargs)


def _moved(sample: Sample, place: int, spot: int, span: tuple[float, float] | None) -> Sample:
    """The sample with one number moved far away, or to the end of its range that is further away."""
    array = arrays_of(*sample.host())[place]
    flat = array.copy().reshape(-1)
    far = _far(array) if span is None else max(span, key=lambda end: abs(end - complex(flat[spot])))
    flat[spot] = np.asarray(far).astype(array.dtype)
    return replace(_with(sample, place, flat.reshape(array.shape)), label=f"{sample.label}, number {spot} moved")


def _is_array(value: Any) -> bool:
    return isinstance(value, HostArray | np.ndarray)


def _is_movable(value: Any) -> bool:
    """Whether it is an array of floats in no order: sorted ones, such as edges, must stay so. Equal ones have none."""
    if not isinstance(value, np.ndarray) or not value.size or not (is_float(value.dtype) or is_complex(value.dtype)):
        return False
    return not is_sorted(value) or bool((value == value.reshape(-1)[0]).all())


def _spike(dtype: np.dtype[Any]) -> float:
    return _SPIKE if epsilon(dtype) < 2.0**-12 else _SMALL_SPIKE


def _far(array: NDArray[Any]) -> float:
    finite = np.abs(np.nan_to_num(array, posinf=0.0, neginf=0.0).astype(np.complex128))
    return _spike(array.dtype) * (float(np.max(finite, initial=0.0)) or 1.0)


def _judged_influence(
    results: Results,
    dtype: str,
    among_zeros: bool,
    samples: Sequence[Sample],
    outputs: Sequence[Outputs],
    told: dict[str, float],
) -> Finding | None:
    """Where a moved number changes the reference visibly, it changes the output by a quarter of that at least."""
    rights = [tuple(spec.expected(sample) for spec in results.of(sample)) for sample in samples]
    for sample, given, right in zip(samples, outputs, rights, strict=True):
        if [one.shape for one in given] != [one.shape for one in right]:
            return judged_values(results, dtype, "influence", (sample,), (given,), told)
    for place, pair in enumerate(zip(outputs[0], rights[0], strict=True)):
        if among_zeros and _is_integer(pair[1]):
            continue
        base, right_base = map(_wide, pair)
        for sample, given, right in zip(samples[1:], outputs[1:], rights[1:], strict=True):
            want, got = _wide(right[place]), _wide(given[place])
            if want.shape != base.shape:
                return judged_values(results, dtype, "influence", (sample,), (given,), told)
            with np.errstate(all="ignore"):
                change = np.abs(want - right_base)
                far = np.isfinite(change) & (change > _SEEN * np.maximum(np.abs(want), np.abs(right_base)))
                ignored = far & ((np.abs(got - base) < change / 4) if among_zeros else (got == base))
            if ignored.any():
                return replace(_ignored(sample, ignored, want, right_base, got), result=place)
    return None


def _ignored(sample: Sample, ignored: NDArray[Any], want: Any, right: Any, got: Any) -> Finding:
    place = tuple(int(at) for at in np.argwhere(ignored)[0])
    text = (
        f"a number has no part in the result: once it is moved, the reference goes from {right[place]:.6g} to "
        f"{want[place]:.6g} at {place}, and the output to {got[place]:.6g}"
    )
    seen = Evidence(id="C5", certainty="indicated", evidence="an input number that counts was not used")
    return Finding("influence", sample.label, text, (seen,))


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array).astype(np.complex128 if np.iscomplexobj(array) else np.float64)
